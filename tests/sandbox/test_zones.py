"""A running stack keeps its zones, whatever zones a new stack would get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.inventory import inventory
from tests.sandbox.test_lifecycle import clients, succeed
from tests.unit.program import config_of

OURS = "paddle-on-aws:"
# A new stack would get the zones a and b. In the emulated AWS, zone d does not offer m4.large.
ZONES = ["us-west-2d", "us-west-2b"]


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsPart]:
    with aws_part(tmp_path_factory.mktemp("zones"), "dev") as made:
        made.set({**config_of("dev"), f"{OURS}availabilityZones": ZONES})
        succeed(made, "up", "--yes", "--skip-preview", *AWS_PART)
        yield made


def zones(part: AwsPart) -> list[str]:
    subnets = clients(part, "us-west-2")("ec2").describe_subnets(Filters=[{"Name": "tag:stack", "Values": ["dev"]}])
    return sorted(each["AvailabilityZone"] for each in subnets["Subnets"])


def test_a_stack_that_names_no_zones_keeps_those_that_it_has(part: AwsPart) -> None:
    part.set(config_of("dev"))
    succeed(part, "preview", "--expect-no-changes", *AWS_PART)
    part.set({**config_of("dev"), f"{OURS}workers": {"instanceTypes": ["m5.large"]}})
    succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
    # A NAT gateway is in the zone of the workers, not in the one that a new stack would use.
    part.set({**config_of("dev"), f"{OURS}natGateways": "perZone"})
    succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
    assert zones(part) == ["us-west-2b", "us-west-2d", "us-west-2d"]


def test_instance_types_that_the_zone_does_not_offer_are_refused_before_the_first_change(part: AwsPart) -> None:
    before = inventory(clients(part, "us-west-2"))
    part.set({**config_of("dev"), f"{OURS}workers": {"instanceTypes": ["m4.large"]}})
    refused = part.pulumi("up", "--yes", "--skip-preview", *AWS_PART)
    assert refused.returncode != 0
    assert "us-west-2d, a zone of this stack, does not offer: m4.large" in " ".join(refused.stdout.split())
    assert inventory(clients(part, "us-west-2")) == before


def test_a_new_stack_chooses_again(part: AwsPart) -> None:
    succeed(part, "destroy", "--yes", "--skip-preview")
    part.set({**config_of("dev"), f"{OURS}workers": {"instanceTypes": ["m4.large"]}})
    shown = succeed(part, "preview", "--diff", *AWS_PART)
    assert "us-west-2d" not in shown
    assert "us-west-2a" in shown
