"""The key of a log group can change. CloudWatch Logs must be able to use it, and its key policy must allow that."""

import json

from moto.logs.exceptions import InvalidParameterException, ResourceNotFoundException
from moto.logs.models import LogsBackend
from moto.logs.responses import LogsResponse

from sandbox.cloud.patches import kms

_create = LogsResponse.create_log_group


def _check_key(backend: LogsBackend, group: str, name: str) -> None:
    account, region, partition = backend.account_id, backend.region_name, backend.partition
    if kms.why_unusable(account, region, name):
        raise InvalidParameterException("The specified KMS key does not exist or is disabled.")
    key = kms.find_key(account, region, name)
    service = f"logs.{region}.amazonaws.com" + (".cn" if partition == "aws-cn" else "")
    arn = f"arn:{partition}:logs:{region}:{account}:log-group:{group}"
    context = {"kms:EncryptionContext:aws:logs:arn": arn}
    for action in ("kms:Encrypt", "kms:GenerateDataKey"):
        if key and not kms.allows(key.policy, action, (service,), context, "Service"):
            raise InvalidParameterException(f"The specified KMS key is not allowed to be used with Arn '{arn}'")


def _create_log_group(self: LogsResponse) -> str:
    if key := self._get_param("kmsKeyId"):
        _check_key(self.logs_backend, self._get_param("logGroupName"), key)
    return _create(self)


def _set_key(self: LogsResponse) -> str:
    groups = self.logs_backend.groups
    name, key = self._get_param("logGroupName"), self._get_param("kmsKeyId")
    if name not in groups:
        raise ResourceNotFoundException()
    if key:
        _check_key(self.logs_backend, name, key)
    groups[name].kms_key_id = key
    return json.dumps({})


def apply() -> None:
    LogsResponse.create_log_group = _create_log_group  # type: ignore[method-assign]
    LogsResponse.associate_kms_key = _set_key  # type: ignore[attr-defined]
    LogsResponse.disassociate_kms_key = _set_key  # type: ignore[attr-defined]
