"""Kills the engine in the middle of `up` and `destroy`. After `make recover`, `up` and `destroy` must complete."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from typing import Any

import boto3
import pytest

from sandbox.paths import CHECKOUT
from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.inventory import added, inventory
from tests.unit.program import NAME, config_of

Inventory = dict[str, list[str]]


@pytest.fixture(scope="module")
def part(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsPart]:
    with aws_part(tmp_path_factory.mktemp("recover"), "dev") as part:
        part.set(config_of("dev"))
        yield part


@pytest.fixture(scope="module")
def empty(part: AwsPart) -> Inventory:
    return held(part)


def held(part: AwsPart) -> Inventory:
    return inventory(functools.partial(client, part))


def client(part: AwsPart, service: str) -> Any:
    return boto3.client(
        service,
        region_name="us-west-2",
        endpoint_url=part.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def changes(part: AwsPart) -> int:
    """How many API calls have changed something."""
    if not part.calls_file.exists():
        return 0
    # The last line can be incomplete.
    operations = re.findall(r'"operation": "([A-Za-z]+)"', part.calls_file.read_text())
    return sum(not each.startswith(("Describe", "Get", "List", "Head")) for each in operations)


def kill(part: AwsPart, after: int, *command: str) -> None:
    """Start a Pulumi command and kill it, with its plugins, after this number of changes."""
    limit = changes(part) + after
    process = subprocess.Popen(
        ["pulumi", *command, "--stack", part.engine.stack, "--config-file", str(part.engine.config)],
        cwd=CHECKOUT,
        env=part.engine.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and changes(part) < limit:
        time.sleep(0.02)
    assert process.poll() is None, "the command ended before it was killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    part.engine.clean_up_after_kill()


def recover(part: AwsPart, *options: str) -> str:
    keys = {"AWS_ENDPOINT_URL": part.endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run(
        [sys.executable, "-m", "recover", "dev", "--config-file", str(part.engine.config), *options],
        cwd=CHECKOUT,
        env=part.engine.environment | keys,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def up(part: AwsPart) -> None:
    done = part.pulumi("up", "--yes", "--skip-preview", *AWS_PART)
    assert done.returncode == 0, done.stdout


def destroy(part: AwsPart) -> None:
    done = part.pulumi("destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout


NOTHING_UNRECORDED = "AWS has no resources with the tags of stack dev that are not in its state."

# Numbers of changes. To try others: KILL_AFTER="3 17 44" pytest tests/sandbox/test_recover.py
MOMENTS = [int(each) for each in os.environ.get("KILL_AFTER", "40").split()]


@pytest.mark.parametrize("after", MOMENTS)
def test_up_continues_without_duplicates(part: AwsPart, empty: Inventory, after: int) -> None:
    kill(part, after, "up", "--yes", "--skip-preview", *AWS_PART)
    before = added(empty, held(part))
    assert before
    listed = recover(part, "--dry-run")
    assert added(empty, held(part)) == before
    unfinished, _, unrecorded = listed.rstrip().rpartition("\n")
    assert unrecorded == NOTHING_UNRECORDED
    repaired = recover(part).rstrip()
    assert repaired.startswith(unfinished)
    assert repaired.endswith(NOTHING_UNRECORDED)
    assert "Nothing to recover" in recover(part)
    up(part)
    created = held(part)
    counts = added(empty, created)
    for kind in ("vpcs", "clusters", "node groups", "file systems", "keys", "aliases", "buckets", "zones"):
        assert counts[kind] == 1, (kind, counts)
    recorded = {resource.get("id") for resource in part.engine.deployment().get("resources") or []}
    for kind in ("subnets", "gateways", "endpoints", "launch templates", "roles", "mount targets"):
        assert set(created[kind]) - set(empty[kind]) <= recorded, kind
    destroy(part)
    assert held(part) == empty


@pytest.mark.parametrize("after", MOMENTS)
def test_destroy_continues_until_nothing_is_left(part: AwsPart, empty: Inventory, after: int) -> None:
    up(part)
    kill(part, after, "destroy", "--yes", "--skip-preview")
    recover(part)
    destroy(part)
    assert held(part) == empty


def test_an_unfinished_security_group_allows_only_what_the_program_declares(part: AwsPart, empty: Inventory) -> None:
    up(part)
    complete = part.engine.output_of("stack", "export")
    resources = json.loads(complete)["deployment"]["resources"]
    (group,) = (each for each in resources if each["urn"].endswith("::efs-group"))
    # As if the engine had been killed before the provider revoked the rule that AWS adds to each new group.
    ec2 = client(part, "ec2")
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.authorize_security_group_egress(GroupId=group["id"], IpPermissions=everything)
    interrupted = without(complete, {group["urn"]})
    unfinished = {key: value for key, value in group.items() if key not in ("id", "outputs")}
    interrupted["deployment"]["pending_operations"] = [{"resource": unfinished, "type": "creating"}]
    # `pulumi stack import` would drop the unfinished operation.
    (file,) = part.engine.state.glob(".pulumi/stacks/*/dev.json")
    written = json.loads(file.read_text())
    written["checkpoint"]["latest"] = interrupted["deployment"]
    file.write_text(json.dumps(written))
    assert f"{group['id']}: add to the state if it exists, without the rule" in recover(part)
    (found,) = ec2.describe_security_groups(GroupIds=[group["id"]])["SecurityGroups"]
    assert found["IpPermissionsEgress"] == []
    up(part)
    repaired = part.engine.deployment().get("resources") or []
    assert {each["urn"]: each.get("id") for each in repaired} == {each["urn"]: each.get("id") for each in resources}


def test_resources_that_the_state_does_not_contain_are_listed_and_not_changed(part: AwsPart, empty: Inventory) -> None:
    part.set({**config_of("dev"), "paddle-on-aws:natGateways": "single"})
    up(part)
    nothing = ["Nothing to recover: no operation of stack dev was interrupted.", NOTHING_UNRECORDED]
    assert recover(part).splitlines() == nothing
    everything = held(part)
    # A stack of another name in the same account, and a resource of another project.
    ec2 = client(part, "ec2")
    others = [ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"] for _ in range(2)]
    for other, owner in zip(others, ({"project": NAME, "stack": "prod"}, {"stack": "dev"}), strict=True):
        ec2.create_tags(Resources=[other], Tags=[{"Key": key, "Value": value} for key, value in owner.items()])
    complete = part.engine.output_of("stack", "export")
    aws = {each["urn"] for each in json.loads(complete)["deployment"]["resources"] if each["type"].startswith("aws:")}
    write_state(part, without(complete, aws))
    changed = changes(part)
    listed = recover(part)
    assert not [other for other in others if other in listed]
    money = [line.partition(": ")[0] for line in listed.splitlines() if line.endswith(": costs money")]
    for kind in ("nat gateways", "addresses", "file systems", "keys", "buckets", "clusters", "zones"):
        own = set(everything[kind]) - set(empty[kind])
        assert own
        assert all(any(identity.removeprefix("/") in line for line in money) for identity in own), (kind, listed)
    for kind in ("subnets", "vpcs", "gateways", "launch templates"):
        assert all(identity in listed for identity in set(everything[kind]) - set(empty[kind])), (kind, listed)
    assert recover(part, "--dry-run") == listed
    assert changes(part) == changed
    write_state(part, json.loads(complete))
    assert recover(part).splitlines() == nothing
    destroy(part)
    for other in others:
        ec2.delete_vpc(VpcId=other)
    part.set(config_of("dev"))
    assert held(part) == empty


def without(exported: str, gone: Collection[str]) -> dict[str, Any]:
    """The state without these resources, as if it came from an old copy."""
    state: dict[str, Any] = json.loads(exported)
    resources = state["deployment"]["resources"]
    kept = [each for each in resources if each["urn"] not in gone]
    for each in kept:
        each["dependencies"] = [urn for urn in each.get("dependencies") or [] if urn not in gone]
        each.pop("propertyDependencies", None)
    state["deployment"]["resources"] = kept
    return state


def write_state(part: AwsPart, state: dict[str, Any]) -> None:
    file = part.engine.folder / "state.json"
    file.write_text(json.dumps(state))
    part.engine.output_of("stack", "import", "--file", str(file))
