"""The table of resource types: what a row contains. Each service has a file with its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from sandbox.plugins.aws.cloud import Cloud
from sandbox.plugins.aws.props import Misuse, Prop, mapping
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State

# Inputs or state of a resource in the code of its type: the types of its properties are checked before.
Checked: TypeAlias = dict[str, Any]

TAGS = {"tags": mapping()}


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
    renewed: Sequence[str] = ()  # outputs that an update changes; its preview lists them as changes
    # Made with Terraform's plugin framework: found by the `id` among its outputs, not by the ID that the engine has.
    framework: bool = False
    delete_first: bool = False  # a replacement deletes first: two cannot exist side by side
    known_as: Callable[[Cloud, Checked], str] | None = None  # its id, where the id for an import is a different one
    vanishes: bool = True  # False: AWS keeps it in a disabled state
    seconds: float = 600  # default timeout


def created_by(put: Update, key: str) -> Callable[[Cloud, Checked], str]:
    """A part of another resource, whose ID is in the property `key`: the call that changes it also creates it."""

    def create(cloud: Cloud, want: Checked) -> str:
        put(cloud, want[key], {}, want, frozenset(want))
        return str(want[key])

    return create


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


def status(name: str, good: str, *bad: str) -> Callable[[Checked], bool]:
    """Ready when this status in the answer of AWS is `good`; an error when it is one of `bad`."""

    def ready(answer: Checked) -> bool:
        if answer.get(name) in bad:
            raise ProviderError(f"AWS reports {name} {answer[name]}")
        return bool(answer.get(name) == good)

    return ready
