"""The table of resource types: what a row contains. Each service has a file with its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from sandbox.plugins.aws.cloud import Cloud
from sandbox.plugins.aws.props import COMPUTED, REPLACES, Misuse, Prop, mapping, text
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State, Value

# Inputs or state of a resource in the code of its type: the types of its properties are checked before.
Checked: TypeAlias = dict[str, Any]

TAGS = {"tags": mapping()}
REGION = {"region": text(REPLACES | COMPUTED)}


class Update(Protocol):
    def __call__(
        self, cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str], /
    ) -> None: ...


@dataclass(frozen=True)
class Autoname:
    """How a missing physical name is generated: the logical name and seven hexadecimal digits."""

    property: str = "name"
    limit: int = 255
    prefix: str = ""
    lower: bool = False


@dataclass(frozen=True)
class Row:
    """One resource type: its inputs and outputs, and the AWS calls that create, read, update and delete it."""

    token: str
    inputs: Mapping[str, Prop]
    outputs: Sequence[str]
    create: Callable[[Cloud, Checked], str]
    # Its third argument is the last known state: AWS does not return every value.
    read: Callable[[Cloud, str, Checked], State]
    delete: Callable[[Cloud, str, Checked], None]
    update: Update | None = None
    finish: Callable[[Cloud, str], None] | None = None  # runs after the creation
    autoname: Autoname | None = None
    ready: Callable[[Checked], bool] = lambda answer: True
    check: Callable[[Checked], list[Misuse]] = lambda given: []
    forces: Callable[[Checked, Checked], list[str]] = (
        lambda state, want: []
    )  # properties whose new value forces a replacement
    # Outputs that AWS may leave out, with the value that the official provider shows then; the others become "".
    unset: Mapping[str, Value] = field(default_factory=dict)
    schema_version: int = 0  # of the official provider's schema, which upgrades a state without it
    withheld: Sequence[str] = ()  # outputs that the SDK declares and this provider does not return
    renewed: Sequence[str] = ()  # outputs that an update changes
    delete_first: bool = False  # a replacement deletes first: two cannot exist side by side
    known_as: Callable[[Cloud, Checked], str] | None = None  # its id, where the id for an import is a different one
    vanishes: bool = True  # False: AWS keeps it in a disabled state
    seconds: float = 600  # default timeout


def unset(texts: str = "", flags: str = "", numbers: str = "", lists: str = "") -> dict[str, Value]:
    """Outputs that AWS may leave out, by type; the names are separated by spaces."""
    empty: list[tuple[str, Value]] = [(texts, ""), (flags, False), (numbers, 0)]
    return {name: value for names, value in empty for name in names.split()} | {name: [] for name in lists.split()}


def tag_changes(have: Checked, want: Checked, changed: frozenset[str]) -> tuple[list[str], dict[str, str]]:
    """The keys of the tags to remove, and the tags to set."""
    if "tagsAll" not in changed:
        return [], {}
    return sorted(have.get("tagsAll", {}).keys() - want["tagsAll"].keys()), dict(want["tagsAll"])


def exactly_one(*names: str) -> Callable[[Checked], list[Misuse]]:
    def check(given: Checked) -> list[Misuse]:
        found = [name for name in names if given.get(name) is not None]
        return (
            [] if len(found) == 1 else [Misuse(names[0], f"give exactly one of {', '.join(names)}, not {len(found)}")]
        )

    return check


def at_most_one(*names: str) -> Callable[[Checked], list[Misuse]]:
    def check(given: Checked) -> list[Misuse]:
        found = [name for name in names if given.get(name) is not None]
        return [] if len(found) < 2 else [Misuse(found[1], f"conflicts with {found[0]}: give one of them")]

    return check


def status(name: str, good: str, *bad: str) -> Callable[[Checked], bool]:
    """Ready when this status in the answer of AWS is `good`; an error when it is one of `bad`."""

    def ready(answer: Checked) -> bool:
        if answer.get(name) in bad:
            raise ProviderError(f"AWS reports {name} {answer[name]}")
        return bool(answer.get(name) == good)

    return ready
