"""The deployer's IAM policies are what an up, an update and a destroy with every setting on take, and no more."""

from __future__ import annotations

import re
from typing import Any

import boto3
import pytest

from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.deployer import POLICIES, Need, allowed, besides, needs, policies

REGION, CLUSTER, ZONE = "us-west-2", "paddle-cluster", "paddle"
OURS = "paddle-on-aws:"
BEFORE: dict[str, Any] = {
    "aws:region": REGION,
    f"{OURS}natGateways": "perZone",
    f"{OURS}kubernetesVersion": "1.34",
    f"{OURS}apiAccessCidrs": ["203.0.113.7/32"],
    f"{OURS}sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    f"{OURS}storage": {"driver": "efsCsi"},
    f"{OURS}admins": ["arn:aws:iam::123456789012:role/admin"],
    f"{OURS}data": {"source": "s3://datasets/words.tar"},
    f"{OURS}tags": {"team": "nlp", "shift": "day"},
}
AFTER = {
    **BEFORE,
    f"{OURS}natGateways": "none",
    f"{OURS}kubernetesVersion": "1.35",
    f"{OURS}apiAccessCidrs": ["203.0.113.8/32"],
    f"{OURS}workers": {"count": 4, "diskGiB": 60},
    f"{OURS}job": {"name": "other-job", "namespace": "training"},
    f"{OURS}tags": {"team": "vision"},
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every call that the deployer makes of AWS from nothing to nothing."""
    with aws_part(tmp_path_factory.mktemp("deployer"), "dev") as part:
        strangers = {"endpoint_url": part.endpoint, "aws_access_key_id": "stranger", "aws_secret_access_key": "x"}
        boto3.client("iam", region_name=REGION, **strangers).create_role(
            RoleName="admin", AssumeRolePolicyDocument="{}"
        )
        for config in (BEFORE, AFTER):
            part.set(config)
            _succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
        s3 = boto3.client("s3", region_name=REGION, **strangers)
        bucket = s3.list_buckets()["Buckets"][0]["Name"]
        s3.put_object(Bucket=bucket, Key="other-job/output/model", Body=b"results")
        _succeed(part, "destroy", "--yes", "--skip-preview")
        return [call for call in part.calls() if call["key"] != "stranger"]


def _succeed(part: AwsPart, *arguments: str) -> None:
    done = part.pulumi(*arguments)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def needed(calls: list[Any]) -> list[Need]:
    found = {repr(need): need for call in calls for need in needs(call)}
    return list(found.values())


def test_the_policies_allow_every_call(needed: list[Need]) -> None:
    statements = policies(REGION, CLUSTER, ZONE)
    refused = [need for need in needed if not allowed(statements, need)]
    assert not refused, "\n".join(map(str, refused))


def test_every_action_allowed_is_called_or_has_its_reason(needed: list[Need]) -> None:
    called, reasons = {need.action for need in needed}, besides()
    given = {action for statement in policies(REGION, CLUSTER, ZONE) for action in statement["Action"]}
    assert given - called - reasons.keys() == set(), "allowed, and nothing calls it"
    assert reasons.keys() - given == set(), "has a reason in docs/permissions.md, and is not allowed"
    assert reasons.keys() & called == set(), "is called: it needs no reason in docs/permissions.md"


def test_every_statement_reaches_what_the_run_touched_and_no_more(needed: list[Need]) -> None:
    """Each statement is of use; none reaches somebody else's cluster, bucket, role or name, or a thing untagged."""
    statements = policies(REGION, CLUSTER, ZONE)
    reasons = besides()
    useless = [
        s["Sid"]
        for s in statements
        if not any(allowed([s], n) for n in needed) and not set(s["Action"]) <= set(reasons)
    ]
    assert not useless
    theirs = [
        Need("s3:DeleteBucket", "arn:aws:s3:::payroll"),
        Need("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/admin"),
        Need("iam:PassRole", "arn:aws:iam::123456789012:role/admin", {"iam:PassedToService": "ec2.amazonaws.com"}),
        Need(
            "iam:AttachRolePolicy",
            "arn:aws:iam::123456789012:role/export-role-1",
            {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"},
        ),
        Need("eks:DeleteCluster", f"arn:aws:eks:{REGION}:123456789012:cluster/other"),
        Need("ec2:DeleteVpc", f"arn:aws:ec2:{REGION}:123456789012:vpc/vpc-1", {"aws:ResourceTag/project": "payroll"}),
        Need(
            "ec2:CreateTags",
            f"arn:aws:ec2:{REGION}:123456789012:vpc/vpc-1",
            {"aws:RequestTag/project": "paddle-on-aws"},
        ),
        Need("elasticfilesystem:DeleteFileSystem", f"arn:aws:elasticfilesystem:{REGION}:123456789012:file-system/fs-1"),
        Need("kms:ScheduleKeyDeletion", f"arn:aws:kms:{REGION}:123456789012:key/1"),
        Need(
            "route53:ChangeResourceRecordSets",
            "arn:aws:route53:::hostedzone/Z1",
            {"route53:ChangeResourceRecordSetsNormalizedRecordNames": ["www.example.com"]},
        ),
    ]
    assert [need for need in theirs if allowed(statements, need)] == []


def test_no_action_has_a_wildcard_and_resources_are_narrow_where_aws_allows_it() -> None:
    statements = policies(REGION, CLUSTER, ZONE)
    assert not [s["Sid"] for s in statements if any("*" in action for action in s["Action"])]
    assert not [s["Sid"] for s in statements if "NotAction" in s or "NotResource" in s or s["Effect"] != "Allow"]
    everything = {s["Sid"] for s in statements if s["Resource"] == "*"}
    assert everything == {"NetworkLook", "KeyMake", "KeyLook", "FileSystemMake", "ZoneMake"}


def test_each_file_fits_into_a_managed_policy() -> None:
    for file in POLICIES.glob("*.json"):
        assert len(re.sub(r"\s", "", file.read_text())) <= 6144, file.name
