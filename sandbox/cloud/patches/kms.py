"""KMS patches: the rotation period and the default usage of a key. Other patches ask here who can use a key."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from moto.kms.models import Key, KmsBackend, kms_backends
from moto.kms.responses import KmsResponse

DEFAULT_DAYS = 365
_create = KmsBackend.create_key
_enable = KmsResponse.enable_key_rotation


def _create_key(self: KmsBackend, policy: str | None, key_usage: str | None, *given: Any, **more: Any) -> Key:
    return _create(self, policy, key_usage or "ENCRYPT_DECRYPT", *given, **more)


def _enable_key_rotation(self: KmsResponse) -> str:
    answer = _enable(self)
    key = self.kms_backend.describe_key(self._get_param("KeyId"))
    key.rotation_period = self._get_param("RotationPeriodInDays", DEFAULT_DAYS)  # type: ignore[attr-defined]
    return answer


def _get_key_rotation_status(self: KmsResponse) -> str:
    key_id = self._get_param("KeyId")
    self._validate_cmk_id(key_id)
    key = self.kms_backend.describe_key(key_id)
    answer: dict[str, bool | int] = {"KeyRotationEnabled": key.key_rotation_status}
    if key.key_rotation_status:
        answer["RotationPeriodInDays"] = getattr(key, "rotation_period", DEFAULT_DAYS)
    return json.dumps(answer)


def find_key(account: str, region: str, name: str) -> Key | None:
    """The key with this ARN or ID. None if it does not exist."""
    key_id = name.rpartition("/")[2]
    return kms_backends[account][region].keys.get(key_id)


def why_unusable(account: str, region: str, name: str) -> str:
    """Why no AWS service can encrypt with this key. Empty if they can, and for a key that AWS manages."""
    if "alias/aws/" in name:
        return ""
    key = find_key(account, region, name)
    if key is None:
        return f"Key '{name}' does not exist"
    if (key.key_usage, key.key_spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
        return f"Key '{name}' is not a symmetric encryption key"
    return "" if key.key_state == "Enabled" else f"Key '{name}' has the state {key.key_state}"


def allows(
    policy: str, action: str, principals: Collection[str], context: Mapping[str, str], kind: str = "AWS"
) -> bool:
    """Whether a key policy allows this action to one of these principals in this context. It ignores Deny."""
    return any(_allows(each, action, principals, context, kind) for each in json.loads(policy)["Statement"])


def _allows(
    statement: Mapping[str, Any], action: str, principals: Collection[str], context: Mapping[str, str], kind: str
) -> bool:
    principal = statement["Principal"]
    named = _listed(principal.get(kind, []) if isinstance(principal, Mapping) else principal)
    conditions = [pair for keys in statement.get("Condition", {}).values() for pair in keys.items()]
    return (
        statement["Effect"] == "Allow"
        and any(fnmatchcase(action, pattern) for pattern in _listed(statement["Action"]))
        and not set(principals).isdisjoint(named)
        and all(any(fnmatchcase(context.get(key, ""), each) for each in _listed(value)) for key, value in conditions)
    )


def _listed(value: Any) -> list[str]:
    return [str(value)] if isinstance(value, str | bool) else list(value)


def apply() -> None:
    KmsBackend.create_key = _create_key  # type: ignore[method-assign]
    KmsResponse.enable_key_rotation = _enable_key_rotation  # type: ignore[method-assign]
    KmsResponse.get_key_rotation_status = _get_key_rotation_status  # type: ignore[method-assign]
