"""What the unit tests share: the configurations that cover every shape of the graph, and a program with mocks."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from tests.unit.program import EVERYTHING, NAME, Graph, config_of, run, stack_files, with_workers

RunStack = Callable[..., Graph]
Shape = tuple[str, Mapping[str, Any]]

SHAPES: Mapping[str, Shape] = {
    **{stack: (stack, config_of(stack)) for stack in stack_files()},
    "two zones": ("dev", {**config_of("dev"), "aws:region": "us-west-1", "paddle-on-aws:natGateways": "perZone"}),
    "three node groups": ("dev", with_workers(config_of("dev"), 1000)),
    "everything": ("test", EVERYTHING),
}


@pytest.fixture(scope="session", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    """The name of a stack and its configuration."""
    return SHAPES[request.param]


@pytest.fixture(scope="session")
def graph_of_shape(shape: Shape) -> Graph:
    with pytest.MonkeyPatch.context() as patch:
        return run(patch, shape[1], shape[0])


@pytest.fixture(scope="session")
def shipped() -> Callable[[str], Graph]:
    """Stacks as their files describe them. The tests share these graphs, so they must not patch the program."""

    @cache
    def graph(stack: str) -> Graph:
        with pytest.MonkeyPatch.context() as patch:
            return run(patch, config_of(stack), stack)

    return graph


@pytest.fixture(scope="session")
def dev(shipped: Callable[[str], Graph]) -> Graph:
    return shipped("dev")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> RunStack:
    """Runs the stack dev with changed settings."""

    def start(changes: Mapping[str, Any] | None = None, stack: str = "dev", **how: Any) -> Graph:
        keyed = {key if key.startswith("aws:") else f"{NAME}:{key}": value for key, value in (changes or {}).items()}
        return run(monkeypatch, {**config_of(stack), **keyed}, stack, **how)

    return start
