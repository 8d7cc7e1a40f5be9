"""What the tests of the pods' scripts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kubernetes_api
import pytest

from tests.in_pod.api import FakeApi, make_certificate
from tests.in_pod.training_run import STUB, TrainingRun


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and a server certificate for this run of the tests."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder)
    return folder


@pytest.fixture
def account(tmp_path: Path, certificates: Path) -> Path:
    """The service account's folder as Kubernetes mounts it."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "ca.crt").write_bytes((certificates / "ca.crt").read_bytes())
    (folder / "token").write_text("first")
    return folder


@pytest.fixture
def api(account: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """An API server, and this process set up as a pod of its cluster."""
    server = FakeApi(certificates)
    monkeypatch.setattr(kubernetes_api, "ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    yield server
    server.stop()


@pytest.fixture
def run(tmp_path: Path, api: FakeApi, account: Path) -> Iterator[TrainingRun]:
    """A training Job of three trainers with a stub for training."""
    made = TrainingRun(tmp_path, api, account, trainers=3)
    made.prepare(STUB / "train.py")
    yield made
    made.close()
