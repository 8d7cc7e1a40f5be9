"""Kills the engine in the middle of `up` and `destroy`. After `make recover`, `up` and `destroy` must complete."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.paths import CHECKOUT
from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part, output_of
from tests.sandbox.inventory import added, inventory
from tests.unit.program import EVERYTHING, NAME, config_of
from tools.recover.find import NAMED, SEARCHED

Inventory = dict[str, list[str]]
# A kill at the first change, and then at each tenth one. To try other moments: KILL_EVERY=7 pytest ...
EVERY = int(os.environ.get("KILL_EVERY", "10"))
NOTHING_UNRECORDED = "AWS has no resources with the tags of stack dev that are not in its state."
NOTHING = ["Nothing to recover: no operation of stack dev was interrupted.", NOTHING_UNRECORDED]


@dataclass(frozen=True)
class Complete:
    """A stack with every resource of the program, its state, and what the account had before."""

    part: AwsPart
    exported: str
    before: Inventory

    @property
    def ids(self) -> dict[str, str]:
        return ids(json.loads(self.exported)["deployment"])


@pytest.fixture(scope="module")
def running(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Complete]:
    with aws_part(tmp_path_factory.mktemp("complete"), "dev") as part:
        part.clients("us-west-2")("iam").create_role(RoleName="admin", AssumeRolePolicyDocument="{}")
        source = {"source": "s3://bucket/data.tar"}
        part.set({**EVERYTHING, "paddle-on-aws:data": source})
        before = held(part)
        up(part)
        yield Complete(part, part.engine.output_of("stack", "export"), before)


@pytest.fixture
def complete(running: Complete) -> Iterator[Complete]:
    """The test can change the state. AWS must stay as it is."""
    created = held(running.part)
    yield running
    write_state(running.part, json.loads(running.exported)["deployment"])
    assert held(running.part) == created


def held(part: AwsPart) -> Inventory:
    return inventory(part.clients("us-west-2"))


def changes(part: AwsPart) -> int:
    """How many API calls have changed something."""
    if not part.calls_file.exists():
        return 0
    # The last line can be incomplete.
    operations = re.findall(r'"operation": "([A-Za-z]+)"', part.calls_file.read_text())
    return sum(not each.startswith(("Describe", "Get", "List", "Head")) for each in operations)


def killed(part: AwsPart, first: bool, *command: str) -> bool:
    """Start a Pulumi command, and kill it with its plugins at the next moment. False if it ended before."""
    done = changes(part)
    limit = done + (1 if first else EVERY - done % EVERY)
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
    if process.poll() is not None:
        assert process.returncode == 0, f"{command[0]} failed after a kill and `make recover`"
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    part.engine.clean_up_after_kill()
    return True


def recover(part: AwsPart, *options: str) -> str:
    command = (sys.executable, "-m", "tools.recover", "dev", "--config-file", str(part.engine.config), *options)
    key = "test"
    return output_of(
        part.run(*command, AWS_ENDPOINT_URL=part.endpoint, AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=key)
    )


def dry_run(part: AwsPart) -> str:
    """What `recover` would do. It changes nothing."""
    before = held(part), part.engine.deployment()
    *unfinished, unrecorded = recover(part, "--dry-run").splitlines()
    assert unrecorded == NOTHING_UNRECORDED
    assert (held(part), part.engine.deployment()) == before
    return "\n".join(unfinished)


def up(part: AwsPart) -> Mapping[str, int]:
    """The number of resources that `pulumi up` created, changed and left."""
    part.succeed("up", "--yes", "--skip-preview", *AWS_PART)
    return part.engine.last_changes()


def ids(deployment: Mapping[str, Any]) -> dict[str, str]:
    """The ID of each AWS resource by its URN."""
    return {each["urn"]: each["id"] for each in deployment["resources"] if each["type"].startswith("aws:")}


def test_up_and_destroy_complete_however_often_they_are_killed(
    cached: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with aws_part(tmp_path_factory.mktemp("killed"), "dev") as part:
        part.set(config_of("dev"))
        empty, kills = held(part), 0
        while killed(part, not kills, "up", "--yes", "--skip-preview", *AWS_PART):
            planned = dry_run(part) if kills == 1 else ""
            repaired = recover(part).rstrip()
            assert repaired.startswith(planned)
            assert repaired.endswith(NOTHING_UNRECORDED)
            kills += 1
        assert kills > 40 / EVERY
        created, recorded = held(part), set(ids(part.engine.deployment()).values())
        counts = added(empty, created)
        for kind in ("vpcs", "clusters", "node groups", "file systems", "keys", "aliases", "buckets", "zones"):
            assert counts[kind] == 1, (kind, counts)
        for kind in ("subnets", "gateways", "endpoints", "launch templates", "roles", "mount targets"):
            assert set(created[kind]) - set(empty[kind]) <= recorded, kind
        rules = part.clients("us-west-2")("ec2").describe_security_group_rules()["SecurityGroupRules"]
        assert {each["SecurityGroupRuleId"] for each in rules if each["GroupId"] in recorded} <= recorded
        kills = 0
        while killed(part, not kills, "destroy", "--yes", "--skip-preview"):
            recover(part)
            kills += 1
        assert kills > 40 / EVERY
        assert held(part) == empty


def test_every_type_is_adopted_with_its_id(complete: Complete) -> None:
    """As if the engine had been killed while it created everything."""
    part, ours = complete.part, complete.ids
    types = {each["type"] for each in json.loads(complete.exported)["deployment"]["resources"]}
    assert {*NAMED, *SEARCHED} - types == set()
    # The provider revokes this rule, which AWS adds to each new group, in a second call.
    (group,) = (identity for urn, identity in ours.items() if urn.endswith("::efs-group"))
    ec2, everything = part.clients("us-west-2")("ec2"), [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=everything)
    deployment = without(complete.exported, ours)
    deployment["pending_operations"] = [
        {"resource": {key: value for key, value in each.items() if key not in ("id", "outputs")}, "type": "creating"}
        for each in json.loads(complete.exported)["deployment"]["resources"]
        if each["urn"] in ours
    ]
    write_state(part, deployment)
    assert f"{group}: add to the state if it exists, without the rule" in recover(part)
    # `pulumi up` subscribes the address again, and gets the same subscription.
    subscription = {urn for urn in ours if "aws:sns/topicSubscription:" in urn}
    assert ours.items() - ids(part.engine.deployment()).items() == {(urn, ours[urn]) for urn in subscription}
    assert up(part).keys() == {"same", "create"}
    assert ids(part.engine.deployment()) == ours


def test_what_up_cannot_create_is_found_and_adopted(complete: Complete) -> None:
    """As if AWS had created resources and the answers had been lost. No operation is pending then."""
    part, ours = complete.part, complete.ids
    kinds = (
        "efs/mountTarget:MountTarget",
        "vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "ec2/route:Route",
        "eks/accessEntry:AccessEntry",
        "route53/record:Record",
    )
    lost = {urn: identity for urn, identity in ours.items() if any(f"aws:{kind}::" in urn for kind in kinds)}
    write_state(part, without(complete.exported, lost))
    part.refused("up", "--yes", "--skip-preview", *AWS_PART)
    listed = recover(part)
    assert "make recover STACK=dev ADOPT=1" in listed
    assert all(f" {urn.rpartition('::')[2]}: {identity}\n" in listed for urn, identity in lost.items())
    assert recover(part, "--dry-run", "--adopt") == listed
    assert ids(part.engine.deployment()) == {urn: identity for urn, identity in ours.items() if urn not in lost}
    assert "The state is repaired." in recover(part, "--adopt")
    assert ids(part.engine.deployment()) == ours
    assert up(part).keys() == {"same"}


def test_resources_that_the_state_does_not_contain_are_listed_and_not_changed(complete: Complete) -> None:
    part = complete.part
    assert recover(part).splitlines() == NOTHING
    everything = held(part)
    # A stack of another name in the same account, and a resource of another project.
    ec2 = part.clients("us-west-2")("ec2")
    others = [ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"] for _ in range(2)]
    for other, owner in zip(others, ({"project": NAME, "stack": "prod"}, {"stack": "dev"}), strict=True):
        ec2.create_tags(Resources=[other], Tags=[{"Key": key, "Value": value} for key, value in owner.items()])
    write_state(part, without(complete.exported, complete.ids))
    changed = changes(part)
    listed = recover(part)
    assert not [other for other in others if other in listed]
    money = [line.partition(": ")[0] for line in listed.splitlines() if line.endswith(": costs money")]
    for kind in ("nat gateways", "addresses", "file systems", "keys", "buckets", "clusters", "zones"):
        own = set(everything[kind]) - set(complete.before[kind])
        assert own
        assert all(any(identity.removeprefix("/") in line for line in money) for identity in own), (kind, listed)
    for kind in ("subnets", "vpcs", "gateways", "launch templates"):
        own = set(everything[kind]) - set(complete.before[kind])
        assert all(identity in listed for identity in own), (kind, listed)
    # The preview fails, because the program refuses the log group. Its list ends anywhere.
    start = "Resources with the tags of stack dev that are not in its state:\n"
    assert recover(part, "--dry-run").partition(start)[1:] == listed.partition(start)[1:]
    assert changes(part) == changed
    for other in others:
        ec2.delete_vpc(VpcId=other)


def without(exported: str, gone: Collection[str]) -> dict[str, Any]:
    """The state without these resources, as if it came from an old copy."""
    deployment: dict[str, Any] = json.loads(exported)["deployment"]
    kept = [each for each in deployment["resources"] if each["urn"] not in gone]
    for each in kept:
        each["dependencies"] = [urn for urn in each.get("dependencies") or [] if urn not in gone]
        each.pop("propertyDependencies", None)
    return {**deployment, "resources": kept}


def write_state(part: AwsPart, deployment: Mapping[str, Any]) -> None:
    """`pulumi stack import` would drop unfinished operations."""
    (file,) = part.engine.state.glob(".pulumi/stacks/*/dev.json")
    written = json.loads(file.read_text())
    written["checkpoint"]["latest"] = deployment
    file.write_text(json.dumps(written))
