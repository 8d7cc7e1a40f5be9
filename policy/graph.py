"""A stack as the rules see it. The engine and the unit tests build the same plain resources."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Unknown:
    """A value that is only known after another resource is created."""


@dataclass(frozen=True)
class Resource:
    """`refs` lists for each property the URNs that its value depends on. They are known before the value."""

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

    @property
    def project(self) -> str:
        return self.urn.split("::")[1]

    def problem(self, path: str, why: str, instead: str) -> str:
        """The message for one violation: what is wrong, and what to write."""
        return f"{self.name}: {path} {why}. {instead}."


@dataclass(frozen=True)
class Stack:
    resources: Sequence[Resource]

    def of(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.type == kind]

    def refs(self, kind: str, name: str) -> frozenset[str]:
        """The URNs that this property depends on, in all resources of the type."""
        return frozenset().union(*(resource.refs.get(name, ()) for resource in self.of(kind)))


def at(value: Any, path: str) -> Any:
    """The value at a dotted path. None if there is none, Unknown if it is not known yet."""
    for key in path.split("."):
        if isinstance(value, Unknown):
            return value
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def members(value: Any, path: str) -> list[Any]:
    """The members of the list at a dotted path. Empty if there is no list or it is not known yet."""
    found = at(value, path)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []


def every(value: Any, path: str) -> list[Any]:
    """The values at a dotted path in each member of the lists on the way. None stands for a missing value."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [found for member in value for found in every(member, path)]
    if not path or isinstance(value, Unknown):
        return [value]
    key, _, rest = path.partition(".")
    return every(value.get(key) if isinstance(value, Mapping) else None, rest)


def nested(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The value and everything inside it, with paths."""
    yield path, value
    if isinstance(value, Mapping):
        children = [(f"{path}.{key}" if path else str(key), child) for key, child in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        children = [(path, child) for child in value]
    else:
        return
    for where, child in children:
        yield from nested(child, where)
