"""The IAM policies of the deployer allow the calls of up, update and destroy with all settings in use, and no more."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import pytest

from bootstrap.policies import PARTS, Names, boundary_name, boundary_policy, deployer_policy
from sandbox.plugins import choice
from tests.sandbox.aws_part import AWS_PART, aws_part
from tests.sandbox.deployer import (
    ACCOUNT,
    ADMIN,
    CHECKED_BY_AWS,
    NAMES,
    OPERATOR,
    PROJECT,
    REGION,
    Need,
    allowed,
    callers,
    needs,
    official_calls,
    policies,
    recover_calls,
    roles_of,
)

OURS = "paddle-on-aws:"
BEFORE: dict[str, Any] = {
    "aws:region": REGION,
    f"{OURS}kubernetesVersion": "1.34",
    f"{OURS}apiAccessCidrs": ["8.8.8.7/32"],
    f"{OURS}controlPlaneLogs": ["audit", "authenticator"],
    f"{OURS}sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    f"{OURS}storage": {"driver": "efsCsi"},
    f"{OURS}admins": [ADMIN, OPERATOR],
    f"{OURS}permissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/{boundary_name('dev')}",
    f"{OURS}data": {"source": "s3://datasets/words.tar"},
    f"{OURS}notify": {"email": "team@example.com", "monthlyBudget": 400},
    f"{OURS}tags": {"team": "nlp", "shift": "day"},
}
AFTER = {
    **BEFORE,
    f"{OURS}kubernetesVersion": "1.35",
    f"{OURS}apiAccessCidrs": ["8.8.8.8/32"],
    f"{OURS}workers": {"count": 4, "diskGiB": 60},
    f"{OURS}job": {"name": "other-job", "namespace": "training"},
    f"{OURS}notify": {"email": "team@example.com", "monthlyBudget": 500},
    f"{OURS}retainData": True,
    f"{OURS}tags": {"team": "vision"},
}
# This replaces the workers, so it is a step of its own. And protected data cannot be deleted.
WITH_NAT = {**AFTER, f"{OURS}natGateways": "perZone", f"{OURS}retainData": False}


@dataclass(frozen=True)
class Recording:
    """Every AWS call of the deployer, the resource types and functions in use, and the kind of the AWS provider."""

    calls: list[Any]
    used: frozenset[str]
    emulated: bool


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """From an empty account to an empty account."""
    asked = (PROJECT / "settings/ask_aws.py").read_text()
    used = {key for keys in official_calls().values() for key in keys if f"{key}_output(" in asked}
    with aws_part(tmp_path_factory.mktemp("deployer"), "dev") as part:
        client = part.clients(REGION)
        iam = client("iam")
        iam.create_role(RoleName="admin", AssumeRolePolicyDocument="{}")
        iam.create_user(UserName="operator")
        iam.create_policy(PolicyName=boundary_name("dev"), PolicyDocument=json.dumps(boundary_policy(NAMES)))
        for config in (BEFORE, AFTER, WITH_NAT):
            part.set(config)
            part.succeed("up", "--yes", "--skip-preview", *AWS_PART)
            used |= {each["type"] for each in part.resources()}
        s3 = client("s3")
        bucket = s3.list_buckets()["Buckets"][0]["Name"]
        s3.put_object(Bucket=bucket, Key="other-job/output/model", Body=b"results")
        part.succeed("refresh", "--yes", "--skip-preview", *AWS_PART)
        part.succeed("destroy", "--yes", "--skip-preview")
        emulated = choice.installed(part.engine.folder / "home/.pulumi")["aws"]
        return Recording([call for call in part.calls() if call["key"] != "stranger"], frozenset(used), emulated)


@pytest.fixture(scope="module")
def needed(recording: Recording) -> list[Need]:
    roles = roles_of(recording.calls)
    found = {repr(need): need for call in recording.calls for need in needs(call, roles)}
    return list(found.values())


def test_the_policies_allow_every_call(needed: list[Need]) -> None:
    statements = policies(NAMES)
    refused = [need for need in needed if not allowed(statements, need)]
    assert not refused, "\n".join(map(str, refused))


def test_destroy_after_a_refresh_detaches_the_addresses_of_nat_gateways(recording: Recording) -> None:
    calls = recording.calls
    gateways = [call for call in calls if call["operation"] == "CreateNatGateway"]
    detached = {call["parameters"]["AssociationId"] for call in calls if call["operation"] == "DisassociateAddress"}
    assert len(detached) == len(gateways) > 0


def test_each_allowed_action_has_a_caller_and_the_page_names_those_without_a_recorded_call(
    recording: Recording, needed: list[Need]
) -> None:
    called, given = {need.action for need in needed}, {action for s in policies(NAMES) for action in s["Action"]}
    page = callers()
    # The actions that need no recorded call, by who calls them. Nobody calls an action for something unused.
    others = {
        "official provider": {action for action, users in official_calls().items() if users & recording.used},
        "AWS": {action for action, cause in CHECKED_BY_AWS.items() if cause in called},
        "recover": {action for action, caller in page.items() if caller == "recover" and recover_calls(action)},
    }
    assert given - called.union(*others.values()) == set(), "allowed, but nobody calls it"
    assert set().union(*others.values()) - given == set(), "not allowed, but somebody calls it"
    wrong = {action: caller for action, caller in page.items() if action not in others[caller]}
    assert wrong == {}, "this caller does not call it"
    assert page.keys() - given == set(), "is on the page, but is not allowed"
    # The official provider makes some of these calls.
    if recording.emulated:
        assert given - called - page.keys() == set(), "is allowed, but is not on the page"


def test_each_statement_is_needed(needed: list[Need]) -> None:
    statements, explained = policies(NAMES), callers()
    useless = [
        s["Sid"]
        for s in statements
        if not any(allowed([s], n) for n in needed) and not set(s["Action"]) <= set(explained)
    ]
    assert not useless


def test_no_action_has_a_wildcard_and_resources_are_narrow_where_aws_allows_it() -> None:
    statements = policies(NAMES)
    assert not [s["Sid"] for s in statements if any("*" in action for action in s["Action"])]
    assert not [s["Sid"] for s in statements if "NotAction" in s or "NotResource" in s or s["Effect"] != "Allow"]
    everything = {s["Sid"] for s in statements if s["Resource"] == "*"}
    look = {"AddonVersionsLook", "ClusterLogsLook", "NetworkLook", "KeyLook", "QuotaDefaultsLook"}
    assert everything == look | {"KeyMake", "KeyTagNew", "FileSystemMake", "Subscriptions", "ZoneMake"}


def test_each_policy_fits_into_a_managed_policy() -> None:
    stack, people, data = "s" * 40, ("p" * 90,) * 4, ("d" * 80,) * 2
    longest = Names(ACCOUNT, "c" * 100, "amazonaws.com", "aws-us-gov", "ap-southeast-1", stack, "z" * 60, people, data)
    for names in (longest, dataclasses.replace(longest, key=("k" * 100,))):
        documents = {part: deployer_policy(part, names) for part in PARTS} | {"boundary": boundary_policy(names)}
        for name, document in documents.items():
            assert len(json.dumps(document, separators=(",", ":"))) <= 6144, name


def test_a_topic_that_does_not_exist_has_no_tags() -> None:
    """The provider looks for a topic before it creates it, and knows no account number in the sandbox."""
    topic = f"arn:aws:sns:{REGION}:{ACCOUNT}:training-messages-1a2b3c4"
    asked = {"service": "sns", "operation": "GetTopicAttributes", "region": REGION, "tags": {}}
    (need,) = needs({**asked, "parameters": {"TopicArn": topic.replace(ACCOUNT, "")}}, {})
    assert need == Need("sns:GetTopicAttributes", topic, {})
    assert allowed(policies(NAMES), need)
