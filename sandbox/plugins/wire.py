"""Property values: from the engine's messages to plain Python and back, with the SDK's own PropertyValue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf import struct_pb2
from pulumi.output import UNKNOWN, Unknown
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc

from sandbox.plugins.servicer import ProviderError

__all__ = ["UNKNOWN", "Secret", "State", "Unknown", "Value", "has_unknown", "read", "reveal", "write"]


@dataclass(frozen=True)
class Secret:
    """A value that the engine encrypts."""

    value: Value


Value: TypeAlias = bool | int | float | str | Unknown | Secret | list["Value"] | dict[str, "Value"] | None
State: TypeAlias = dict[str, Value]


def read(struct: struct_pb2.Struct) -> State:
    return {name: _plain(value) for name, value in PropertyValue.unmarshal_map(struct).items()}


def _plain(given: PropertyValue) -> Value:
    if given.is_secret:
        return Secret(_plain(given.with_secret(False)))
    value = given.value
    if isinstance(value, str):
        return UNKNOWN if value == rpc.UNKNOWN else value
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_plain(each) for each in value if isinstance(each, PropertyValue)]
    if isinstance(value, float):
        # The message has only doubles, but the APIs distinguish 3 from 3.0.
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, bool):
        return value
    raise ProviderError("assets, archives and resource references are not supported by the emulated providers")


def write(state: Mapping[str, Value]) -> struct_pb2.Struct:
    return PropertyValue.marshal_map({name: _property(value) for name, value in state.items()})


def _property(value: Value) -> PropertyValue:
    if isinstance(value, Secret):
        return _property(value.value).with_secret(True)
    if isinstance(value, Unknown):
        return PropertyValue(rpc.UNKNOWN)  # the SDK cannot marshal its own Computed
    if isinstance(value, dict):
        return PropertyValue({name: _property(each) for name, each in value.items()})
    if isinstance(value, (list, tuple)):
        return PropertyValue([_property(each) for each in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)


def reveal(state: Mapping[str, Value]) -> State:
    """The state without its Secret wrappers."""
    return {name: _revealed(value) for name, value in state.items()}


def _revealed(value: Value) -> Value:
    if isinstance(value, Secret):
        return _revealed(value.value)
    if isinstance(value, dict):
        return reveal(value)
    return [_revealed(each) for each in value] if isinstance(value, list) else value


def has_unknown(value: Value) -> bool:
    return _contains(value, Unknown)


def has_secret(value: Value) -> bool:
    return _contains(value, Secret)


def _contains(value: Value, kind: type[Unknown] | type[Secret]) -> bool:
    if isinstance(value, dict):
        return any(_contains(each, kind) for each in value.values())
    if isinstance(value, list):
        return any(_contains(each, kind) for each in value)
    return isinstance(value, kind)
