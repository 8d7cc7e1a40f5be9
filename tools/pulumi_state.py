"""The state of a stack, as Pulumi stores and exports it: its resources, its outputs, and what Pulumi is doing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
# A mapping with this key is a secret.
SECRET_KEY = "4dabf18193072939515e22adb298388d"


Resource = Mapping[str, Any]
# `resources` in the order of their creation, and `pending_operations`, each with its `type` and its `resource`.
Deployment = Mapping[str, Any]


def resources(deployment: Deployment) -> list[Resource]:
    return deployment.get("resources") or []


def pending_operations(deployment: Deployment) -> list[Mapping[str, Any]]:
    return deployment.get("pending_operations") or []


def resource_count(deployment: Deployment) -> int:
    """The number of resources without components."""
    return sum(bool(each.get("custom")) for each in resources(deployment))


def stack_outputs(deployment: Deployment) -> Mapping[str, Any]:
    return next((each.get("outputs") or {} for each in resources(deployment) if each["type"] == STACK_TYPE), {})


def name_of(urn: str) -> str:
    return urn.rpartition("::")[2]


def revealed(value: Any) -> Any:
    """A value with its secrets, which are empty without `--show-secrets`."""
    return _replaced(value, lambda secret: json.loads(secret["plaintext"]) if "plaintext" in secret else "")


def without_secrets(value: Any) -> Any:
    """A value with "[secret]" instead of each secret, as `pulumi stack output` prints it."""
    return _replaced(value, lambda _: "[secret]")


def _replaced(value: Any, instead: Callable[[Mapping[str, Any]], Any]) -> Any:
    if isinstance(value, list):
        return [_replaced(each, instead) for each in value]
    if not isinstance(value, Mapping):
        return value
    return instead(value) if SECRET_KEY in value else {key: _replaced(each, instead) for key, each in value.items()}
