"""Pulumi's wire values as plain Python: dicts, lists, strings, numbers, plus Secret and UNKNOWN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

# How the engine marks a secret on the wire.
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"


class Unknown:
    """A value that is not known before something else has been made."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that the engine encrypts."""

    value: Any


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    return {key: _from_value(value) for key, value in struct.fields.items()}


def _from_value(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            fields = from_struct(value.struct_value)
            if _SIGNATURE not in fields:
                return fields
            if fields[_SIGNATURE] == _SECRET:
                return Secret(fields.get("value"))
            raise ValueError("assets, archives and resource references have no place in a Kubernetes object")
        case "list_value":
            return [_from_value(item) for item in value.list_value.values]
        case "string_value":
            return UNKNOWN if value.string_value == rpc.UNKNOWN else value.string_value
        case "number_value":
            # Kubernetes tells 3 from 3.0; the wire has doubles only.
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "bool_value":
            return value.bool_value
    return None


def to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields={key: _to_value(value) for key, value in values.items()})


def _to_value(value: Any) -> struct_pb2.Value:
    if isinstance(value, Secret):
        return _to_value({_SIGNATURE: _SECRET, "value": value.value})
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=to_struct(value))
    if isinstance(value, list):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_to_value(item) for item in value]))
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    return struct_pb2.Value(string_value=rpc.UNKNOWN if value is UNKNOWN else value)


def reveal(value: Any) -> Any:
    """The value without its Secret wrappings."""
    if isinstance(value, Secret):
        return reveal(value.value)
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [reveal(item) for item in value]
    return value


def has_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN


def has_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_secret(item) for item in value.values())
    if isinstance(value, list):
        return any(has_secret(item) for item in value)
    return isinstance(value, Secret)


def conceal(value: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The value with Secret wherever the inputs had one, and around a Secret object's data."""
    if value.get("kind") == "Secret":
        return {key: Secret(item) if key in ("data", "stringData") else item for key, item in value.items()}
    concealed = dict(value)
    for key, theirs in like.items():
        ours = concealed.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            concealed[key] = conceal(ours, theirs)
        elif ours is not None and has_secret(theirs):
            concealed[key] = Secret(ours)
    return concealed
