"""await_job.py as a process: ends with the training Job, and writes how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import messages
import pytest
from checkpoints import Checkpoint

from tests.in_pod.api import FakeApi
from tests.in_pod.training_run import TRAINER

START = (
    "import sys, pathlib, kubernetes_api, await_job;"
    " kubernetes_api.ACCOUNT = pathlib.Path(sys.argv[1]); await_job.main()"
)


def job(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train", "uid": "job-1"}, "status": status}


def condition(kind: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


@dataclass
class Await:
    """await_job.py as a process, the output of the training, and the files that it writes."""

    output: Path
    files: Path
    process: subprocess.Popen[str]

    def read_until(self, text: str) -> None:
        """Read what it prints until a line contains the text."""
        assert self.process.stdout
        limit = threading.Timer(300, self.process.kill)
        limit.start()
        assert any(text in line for line in self.process.stdout), f"it ended without {text!r}"
        limit.cancel()

    def end(self) -> str:
        printed, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, printed
        return printed

    def written(self, name: str) -> str:
        return (self.files / name).read_text()


@pytest.fixture
def waiting(api: FakeApi, account: Path, tmp_path: Path) -> Iterator[Await]:
    output, files = tmp_path / "output", tmp_path / "files"
    output.mkdir()
    files.mkdir()
    environment = {
        **os.environ,
        # Each call on each path of the volume fails once.
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "unreliable"), str(TRAINER)]),
        "UNRELIABLE_VOLUME": str(output),
        "JOB_NAME": "train",
        "JOB_NAMESPACE": "default",
        "STACK": "dev",
        "AWS_REGION": "us-west-2",
        "OUTPUT_DIR": str(output),
        "DESTINATION": "s3://bucket/train/output/",
        **{f"{name.upper()}_FILE": str(files / name) for name in ("failure", "subject", "message")},
    }
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(account)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield Await(output, files, process)
    process.kill()
    process.wait()


def test_it_ends_with_the_job_and_describes_the_model(api: FakeApi, waiting: Await) -> None:
    api.put(job(active=3))
    waiting.read_until("waiting for the training Job train: 3 active, 0 succeeded")
    api.put(job(active=1, succeeded=2, conditions=[condition("SuccessCriteriaMet", "", "")]))
    waiting.read_until("waiting for the training Job train: 1 active, 2 succeeded")
    assert waiting.process.poll() is None, "the Job still runs"
    for number, loss in enumerate((0.5, 0.25)):
        folder = waiting.output / f"pass-0000{number}"
        folder.mkdir()
        (folder / "done").write_text(json.dumps({"pass": number, "loss": loss, "accuracy": 0.93}))
    api.put(job(succeeded=3, conditions=[condition("Complete", "CompletionsReached", "")]))
    printed = waiting.end()
    assert "the training Job train is complete" in printed
    assert api.requests[0]["fieldSelector"] == "metadata.name=train"
    assert waiting.written("subject") == "Model is ready: train"
    lines = waiting.written("message").splitlines()
    model = "s3://bucket/train/output/pass-00001/"
    assert {f"Model: {model}", "loss: 0.25", "accuracy: 0.93"} <= set(lines)
    assert f"aws s3 cp {model} ./model --recursive --region us-west-2" in lines
    assert "aws s3 cp s3://bucket/train/output/report.html . --region us-west-2" in lines
    assert not (waiting.files / "failure").exists()


def attempt(uid: str, result: str, reason: str) -> dict[str, Any]:
    return {"job": uid, "number": 1, "started": 1.0, "resume": "", "ended": 2.0, "reason": reason, "result": result}


OLD = attempt("job-0", "failed", "an old one")
LATE = "Job was active longer than specified deadline"
NO_ATTEMPT = (
    ". No attempt is recorded, so perhaps the pods could not start, for example because job.image does not contain"
    " the program in job.command."
    " To see why: kubectl --namespace default describe pods --selector job-name=train"
)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (
            [OLD, attempt("job-1", "failed", "trainer 2: ValueError: \x1b[31mbad")],
            "trainer 2: ValueError: \ufffd[31mbad",
        ),
        # The launcher did not give up: Kubernetes ended the Job, or the Job has another command.
        ([OLD, attempt("job-1", "", "a pod was lost")], f"DeadlineExceeded: {LATE}"),
        ([OLD], f"DeadlineExceeded: {LATE}{NO_ATTEMPT}"),
        ([], f"DeadlineExceeded: {LATE}{NO_ATTEMPT}"),
    ],
)
def test_the_reason_of_a_failure_is_the_launchers_or_that_of_kubernetes(
    api: FakeApi, waiting: Await, history: list[dict[str, Any]], reason: str
) -> None:
    (waiting.output / "attempts.json").write_text(json.dumps(history))
    ended = condition("Failed", "DeadlineExceeded", LATE)
    api.put(job(failed=1, conditions=[ended]))
    assert f"the training Job train failed: {reason}" in waiting.end()
    assert waiting.written("failure") == reason
    assert waiting.written("subject") == "Training failed: train"
    lines = waiting.written("message").splitlines()
    assert f"Reason: {reason}" in lines
    assert "To run this Job again: pulumi up --replace '**Job::train'" in lines


def test_sns_accepts_the_subject_of_the_longest_name() -> None:
    name = "a" * 61
    checkpoint = Checkpoint("pass-00000", 0, 0.0, {}, ())
    for message in (
        messages.ready(name, "dev", "us-west-2", "s3://bucket/", checkpoint),
        messages.failed(name, "dev", "us-west-2", "reason"),
    ):
        assert len(message.subject) <= 100
        assert message.subject.isascii()
