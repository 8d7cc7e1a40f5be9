"""What a row of the table is; the rows themselves stand in one file a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.plugins.aws.cloud import Cloud, StandInError
from sandbox.plugins.aws.props import COMPUTED, REPLACES, Misuse, Prop, State, mapping, text

TAGS = {"tags": mapping()}
REGION = {"region": text(REPLACES | COMPUTED)}


class Update(Protocol):
    def __call__(self, cloud: Cloud, identity: str, have: State, want: State, changed: frozenset[str], /) -> None: ...


@dataclass(frozen=True)
class Autoname:
    """How a physical name is made when the program gives none: the logical name and seven hexadecimal digits."""

    property: str = "name"
    limit: int = 255
    prefix: str = ""
    lower: bool = False


@dataclass(frozen=True)
class Row:
    """One resource type: what it accepts and gives, and how it is made, read, changed and deleted."""

    token: str
    inputs: Mapping[str, Prop]
    outputs: Sequence[str]
    create: Callable[[Cloud, State], str]
    # `before` is the last known state: it holds what AWS cannot tell.
    read: Callable[[Cloud, str, State], State]
    delete: Callable[[Cloud, str, State], None]
    update: Update | None = None
    finish: Callable[[Cloud, str], None] | None = None  # a step of the creation after the thing is there
    autoname: Autoname | None = None
    settled: Callable[[State], bool] = lambda answer: True
    check: Callable[[State], list[Misuse]] = lambda given: []
    forces: Callable[[State, State], list[str]] = lambda state, want: []  # replacements that depend on the values
    withheld: Sequence[str] = ()  # outputs that the SDK promises and the stand-in does not have
    renewed: Sequence[str] = ()  # outputs that an update gives a new value
    delete_first: bool = False  # two cannot be there at once, so a replacement deletes the old one first
    known_as: Callable[[Cloud, State], str] | None = None  # its id, where an import names it otherwise
    vanishes: bool = True  # False: AWS keeps it, switched off, so that it cannot be seen gone
    seconds: float = 600  # how long to wait, when the program does not say


def exactly_one(*names: str) -> Callable[[State], list[Misuse]]:
    def check(given: State) -> list[Misuse]:
        found = [name for name in names if given.get(name) is not None]
        return (
            [] if len(found) == 1 else [Misuse(names[0], f"give exactly one of {', '.join(names)}, not {len(found)}")]
        )

    return check


def at_most_one(*names: str) -> Callable[[State], list[Misuse]]:
    def check(given: State) -> list[Misuse]:
        found = [name for name in names if given.get(name) is not None]
        return [] if len(found) < 2 else [Misuse(found[1], f"conflicts with {found[0]}: give one of them")]

    return check


def reaches(name: str, good: str, *bad: str) -> Callable[[State], bool]:
    """Ready once the status that AWS answers is `good`; never again once it is one of `bad`."""

    def settled(answer: State) -> bool:
        status = answer.get(name)
        if status in bad:
            raise StandInError(f"AWS reports {name} {status}")
        return bool(status == good)

    return settled
