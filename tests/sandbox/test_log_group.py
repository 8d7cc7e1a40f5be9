"""A log group that exists already stops `pulumi up` before the first resource. The command in the message adopts it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.inventory import Client, inventory
from tests.sandbox.test_lifecycle import clients, succeed
from tests.unit.program import config_of

GROUP = "/aws/eks/paddle-cluster/cluster"


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsPart]:
    with aws_part(tmp_path_factory.mktemp("logs"), "dev") as made:
        made.set({**config_of("dev"), "paddle-on-aws:controlPlaneLogs": ["audit"]})
        yield made


@pytest.fixture(scope="module")
def client(part: AwsPart) -> Client:
    return clients(part, "us-west-2")


def groups(client: Client) -> dict[str, int | None]:
    """The days that each log group keeps its logs."""
    listed = client("logs").describe_log_groups()["logGroups"]
    return {each["logGroupName"]: each.get("retentionInDays") for each in listed}


def test_an_existing_group_stops_up_and_the_import_in_the_message_adopts_it(part: AwsPart, client: Client) -> None:
    # As EKS creates it after a destroy: without a time limit.
    client("logs").create_log_group(logGroupName=GROUP)
    before = inventory(client)
    refused = part.pulumi("up", "--yes", *AWS_PART)
    assert refused.returncode != 0
    assert f"needs the log group {GROUP}, which exists and does not belong to this stack" in refused.stdout
    assert inventory(client) == before, "something was created"

    (command,) = set(re.findall(r"To keep its logs, run `pulumi ([^`]+)`", " ".join(refused.stdout.split())))
    succeed(part, *shlex.split(command), "--yes", "--skip-preview")
    succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
    succeed(part, "preview", "--expect-no-changes", *AWS_PART)
    assert groups(client) == {GROUP: 30}


def test_the_group_of_the_stack_itself_stops_nothing(part: AwsPart, client: Client) -> None:
    part.set(
        {
            **config_of("dev"),
            "paddle-on-aws:controlPlaneLogs": ["api", "audit"],
            "paddle-on-aws:workers": {"count": 4},
        }
    )
    succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)


def test_the_group_stays_after_destroy_and_is_found_again(part: AwsPart, client: Client) -> None:
    succeed(part, "destroy", "--yes", "--skip-preview")
    assert groups(client) == {GROUP: 30}
    refused = part.pulumi("preview", *AWS_PART)
    assert refused.returncode != 0
    assert f"pulumi import aws:cloudwatch/logGroup:LogGroup cluster-logs {GROUP}" in refused.stdout
