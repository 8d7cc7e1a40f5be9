"""The setting kmsKeyArn: an existing key encrypts everything, and a running stack keeps its key."""

import json
import re
from typing import Any

import pulumi
import pytest

from infra.encryption import key_policy, needed_statements, new_key
from infra.iam import Statement
from settings.schema import PROJECT
from tests.unit.conftest import RunStack
from tests.unit.program import ACCOUNT, EVERYTHING, EXISTING_KEY, Graph

OWN = "paddle-on-aws:"
ALL = {key.removeprefix(OWN): value for key, value in EVERYTHING.items() if key.startswith(OWN)}
ENCRYPTION = "paddle:infra:Encryption"
LOG_GROUP = "/aws/eks/paddle-cluster/cluster"


def keys(value: Any) -> set[str]:
    """Every ARN of a key in the inputs of a resource."""
    return set(re.findall(r"arn:aws:(?:kms|mock):[\w-]+:\d+:key[\w/-]*", json.dumps(value, default=str)))


def users(graph: Graph) -> dict[str, set[str]]:
    """The keys that each resource names."""
    found = {r.name: keys(r.inputs) for r in graph.resources.values() if r.type.startswith("aws:")}
    return {name: arns for name, arns in found.items() if arns}


def test_the_existing_key_replaces_the_key_of_the_stack_everywhere(program: RunStack) -> None:
    own, existing = program(ALL), program({**ALL, "kmsKeyArn": EXISTING_KEY})
    assert not existing.all("aws:kms/key:Key") + existing.all("aws:kms/alias:Alias")
    assert set(users(existing)) == set(users(own))
    assert {"eks", "efs", "bucket-encryption", "worker-template", "cluster-logs", "training-messages"} < set(users(own))
    assert set().union(*users(existing).values()) == {EXISTING_KEY}
    assert existing.outputs["keyArn"] == EXISTING_KEY
    made = {r.name for r in existing.resources.values()}
    assert {r.name for r in own.resources.values()} - made == {"key", "key-alias"}


@pytest.mark.parametrize(
    ("recorded", "key", "setting", "refused"),
    [
        ({"kmsKeyArn": "arn:old"}, "arn:old", EXISTING_KEY, True),
        ({"kmsKeyArn": "arn:old"}, "arn:old", "", True),
        ({}, "arn:old", EXISTING_KEY, True),
        ({}, "arn:own", "", False),
        ({"kmsKeyArn": EXISTING_KEY}, EXISTING_KEY, EXISTING_KEY, False),
        # An earlier version did not record the setting.
        ({}, EXISTING_KEY, EXISTING_KEY, False),
        # The first update failed before it had a key.
        ({}, None, EXISTING_KEY, False),
    ],
)
def test_a_new_key_of_a_running_stack_is_refused(
    recorded: dict[str, str], key: str | None, setting: str, refused: bool
) -> None:
    outputs = {"key_arn": key} if key else {}
    args = pulumi.ResourceHookArgs("urn", "", "encryption", ENCRYPTION, old_inputs=recorded, old_outputs=outputs)
    message = (
        f'kmsKeyArn: "{setting}" changes the key {key} of the running stack, and its file system and cluster cannot '
        "change their key. Write the former value, or run `pulumi destroy` first."
    )
    assert str(new_key(args, setting) or "") == (message if refused else "")


def test_a_changed_setting_calls_the_hook_that_refuses_it(program: RunStack) -> None:
    """The engine calls it if the recorded inputs differ, before it sends the URN that the ARN of the key waits for."""
    graphs = [program({"kmsKeyArn": key}) for key in ("", EXISTING_KEY)]
    without, given = (graph.one(ENCRYPTION) for graph in graphs)
    assert (without.inputs, given.inputs) == ({}, {"kmsKeyArn": EXISTING_KEY})
    assert {tuple(each.options.hooks.before_update) for each in (without, given)} == {("new-key",)}
    assert list(without.options.hooks.before_create) == []
    assert list(given.options.hooks.before_create) == ["key-statements"], "only the first run shows the statements"
    assert [list(graph.named("efs").options.ignoreChanges) for graph in graphs] == [["kmsKeyId"]] * 2


def statements(log_group: str | None) -> list[Statement]:
    return key_policy(ACCOUNT, "aws", "amazonaws.com", "us-west-2", log_group)


@pytest.mark.parametrize("log_group", [None, LOG_GROUP])
def test_the_message_contains_the_statements_as_json(log_group: str | None) -> None:
    text = needed_statements(EXISTING_KEY, statements(log_group))
    assert text.startswith(f'kmsKeyArn: the key policy of "{EXISTING_KEY}" must contain these statements')
    sids = [each["Sid"] for each in json.loads(text.partition("\n")[2])]
    assert sids == ["EnableIamPolicies", *(["Logs"] if log_group else []), "WorkerDisks", "WorkerDiskGrants"]


def test_the_documented_statements_are_those_of_the_program() -> None:
    page = (PROJECT / "docs/permissions.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(shown) == statements(LOG_GROUP)
