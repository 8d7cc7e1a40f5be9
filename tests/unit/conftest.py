"""The configurations that most tests run with: each stack file, two regions, and 1 to 1000 trainers."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.program import Graph, config_of, run, stack_files

REGIONS = ("us-west-2", "us-west-1")
TRAINERS = (1, 3, 16, 1000)
SHAPES = [*((stack, None, None) for stack in stack_files()), *itertools.product(stack_files(), REGIONS, TRAINERS)]

RunStack = Callable[..., Graph]


def shaped(stack: str, region: str | None, trainers: int | None) -> dict[str, Any]:
    """The configuration in a stack file, with another region and with as many workers as trainers."""
    config = config_of(stack)
    if region:
        config["aws:region"] = region
    if trainers:
        workers = config.get("paddle-on-aws:workers", {})
        config["paddle-on-aws:trainers"] = trainers
        config["paddle-on-aws:workers"] = {**workers, "count": trainers, "zones": "all"}
    return config


@pytest.fixture(params=SHAPES, ids=lambda shape: "-".join(str(part) for part in shape if part))
def shape(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param[0], shaped(*request.param)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> RunStack:
    """Runs the stack dev with changed settings."""

    def start(changes: Mapping[str, Any] | None = None, stack: str = "dev", **how: Any) -> Graph:
        keyed = {f"paddle-on-aws:{key}": value for key, value in (changes or {}).items()}
        return run(monkeypatch, {**config_of(stack), **keyed}, stack, **how)

    return start


@pytest.fixture
def running_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS already has the subnets of the stack."""
    monkeypatch.setattr("tests.unit.program.SUBNETS", {"10.0.0.0/19": "us-west-2a", "10.0.32.0/19": "us-west-2b"})
