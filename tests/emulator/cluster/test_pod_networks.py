"""Every cluster on a machine has its own pod network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.cluster import pod_networks
from sandbox.errors import SandboxError


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def test_a_cluster_keeps_its_network_until_its_folder_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = folder(tmp_path, "first"), folder(tmp_path, "second")
    assert (pod_networks.claim(first), pod_networks.claim(second), pod_networks.claim(first)) == (64, 65, 64)
    first.rmdir()
    assert pod_networks.claim(folder(tmp_path, "third")) == 64


def test_a_network_is_in_use_if_its_folder_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    of_another_user = tmp_path / "other"
    assert pod_networks.claim(of_another_user) == 64
    stat = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == of_another_user:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    assert pod_networks.claim(tmp_path) == 65


def test_without_a_free_network_the_error_says_what_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(pod_networks.FIRST, pod_networks.LAST + 1):
        pod_networks.claim(folder(tmp_path, str(number)))
    with pytest.raises(SandboxError, match="make sandbox-down"):
        pod_networks.claim(folder(tmp_path, "one-more"))
