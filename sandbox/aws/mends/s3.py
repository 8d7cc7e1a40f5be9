"""A bucket that refuses plain HTTP answers on the loopback, where nothing can listen in; moto heeds no such condition."""

from typing import Any

from moto.iam.access_control import IAMPolicyStatement, PermissionResult

_is_action_permitted = IAMPolicyStatement.is_action_permitted


def _heeding_transport(self: IAMPolicyStatement, *arguments: Any) -> PermissionResult:
    condition = self._statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    if str(condition).lower() == "false":
        return PermissionResult.NEUTRAL
    return _is_action_permitted(self, *arguments)


def apply() -> None:
    IAMPolicyStatement.is_action_permitted = _heeding_transport  # type: ignore[method-assign]
