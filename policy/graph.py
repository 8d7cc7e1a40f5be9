"""A stack as the rules see it: plain resources, the same from the engine and from the unit tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Unknown:
    """A value that nobody knows before the resource that gives it is made."""


@dataclass(frozen=True)
class Resource:
    """`refs` names, by property, the URNs of the resources that its value is made from: known before the value is."""

    urn: str
    type: str
    name: str
    inputs: Mapping[str, Any]
    refs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    protect: bool = False
    provider: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stack(self) -> str:
        return self.urn.split(":")[2]


@dataclass(frozen=True)
class Stack:
    resources: Sequence[Resource]

    def of(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.type == kind]

    def refs(self, kind: str, name: str) -> frozenset[str]:
        """The URNs that this property is made from, in any resource of the type."""
        return frozenset().union(*(resource.refs.get(name, ()) for resource in self.of(kind)))


def at(value: Any, path: str) -> Any:
    """What lies at a dotted path; None where nothing does, and Unknown below what is not known yet."""
    for key in path.split("."):
        if isinstance(value, Unknown):
            return value
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def members(value: Any, path: str) -> list[Any]:
    """The members of the list at a dotted path; none where there is no list, or it is not known yet."""
    found = at(value, path)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []
