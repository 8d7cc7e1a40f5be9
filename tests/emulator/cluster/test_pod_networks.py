"""Every cluster on a machine has its own pod network."""

from __future__ import annotations

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


def test_without_a_free_network_the_error_says_what_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(pod_networks.FIRST, pod_networks.LAST + 1):
        pod_networks.claim(folder(tmp_path, str(number)))
    with pytest.raises(SandboxError, match="make sandbox-down"):
        pod_networks.claim(folder(tmp_path, "one-more"))
