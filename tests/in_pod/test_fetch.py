"""fetch.sh with the real aws command and an emulated S3."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import contract
import prepare
import pytest

from tests.in_pod.conftest import Bucket
from tests.in_pod.training_run import TRAINER


def environment(bucket: Bucket, out: Path, source: str) -> dict[str, str]:
    return {
        **bucket.environment,
        "FETCH_ADDRESS": source,
        "FETCH_PREFIX": f"{out}/{contract.FETCHED}",
        "POD_UID": "some-pod",
    }


def put(bucket: Bucket, objects: dict[str, bytes]) -> None:
    for key, content in objects.items():
        bucket.client.put_object(Bucket="bucket", Key=key, Body=content)


def fetch(bucket: Bucket, out: Path, source: str) -> subprocess.CompletedProcess[str]:
    recursive = ["--recursive"] if source.endswith("/") else []
    return subprocess.run(
        ["bash", TRAINER / "fetch.sh", *recursive], env=environment(bucket, out, source), capture_output=True, text=True
    )


def objects(out: Path, source: str) -> list[tuple[str, bytes]]:
    """What prepare.py finds."""
    found = prepare.fetched_objects(contract.fetched_folder(out, "some-pod"), source)
    return [(name, path.read_bytes()) for name, path in found]


def test_one_object_is_copied(bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, {"folder/data.tar": b"1\n", "folder/data.tar.old": b"2\n"})
    assert fetch(bucket, tmp_path, "s3://bucket/folder/data.tar").returncode == 0
    source = "s3://bucket/folder/data.tar"
    assert objects(tmp_path, source) == [(source, b"1\n")]


def test_all_objects_of_a_folder_are_copied(bucket: Bucket, tmp_path: Path) -> None:
    content = {f"folder/{name}": name.encode() for name in ("b", "a/2", "a/1", "a b", ".hidden")}
    put(bucket, {**content, "folder/": b"", "folder-2/x": b"x", "y": b"y"})
    assert fetch(bucket, tmp_path, "s3://bucket/folder/").returncode == 0
    found = objects(tmp_path, "s3://bucket/folder/")
    assert found == [(f"s3://bucket/{key}", value) for key, value in sorted(content.items())]


@pytest.mark.parametrize("source", ["s3://bucket/missing", "s3://nobody/folder/"])
def test_a_source_that_does_not_exist_is_an_error(bucket: Bucket, tmp_path: Path, source: str) -> None:
    result = fetch(bucket, tmp_path, source)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"fetch.sh: {source} cannot be copied: the lines above show the reason"
    assert not (contract.fetched_folder(tmp_path, "some-pod") / contract.FETCH_DONE).exists()


def slow_aws(folder: Path, script: str) -> str:
    """A PATH with an aws command that runs this script."""
    folder.mkdir()
    (folder / "aws").write_text(f"#!/bin/bash\n{script}\n")
    (folder / "aws").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_a_copy_that_another_data_job_deleted_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    """aws creates missing folders again, so without a check a part of the objects would look like all."""
    folder = contract.fetched_folder(tmp_path, "some-pod")
    script = f"rm -rf {folder}; mkdir -p {folder}/objects; echo 1 >{folder}/objects/part"
    bucket.environment["PATH"] = slow_aws(tmp_path / "bin", script)
    result = fetch(bucket, tmp_path, "s3://bucket/folder/")
    assert result.returncode == 1
    assert f"fetch.sh: another data Job deleted {folder}" in result.stderr


def test_sigterm_ends_the_copy_at_once(bucket: Bucket, tmp_path: Path) -> None:
    bucket.environment["PATH"] = slow_aws(tmp_path / "bin", f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    process = subprocess.Popen(
        ["bash", TRAINER / "fetch.sh"],
        env=environment(bucket, tmp_path, "s3://bucket/folder/"),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[1] == "fetch.sh: stopped by SIGTERM\n"
    assert process.returncode == 1
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
