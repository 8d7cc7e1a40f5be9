"""KMS patch: the rotation period of a key."""

import json

from moto.kms.responses import KmsResponse

DEFAULT_DAYS = 365
_enable = KmsResponse.enable_key_rotation


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


def apply() -> None:
    KmsResponse.enable_key_rotation = _enable_key_rotation  # type: ignore[method-assign]
    KmsResponse.get_key_rotation_status = _get_key_rotation_status  # type: ignore[method-assign]
