"""The key of a log group can change."""

import json

from moto.logs.exceptions import ResourceNotFoundException
from moto.logs.responses import LogsResponse


def _set_key(self: LogsResponse) -> str:
    groups = self.logs_backend.groups
    name = self._get_param("logGroupName")
    if name not in groups:
        raise ResourceNotFoundException()
    groups[name].kms_key_id = self._get_param("kmsKeyId")
    return json.dumps({})


def apply() -> None:
    LogsResponse.associate_kms_key = _set_key  # type: ignore[attr-defined]
    LogsResponse.disassociate_kms_key = _set_key  # type: ignore[attr-defined]
