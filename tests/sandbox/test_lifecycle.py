"""The AWS part of a stack with the real engine: up, refresh without changes, changes, refusals, and destroy.

The whole stack `local` is tested in test_mission.py.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bootstrap.policies import boundary_name, boundary_policy
from infra.encryption import key_policy
from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.deployer import ACCOUNT, CLUSTER, NAMES, REGION, allowed, needs, policies, roles_of
from tests.sandbox.inventory import Client, inventory
from tests.unit.program import config_of

OURS = "paddle-on-aws:"
UP = ("up", "--yes", "--skip-preview", *AWS_PART)
REFRESH = ("refresh", "--yes", "--skip-preview", "--expect-no-changes", *AWS_PART)
NO_CHANGES = ("preview", "--expect-no-changes", *AWS_PART)
DESTROY = ("destroy", "--yes", "--skip-preview")
LOG_GROUP = f"/aws/eks/{CLUSTER}/cluster"
# A new stack would get the zones a and b. In the emulated AWS, zone d does not offer m4.large.
ZONES = ["us-west-2d", "us-west-2b"]
ECR = f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn"
CHINA = {
    **config_of("dev"),
    "aws:region": "cn-north-1",
    f"{OURS}job": {"image": f"{ECR}/paddle:3.3.1"},
    f"{OURS}export": {"image": f"{ECR}/aws-cli:2"},
    f"{OURS}data": {"source": "s3://datasets/words.tar"},
    f"{OURS}storage": {"driver": "efsCsi"},
}


def left(before: Mapping[str, list[str]], client: Client) -> dict[str, list[str]]:
    """The resources that have been added since then."""
    added = {kind: sorted(set(ids) - set(before[kind])) for kind, ids in inventory(client).items()}
    return {kind: ids for kind, ids in added.items() if ids}


def desired_workers(client: Client) -> int:
    (cluster,) = client("eks").list_clusters()["clusters"]
    (group,) = client("eks").list_nodegroups(clusterName=cluster)["nodegroups"]
    found = client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"]
    return int(found["scalingConfig"]["desiredSize"])


def log_groups(client: Client) -> dict[str, int | None]:
    """The days that each log group keeps its logs."""
    listed = client("logs").describe_log_groups()["logGroups"]
    return {each["logGroupName"]: each.get("retentionInDays") for each in listed}


def enabled_keys(client: Client) -> set[str]:
    kms = client("kms")
    found = [kms.describe_key(KeyId=each["KeyId"])["KeyMetadata"] for each in kms.list_keys()["Keys"]]
    return {each["Arn"] for each in found if each["KeyState"] == "Enabled"}


def file_system(client: Client) -> tuple[str, str]:
    """The ID and the key of the file system."""
    (found,) = client("efs").describe_file_systems()["FileSystems"]
    return found["FileSystemId"], found["KmsKeyId"]


def zones(client: Client) -> list[str]:
    subnets = client("ec2").describe_subnets(Filters=[{"Name": "tag:stack", "Values": ["dev"]}])
    return sorted(each["AvailabilityZone"] for each in subnets["Subnets"])


def test_prod(tmp_path: Path) -> None:
    """With protected data, control-plane logs and a key of the stack."""
    config = config_of("prod")
    with aws_part(tmp_path, "prod") as part:
        client = part.clients("eu-west-1")
        before = inventory(client)
        part.set(config)
        assert "usually cannot reach" not in part.succeed(*UP)
        part.succeed(*NO_CHANGES)
        part.succeed(*REFRESH)
        workers = {**config[f"{OURS}workers"], "count": 9}
        part.set({**config, f"{OURS}workers": workers, f"{OURS}retainData": False})
        part.succeed(*UP)
        assert desired_workers(client) == 9
        part.succeed(*DESTROY)
        assert left(before, client) == {"log groups": ["/aws/eks/paddle-prod/cluster"]}


def test_china(tmp_path: Path) -> None:
    """ARNs are of this partition, and names of AWS have its DNS suffix. test_security.py checks all ARNs."""
    with aws_part(tmp_path, "dev") as part:
        client = part.clients("cn-north-1")
        before = inventory(client)
        part.set(CHINA)
        part.succeed(*UP)
        resources = part.resources()
        arns = [e["outputs"]["arn"] for e in resources if e["type"] in ("aws:kms/key:Key", "aws:iam/role:Role")]
        assert {re.split(":", arn)[1] for arn in arns} == {"aws-cn"}
        roles = {role["RoleName"]: role["AssumeRolePolicyDocument"] for role in client("iam").list_roles()["Roles"]}
        (worker,) = [trust for name, trust in roles.items() if name.startswith("worker-role")]
        assert worker["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}
        outputs = {each["urn"].rpartition("::")[2]: each.get("outputs", {}) for each in resources}
        assert outputs["efs"]["dnsName"].endswith(".efs.cn-north-1.amazonaws.com.cn")
        assert outputs["eks"]["endpoint"].endswith(".cn-north-1.eks.amazonaws.com.cn")
        assert outputs["s3-endpoint"]["serviceName"] == "com.amazonaws.cn-north-1.s3"
        part.succeed(*REFRESH)
        part.succeed(*DESTROY)
        assert left(before, client) == {}


def test_an_account_with_a_key_and_a_log_group(tmp_path: Path) -> None:
    """A stack in zones of its choice, with a key and a log group that exist before it."""
    with aws_part(tmp_path, "dev") as part:
        client = part.clients(REGION)
        kms = client("kms")
        statements = key_policy(ACCOUNT, "aws", "amazonaws.com", REGION, LOG_GROUP)
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        key, other = (kms.create_key(Policy=policy)["KeyMetadata"]["Arn"] for _ in range(2))
        names = dataclasses.replace(NAMES, key=(key,))
        client("iam").create_policy(PolicyName=boundary_name("dev"), PolicyDocument=json.dumps(boundary_policy(names)))
        # As EKS creates it after a destroy: without a time limit.
        client("logs").create_log_group(logGroupName=LOG_GROUP)
        before = inventory(client)

        def write(**changes: Any) -> None:
            own = {
                "kmsKeyArn": key,
                "permissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/{boundary_name('dev')}",
                "controlPlaneLogs": ["audit"],
                **changes,
            }
            part.set({**config_of("dev"), **{f"{OURS}{name}": value for name, value in own.items()}})

        write(availabilityZones=ZONES)
        refuse_a_disabled_key(part, client, key)
        adopt_the_log_group(part, client)
        start = len(part.calls())
        up_shows_the_statements_and_uses_the_key(part, client, key)
        assert enabled_keys(client) == {key, other}, "another key was created"
        assert inventory(client)["aliases"] == before["aliases"]
        keep_zones_and_log_group(part, client, write)
        calls = part.calls()[start:]
        refuse_instance_types_of_other_zones(part, client, write)
        refuse_another_key(part, client, write, key, other)
        assert enabled_keys(client) == {key, other}
        start = len(part.calls())
        part.succeed(*DESTROY)
        calls = [*calls, *part.calls()[start:]]
        assert left(before, client) == {}
        assert log_groups(client) == {LOG_GROUP: 30}
        assert enabled_keys(client) == {key, other}
        deployer_needs_only_this_key(calls, key, other)
        a_new_stack_chooses_its_zones_again(part, client, write)


def refuse_a_disabled_key(part: AwsPart, client: Client, key: str) -> None:
    before, key_id = inventory(client), key.rpartition("/")[2]
    client("kms").disable_key(KeyId=key_id)
    assert f'kmsKeyArn: "{key}" has the state Disabled' in part.refused("up", "--yes", *AWS_PART)
    client("kms").enable_key(KeyId=key_id)
    assert inventory(client) == before, "something was created"


def adopt_the_log_group(part: AwsPart, client: Client) -> None:
    """With the command in the message."""
    before = inventory(client)
    shown = part.refused("up", "--yes", *AWS_PART)
    assert f"needs the log group {LOG_GROUP}, which exists and does not belong to this stack" in shown
    assert inventory(client) == before, "something was created"
    (command,) = set(re.findall(r"To keep its logs, run `pulumi ([^`]+)`", shown))
    part.succeed(*shlex.split(command), "--yes", "--skip-preview")


def up_shows_the_statements_and_uses_the_key(part: AwsPart, client: Client, key: str) -> None:
    shown = part.succeed("up", "--yes", *AWS_PART)
    assert "must contain these statements" in shown
    assert f"log-group:{LOG_GROUP}" in shown
    assert "must contain these statements" not in part.succeed(*NO_CHANGES)
    part.succeed(*REFRESH)
    cluster = client("eks").describe_cluster(name=CLUSTER)["cluster"]
    assert cluster["encryptionConfig"][0]["provider"]["keyArn"] == key
    assert file_system(client)[1] == key
    (group,) = client("logs").describe_log_groups()["logGroups"]
    assert (group["logGroupName"], group["kmsKeyId"], group["retentionInDays"]) == (LOG_GROUP, key, 30)


def keep_zones_and_log_group(part: AwsPart, client: Client, write: Callable[..., None]) -> None:
    """A running stack keeps its zones, whatever zones a new stack would get, and its own log group stops nothing."""
    write()
    part.succeed(*NO_CHANGES)
    # A NAT gateway is in the zone of the workers, not in the one that a new stack would use.
    workers = {"count": 4, "instanceTypes": ["m5.large"]}
    write(controlPlaneLogs=["api", "audit"], workers=workers, natGateways="perZone")
    part.succeed(*UP)
    assert zones(client) == ["us-west-2b", "us-west-2d", "us-west-2d"]
    assert desired_workers(client) == 4


def refuse_instance_types_of_other_zones(part: AwsPart, client: Client, write: Callable[..., None]) -> None:
    before = inventory(client)
    write(workers={"instanceTypes": ["m4.large"]})
    assert "us-west-2d, a zone of this stack, does not offer: m4.large" in part.refused(*UP)
    assert inventory(client) == before


def refuse_another_key(part: AwsPart, client: Client, write: Callable[..., None], key: str, other: str) -> None:
    """Without the preview, the engine changes other resources before the refusal."""
    before = file_system(client)
    for value, skip in ((other, ()), ("", ("--skip-preview",))):
        write(kmsKeyArn=value)
        shown = part.refused("up", "--yes", *skip, *AWS_PART)
        assert f'kmsKeyArn: "{value}" changes the key {key} of the running stack' in shown
        assert file_system(client) == before
    write()
    part.succeed(*UP)
    assert file_system(client) == before


def deployer_needs_only_this_key(calls: list[Mapping[str, Any]], key: str, other: str) -> None:
    """The policies of the deployer allow every call with this key, and with no other."""

    calls = [call for call in calls if call["key"] != "stranger"]

    def refused(key: str) -> set[str]:
        statements = policies(dataclasses.replace(NAMES, key=(key,)))
        wanted = [need for call in calls for need in needs(call, roles_of(calls))]
        return {need.action for need in wanted if not allowed(statements, need)}

    assert refused(key) == set()
    assert refused(other) == {"kms:CreateGrant", "kms:DescribeKey"}


def a_new_stack_chooses_its_zones_again(part: AwsPart, client: Client, write: Callable[..., None]) -> None:
    """And it finds the log group that the former one has left."""
    write(workers={"instanceTypes": ["m4.large"]})
    shown = part.refused("preview", *AWS_PART)
    assert f"pulumi import aws:cloudwatch/logGroup:LogGroup cluster-logs {LOG_GROUP}" in shown
    write(workers={"instanceTypes": ["m4.large"]}, controlPlaneLogs=[])
    shown = part.succeed("preview", "--diff", *AWS_PART)
    assert "us-west-2d" not in shown
    assert "us-west-2a" in shown
