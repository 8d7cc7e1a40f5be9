"""EFS patches: delete a file system policy, change a backup policy, and answer FileSystemNotFound when it is right.

A file system also needs a key that it can use.
"""

import json
from typing import Any

from moto.efs.exceptions import BadRequest, FileSystemNotFound
from moto.efs.models import EFSBackend, FileSystem
from moto.efs.responses import TYPE_RESPONSE, EFSResponse

from sandbox.cloud.patches import kms

_create = EFSBackend.create_file_system
_describe = EFSBackend.describe_file_system_policy
_describe_backup = EFSBackend.describe_backup_policy


def _find(backend: EFSBackend, file_system_id: str) -> FileSystem:
    if file_system_id not in backend.file_systems_by_id:
        raise FileSystemNotFound(file_system_id)
    return backend.file_systems_by_id[file_system_id]


def _create_file_system(self: EFSBackend, creation_token: str, **given: Any) -> FileSystem:
    key = given["kms_key_id"]
    if key and (why := kms.why_unusable(self.account_id, self.region_name, key)):
        raise BadRequest(why)
    return _create(self, creation_token, **given)


def _describe_file_system_policy(self: EFSBackend, file_system_id: str) -> str:
    _find(self, file_system_id)
    return _describe(self, file_system_id)


def _delete_file_system_policy(self: EFSResponse) -> TYPE_RESPONSE:
    _find(self.efs_backend, self._get_param("FileSystemId")).file_system_policy = None
    return "{}", {"Content-Type": "application/json"}


def _describe_backup_policy(self: EFSBackend, file_system_id: str) -> dict[str, str]:
    system = _find(self, file_system_id)
    # After the first change, EFS answers DISABLED instead of PolicyNotFound.
    changed: dict[str, str] | None = getattr(system, "changed_backup_policy", None)
    return changed or _describe_backup(self, file_system_id)


def _put_backup_policy(self: EFSResponse) -> TYPE_RESPONSE:
    """EFS answers ENABLING and DISABLING for a moment; here the change is complete at once."""
    wanted = self._get_param("BackupPolicy") or {}
    if wanted.get("Status") not in ("ENABLED", "DISABLED"):
        raise BadRequest("the status of a backup policy is ENABLED or DISABLED")
    system = _find(self.efs_backend, self._get_param("FileSystemId"))
    system.changed_backup_policy = {"Status": wanted["Status"]}  # type: ignore[attr-defined]
    return json.dumps({"BackupPolicy": wanted}), {"Content-Type": "application/json"}


def apply() -> None:
    EFSBackend.create_file_system = _create_file_system  # type: ignore[assignment,method-assign]
    EFSBackend.describe_backup_policy = _describe_backup_policy  # type: ignore[method-assign]
    EFSResponse.put_backup_policy = _put_backup_policy  # type: ignore[attr-defined]
    EFSBackend.describe_file_system_policy = _describe_file_system_policy  # type: ignore[method-assign]
    EFSResponse.delete_file_system_policy = _delete_file_system_policy  # type: ignore[attr-defined]
