"""Check the program's properties against the OpenAPI schema of the cluster."""

from __future__ import annotations

from typing import Any

from sandbox.plugins.kubernetes.diff import Path
from sandbox.plugins.wire import Unknown
from tools.kubernetes_client import Kind, Object

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def misfits(schemas: Object, kind: Kind, inputs: Object) -> list[tuple[Path, str]]:
    """The properties that the schema of the kind does not allow, as (path, reason)."""
    group, _, version = kind.api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind.kind}
    for schema in schemas.values():
        if wanted in schema.get("x-kubernetes-group-version-kind", []):
            return _misfits(schemas, schema, inputs, ())
    return [((), f"the cluster has no schema for {kind.api_version} {kind.kind}")]


def _misfits(schemas: Object, schema: Object, value: Any, path: Path) -> list[tuple[Path, str]]:
    schema = _resolve(schemas, schema)
    wanted = _TYPES.get(schema.get("type", ""))
    if isinstance(value, Unknown):
        return []
    if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
        return [(path, f"must be {schema['type']}, is {value!r}")]
    options = schema.get("oneOf", [])
    if options and all(_misfits(schemas, option, value, path) for option in options):
        return [(path, f"must be one of {', '.join(str(option.get('type')) for option in options)}, is {value!r}")]
    if isinstance(value, list) and "items" in schema:
        return [bad for at, item in enumerate(value) for bad in _misfits(schemas, schema["items"], item, (*path, at))]
    if not isinstance(value, dict):
        return []
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    found = []
    for key, item in value.items():
        if properties and key in properties:
            found += _misfits(schemas, properties[key], item, (*path, key))
        elif isinstance(others, dict):
            found += _misfits(schemas, others, item, (*path, key))
        elif properties:
            found.append(((*path, key), "is not a property in the schema of the cluster"))
    return found


def _resolve(schemas: Object, schema: Object) -> Object:
    """Follow $ref, which the API server wraps in an allOf of one."""
    while True:
        parts = schema.get("allOf", [])
        reference = schema.get("$ref") or (parts[0].get("$ref") if len(parts) == 1 else None)
        if not reference:
            return schema
        schema = schemas[reference.rsplit("/", 1)[1]]
