"""EFS patches: delete a file system policy, and answer FileSystemNotFound for an unknown file system."""

from moto.efs.exceptions import FileSystemNotFound
from moto.efs.models import EFSBackend, FileSystem
from moto.efs.responses import TYPE_RESPONSE, EFSResponse

_describe = EFSBackend.describe_file_system_policy


def _find(backend: EFSBackend, file_system_id: str) -> FileSystem:
    if file_system_id not in backend.file_systems_by_id:
        raise FileSystemNotFound(file_system_id)
    return backend.file_systems_by_id[file_system_id]


def _describe_file_system_policy(self: EFSBackend, file_system_id: str) -> str:
    _find(self, file_system_id)
    return _describe(self, file_system_id)


def _delete_file_system_policy(self: EFSResponse) -> TYPE_RESPONSE:
    _find(self.efs_backend, self._get_param("FileSystemId")).file_system_policy = None
    return "{}", {"Content-Type": "application/json"}


def apply() -> None:
    EFSBackend.describe_file_system_policy = _describe_file_system_policy  # type: ignore[method-assign]
    EFSResponse.delete_file_system_policy = _delete_file_system_policy  # type: ignore[attr-defined]
