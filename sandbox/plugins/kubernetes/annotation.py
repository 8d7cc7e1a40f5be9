"""The annotations that control how the provider treats an object."""

from __future__ import annotations

from tools.kubernetes_client import Object

AUTONAMED = "pulumi.com/autonamed"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
FIELD_MANAGER = "pulumi.com/patchFieldManager"
PATCH_FORCE = "pulumi.com/patchForce"
REPLACE_UNREADY = "pulumi.com/replaceUnready"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT = "pulumi.com/timeoutSeconds"
WAIT_FOR = "pulumi.com/waitFor"


def get(obj: Object, name: str) -> str:
    """The annotation's value; empty if it is missing or not known yet."""
    metadata = obj.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, dict) else None
    value = given.get(name) if isinstance(given, dict) else None
    return value if isinstance(value, str) else ""


def is_true(obj: Object, name: str) -> bool:
    return get(obj, name) == "true"
