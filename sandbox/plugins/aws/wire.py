"""Property values as the engine sends them, to and from plain Python."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2

from sandbox.plugins.aws.cloud import StandInError
from sandbox.plugins.aws.props import UNKNOWN, State, Unknown

# The engine's own markers, part of its wire protocol.
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"
_OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"


def read(struct: struct_pb2.Struct) -> State:
    return {name: _read(value) for name, value in struct.fields.items()}


def _read(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        signature = value.struct_value.fields.get(_SIGNATURE)
        if signature is None:
            return read(value.struct_value)
        if signature.string_value not in (_SECRET, _OUTPUT):
            raise StandInError("assets, archives and resource references are not known to the stand-in")
        held = value.struct_value.fields.get("value")
        return UNKNOWN if held is None else _read(held)
    if kind == "list_value":
        return [_read(each) for each in value.list_value.values]
    if kind == "string_value":
        return UNKNOWN if value.string_value == _UNKNOWN else value.string_value
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    return value.bool_value if kind == "bool_value" else None


def write(state: State) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update({name: _written(value) for name, value in state.items()})
    return struct


def _written(value: Any) -> Any:
    if isinstance(value, Unknown):
        return _UNKNOWN
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(each) for each in value]
    return value
