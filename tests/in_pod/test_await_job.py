"""await_job.py as a process: ends with the training Job, and as it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.in_pod.api import FakeApi
from tests.in_pod.training_run import TRAINER

START = (
    "import sys, pathlib, kubernetes_api, await_job;"
    " kubernetes_api.ACCOUNT = pathlib.Path(sys.argv[1]); sys.exit(await_job.main())"
)


def job(**status: Any) -> dict[str, Any]:
    """The training Job."""
    return {"metadata": {"name": "train", "uid": "job-1"}, "status": status}


def condition(kind: str, reason: str, message: str) -> dict[str, str]:
    """A condition that holds."""
    return {"type": kind, "status": "True", "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        (condition("Complete", "CompletionsReached", ""), 0, "the training Job train is complete"),
        (
            condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
            1,
            "failed, so there is nothing to export: BackoffLimitExceeded: Job has reached the specified backoff limit",
        ),
    ],
)
def test_it_ends_with_the_job(api: FakeApi, account: Path, end: dict[str, str], status: int, text: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TRAINER), "JOB_NAME": "train", "JOB_NAMESPACE": "default"}
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(account)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    api.put(job(active=3))
    time.sleep(1)
    api.put(job(active=1, succeeded=2, conditions=[condition("SuccessCriteriaMet", "", "")]))
    time.sleep(1)
    assert process.poll() is None, "the Job still runs"
    api.put(job(succeeded=3, conditions=[end]))
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == status
    assert text in printed
    assert "waiting for the training Job train: 1 active, 2 succeeded" in printed
    assert api.requests[0]["fieldSelector"] == "metadata.name=train"
