"""What the tests of the pods' scripts share."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import kubernetes_api
import pytest

from tests.in_pod.api import FakeApi, make_certificate
from tests.in_pod.training_run import STUB, TrainingRun


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder)
    return folder


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@dataclass
class Bucket:
    """An empty bucket that keeps old versions, as infra/bucket.py creates it."""

    client: Any
    environment: dict[str, str]

    def objects(self) -> dict[str, bytes]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: self.client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}

    def versions(self, key: str) -> list[bytes]:
        """The content of each version of an object, the newest first."""
        found = self.client.list_object_versions(Bucket="bucket", Prefix=key).get("Versions", [])
        return [
            self.client.get_object(Bucket="bucket", Key=key, VersionId=entry["VersionId"])["Body"].read()
            for entry in found
            if entry["Key"] == key
        ]


@pytest.fixture
def bucket(s3: str, tmp_path: Path) -> Bucket:
    client = boto3.client(
        "s3", endpoint_url=s3, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    with contextlib.suppress(client.exceptions.NoSuchBucket):
        found = client.list_object_versions(Bucket="bucket")
        for entry in found.get("Versions", []) + found.get("DeleteMarkers", []):
            client.delete_object(Bucket="bucket", Key=entry["Key"], VersionId=entry["VersionId"])
    client.create_bucket(Bucket="bucket")
    client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TMPDIR": str(tmp_path),
    }
    return Bucket(client, environment)


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
