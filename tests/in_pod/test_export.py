"""export.sh with the real aws command against moto's S3; and with an aws command that harms what it copies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.in_pod.training_run import TRAINER


@dataclass
class Export:
    """One bucket, one training output, and the environment of the export Job."""

    output: Path
    environment: dict[str, str]

    def run(self) -> subprocess.CompletedProcess[str]:
        """The export Job's container."""
        return subprocess.run(
            ["bash", TRAINER / "export.sh"], env=self.environment, capture_output=True, text=True, timeout=120
        )

    def objects(self) -> str:
        """What the bucket holds, as `aws s3 ls` lists it."""
        command = ["aws", "s3", "ls", "--recursive", "s3://bucket"]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def harm(self, folder: Path, copy_script: str) -> None:
        """Put an aws command first on PATH that does this after every copy."""
        folder.mkdir()
        (folder / "aws").write_text(f'#!/bin/bash\nPATH={self.environment["PATH"]}\naws "$@"\n{copy_script}\n')
        (folder / "aws").chmod(0o755)
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment['PATH']}"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 of moto's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def export(s3: str, tmp_path: Path) -> Export:
    """Two complete passes, one that is half written, and logs."""
    output = tmp_path / "job" / "output"
    for number in (0, 1, 2):
        folder = output / f"pass-{number:05d}"
        folder.mkdir(parents=True)
        (folder / "model.pdparams").write_bytes(os.urandom(1000 + number))
        if number < 2:
            (folder / "done").write_text("{}")
    (output / "node_0").mkdir()
    (output / "node_0" / "train.log").write_text("pass 1/2: loss 0.1\n")
    (output / ".pass-00003").mkdir()
    (output / ".pass-00003" / "model.pdparams").write_text("half")
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-west-2",
        "AWS_DEFAULT_REGION": "us-west-2",
        "JOB_NAME": "job",
        "OUTPUT_DIR": str(output),
        "DONE_FILE": "done",
        "DESTINATION": "s3://bucket/job/output/",
        "TMPDIR": str(tmp_path),
    }
    subprocess.run(["aws", "s3", "rb", "--force", "s3://bucket"], env=environment, capture_output=True)
    subprocess.run(["aws", "s3", "mb", "s3://bucket"], env=environment, check=True, capture_output=True)
    return Export(output, environment)


def test_complete_passes_and_logs_arrive_and_the_newest_is_named(export: Export) -> None:
    result = export.run()
    assert result.returncode == 0, result.stderr
    listed = {line.split()[3]: int(line.split()[2]) for line in export.objects().splitlines()}
    assert listed == {
        "job/output/pass-00000/done": 2,
        "job/output/pass-00000/model.pdparams": 1000,
        "job/output/pass-00001/done": 2,
        "job/output/pass-00001/model.pdparams": 1001,
        "job/output/node_0/train.log": 19,
    }
    assert result.stdout.splitlines()[-1] == "export.sh: the newest pass is s3://bucket/job/output/pass-00001"
    assert export.run().returncode == 0, "a second run does no harm"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ('for f in "${@: -1}"/model.pdparams; do [ -f $f ] && printf X | dd of=$f conv=notrunc; done', "the checksum"),
        ('for f in "${@: -1}"/model.pdparams; do [ -f $f ] && truncate -s 7 $f; done', "the 1000 bytes"),
        ('[[ ${@: -1} == s3://*/pass-00000 ]] && aws s3 rm "${@: -1}/model.pdparams"', "is missing after the copy"),
    ],
)
def test_a_file_that_is_not_the_same_in_s3_fails_the_export(
    export: Export, tmp_path: Path, damage: str, message: str
) -> None:
    export.harm(tmp_path / "harm", f"{damage} >&2 2>/dev/null; true")
    result = export.run()
    assert result.returncode == 1
    assert "export.sh: s3://bucket/job/output/pass-00000/model.pdparams" in result.stderr
    assert message in result.stderr
    assert "newest pass" not in result.stdout


def test_a_bucket_that_is_not_there_fails_the_export(export: Export) -> None:
    export.environment["DESTINATION"] = "s3://nobody/job/output/"
    result = export.run()
    assert result.returncode == 1
    assert "export.sh: pass-00000 cannot be copied to s3://nobody/job/output/pass-00000" in result.stderr


def test_no_complete_pass_is_an_error(export: Export) -> None:
    for done in export.output.glob("*/done"):
        done.unlink()
    result = export.run()
    assert result.returncode == 1
    assert "has no complete pass: there is nothing to export" in result.stderr


@pytest.mark.parametrize(("value", "message"), [("", "DESTINATION is not set"), ("bucket", "it must be s3://bucket")])
def test_a_wrong_destination_is_named(export: Export, value: str, message: str) -> None:
    export.environment["DESTINATION"] = value
    result = export.run()
    assert result.returncode == 1
    assert message in result.stderr
