"""A stack with kmsKeyArn: it creates no key, keeps its key while it exists, and leaves the key after destroy.

The tests run in the order of the file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bootstrap.policies import boundary_name, boundary_policy
from infra.encryption import key_policy
from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.deployer import ACCOUNT, allowed, needs, policies, roles_of
from tests.sandbox.inventory import Client, inventory
from tests.sandbox.test_lifecycle import clients, succeed
from tests.sandbox.test_permissions import BEFORE, CLUSTER, NAMES, OURS, REGION

LOG_GROUP = f"/aws/eks/{CLUSTER}/cluster"
SETTING = f"{OURS}kmsKeyArn"
POLICY = {
    "Version": "2012-10-17",
    "Statement": key_policy(ACCOUNT, "aws", "amazonaws.com", REGION, LOG_GROUP),
}


@dataclass(frozen=True)
class Existing:
    """The stack, and two keys that it has not created. `calls` are those of the runs that succeed."""

    part: AwsPart
    client: Client
    key: str
    other: str
    before: Mapping[str, list[str]]
    calls: list[Mapping[str, Any]] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        start = len(self.part.calls())
        shown = succeed(self.part, *arguments)
        self.calls.extend(self.part.calls()[start:])
        return shown

    def write(self, **changes: Any) -> None:
        self.part.set({**BEFORE, SETTING: self.key, **{f"{OURS}{name}": value for name, value in changes.items()}})

    def enabled_keys(self) -> set[str]:
        kms = self.client("kms")
        found = [kms.describe_key(KeyId=each["KeyId"])["KeyMetadata"] for each in kms.list_keys()["Keys"]]
        return {each["Arn"] for each in found if each["KeyState"] == "Enabled"}

    def file_system(self) -> tuple[str, str]:
        """The ID and the key of the file system."""
        (found,) = self.client("efs").describe_file_systems()["FileSystems"]
        return found["FileSystemId"], found["KmsKeyId"]


@pytest.fixture(scope="module")
def existing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Existing]:
    with aws_part(tmp_path_factory.mktemp("existing"), "dev") as part:
        client = clients(part, REGION)
        kms, iam = client("kms"), client("iam")
        key, other = (kms.create_key(Policy=json.dumps(POLICY))["KeyMetadata"]["Arn"] for _ in range(2))
        names = dataclasses.replace(NAMES, key=(key,))
        iam.create_role(RoleName="admin", AssumeRolePolicyDocument="{}")
        iam.create_user(UserName="operator")
        iam.create_policy(PolicyName=boundary_name("dev"), PolicyDocument=json.dumps(boundary_policy(names)))
        yield Existing(part, client, key, other, inventory(client))


def test_a_disabled_key_stops_up_before_the_first_resource(existing: Existing) -> None:
    key_id = existing.key.rpartition("/")[2]
    existing.client("kms").disable_key(KeyId=key_id)
    existing.write()
    refused = existing.part.pulumi("up", "--yes", *AWS_PART)
    existing.client("kms").enable_key(KeyId=key_id)
    assert refused.returncode != 0
    assert f'kmsKeyArn: "{existing.key}" has the state Disabled' in " ".join(refused.stdout.split())
    assert inventory(existing.client) == existing.before


def test_up_shows_the_statements_and_uses_only_the_existing_key(existing: Existing) -> None:
    existing.write()
    shown = existing.run("up", "--yes", *AWS_PART)
    assert "must contain these statements" in shown
    assert f"log-group:{LOG_GROUP}" in shown
    again = existing.run("preview", "--expect-no-changes", *AWS_PART)
    assert "must contain these statements" not in again
    assert existing.enabled_keys() == {existing.key, existing.other}, "another key was created"
    assert inventory(existing.client)["aliases"] == existing.before["aliases"]

    cluster = existing.client("eks").describe_cluster(name=CLUSTER)["cluster"]
    assert cluster["encryptionConfig"][0]["provider"]["keyArn"] == existing.key
    assert existing.file_system()[1] == existing.key
    (group,) = existing.client("logs").describe_log_groups()["logGroups"]
    assert group["kmsKeyId"] == existing.key


@pytest.mark.parametrize("skip", [(), ("--skip-preview",)], ids=["with preview", "without preview"])
@pytest.mark.parametrize("new", ["other", ""], ids=["another key", "a key of the stack"])
def test_a_new_key_is_refused(existing: Existing, new: str, skip: tuple[str, ...]) -> None:
    before, value = existing.file_system(), existing.other if new else ""
    existing.write(kmsKeyArn=value)
    refused = existing.part.pulumi("up", "--yes", *skip, *AWS_PART)
    assert refused.returncode != 0, refused.stdout
    message = f'kmsKeyArn: "{value}" changes the key {existing.key} of the running stack'
    assert message in " ".join(refused.stdout.split())
    assert existing.file_system() == before
    existing.write()
    if skip:  # without the preview, the engine changes other resources before the refusal
        succeed(existing.part, "up", "--yes", "--skip-preview", *AWS_PART)
    succeed(existing.part, "preview", "--expect-no-changes", *AWS_PART)
    assert existing.file_system() == before
    assert existing.enabled_keys() == {existing.key, existing.other}


def test_the_key_stays_after_destroy(existing: Existing) -> None:
    existing.write(workers={"count": 4})
    existing.run("up", "--yes", "--skip-preview", *AWS_PART)
    existing.run("refresh", "--yes", "--skip-preview", "--expect-no-changes", *AWS_PART)
    existing.run("destroy", "--yes", "--skip-preview")
    after = inventory(existing.client)
    left = {kind: sorted(set(ids) - set(existing.before[kind])) for kind, ids in after.items()}
    assert {kind: ids for kind, ids in left.items() if ids} == {"log groups": [LOG_GROUP]}
    assert existing.enabled_keys() == {existing.key, existing.other}


def test_the_deployer_policies_allow_every_call_with_this_key_and_no_other(existing: Existing) -> None:
    def refused(key: str) -> set[str]:
        statements = policies(dataclasses.replace(NAMES, key=(key,)))
        wanted = [need for call in existing.calls for need in needs(call, roles_of(existing.calls))]
        return {need.action for need in wanted if not allowed(statements, need)}

    assert refused(existing.key) == set()
    assert refused(existing.other) == {"kms:CreateGrant", "kms:DescribeKey"}
