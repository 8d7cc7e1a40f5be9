"""One training with Paddle survives many faults and exports a complete model."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import listening
from tests.sandbox.checkout import LIMIT_SECONDS, Checkout, eventually
from tools.kubernetes_client import POD, ApiError, Kind
from workloads.in_pod import contract

RECORDS, PASSES = 20_000, 5
# The training waits before each pass until the test allows it. So a fault hits the training at any speed.
CONTROLLED_TRAINING = """
import os, time
from pathlib import Path
import original

allowed = Path(os.environ["JOB_PATH"], os.environ["JOB_NAME"], "allowed-passes")
train_pass = original.train_pass

def wait_and_train(number, *arguments):
    while not allowed.exists() or int(allowed.read_text()) <= number:
        time.sleep(0.05)
    return train_pass(number, *arguments)

original.train_pass = wait_and_train
original.main()
"""
LAUNCHER, WORKER = f"{contract.SCRIPTS}/launch.py", "train.py"
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", False)
JOB = "paddle-cluster-job"
ATTEMPT = f"volumes/fs-*/{JOB}/{contract.LAUNCHERS}/{contract.ATTEMPT_FILE}"
OUTAGE_SECONDS = 20


@dataclass(frozen=True)
class Training:
    """A running training, observed from the machine."""

    checkout: Checkout
    up: subprocess.Popen[str]

    @property
    def volume(self) -> Path:
        """The folder of the Job on the volume."""
        (folder,) = self.workers.glob(f"volumes/fs-*/{JOB}")
        return folder

    @property
    def workers(self) -> Path:
        return self.checkout.sandbox / "stacks/local/workers"

    @property
    def attempt(self) -> dict[str, Any]:
        """The latest attempt that trainer 0 has decided; empty before the first."""
        written = [file.read_text() for file in self.workers.glob(ATTEMPT)]
        return dict(json.loads(written[0])) if written and written[0] else {}

    @property
    def checkpoints(self) -> dict[str, tuple[int, int]]:
        """Every checkpoint on the volume, with a value that changes if it is written again."""
        found = {}
        for folder in sorted(self.workers.glob(f"volumes/fs-*/{JOB}/output/pass-*")):
            status = (folder / "done").stat()
            found[folder.name] = (status.st_ino, status.st_mtime_ns)
        return found

    def log(self, uid: str) -> str:
        """The log of a trainer, which remains after its pod is deleted."""
        (log,) = self.workers.glob(f"logs/*_{uid}/trainer.log")
        return log.read_text(errors="replace")

    def kill_launcher(self, trainer: int) -> None:
        """Kill the launcher in this trainer's pod."""
        pod = f"POD_UID={self.attempt['members'][trainer]}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                if arguments[-2:-1] == [LAUNCHER.encode()] and pod in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        (pid,) = found
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def restart(self, because: str) -> Iterator[None]:
        """The body causes a fault. Then all trainers restart from the newest checkpoint and keep the older ones."""
        before = self.under_way()
        kept = self.checkpoints
        yield
        eventually(lambda: self.attempt["number"] > before["number"], "no new attempt")
        after = self.under_way()
        assert because in after["previous"]
        assert after["number"] == before["number"] + 1
        assert after["resume"] >= max(kept)
        assert self.checkpoints.items() >= kept.items()

    def under_way(self) -> dict[str, Any]:
        """The current attempt, after it has written a checkpoint."""
        eventually(lambda: self.attempt, "no attempt")
        if self.newest_written() <= self.decided():
            self.allow(len(self.checkpoints) + 1)
            eventually(lambda: self.newest_written() > self.decided(), "no new checkpoint")
        attempt = self.attempt
        assert not attempt["result"], f"training ended before the fault: {attempt}"
        return attempt

    def allow(self, passes: int) -> None:
        """Let the training continue until there are so many checkpoints."""
        draft = self.volume / "allowed-passes.new"
        draft.write_text(str(passes))
        draft.replace(self.volume / "allowed-passes")

    def newest_written(self) -> int:
        """The time of the newest checkpoint."""
        return max((written for _, written in self.checkpoints.values()), default=0)

    def decided(self) -> int:
        """The time at which the latest attempt was decided."""
        return max((file.stat().st_mtime_ns for file in self.workers.glob(ATTEMPT)), default=0)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The API server does not answer during the body."""
        pid = self.checkout.pid("kube-apiserver")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def training(cached: None, tmp_path: Path) -> Iterator[Training]:
    checkout = Checkout.make(tmp_path)
    code = checkout.project / "workloads/in_pod/quick_start"
    (code / "train.py").rename(code / "original.py")
    (code / "train.py").write_text(CONTROLLED_TRAINING)
    checkout.set(job={"passes": PASSES}, data={"records": RECORDS})
    with checkout.running("up") as up:
        yield Training(checkout, up)
    checkout.stop()


def test_one_training_survives_many_faults(training: Training) -> None:
    training.under_way()
    trainers_listen_only_on_the_loopback(training)
    trainers_can_read_pods_and_nothing_else(training)
    deleted_pod(training)
    killed_launcher_during_an_outage_of_the_api_server(training)
    api_server_stopped_while_training(training)
    exported_model_is_complete(training)
    command_that_does_not_exist_ends_the_training_at_once(training)


def trainers_listen_only_on_the_loopback(training: Training) -> None:
    pods = {pid for pid, line in training.checkout.processes().items() if WORKER in line}
    addresses = listening.by(pods)
    assert addresses, "no trainer listens, not even the store of paddle"
    assert listening.beyond_loopback(addresses) == []


def trainers_can_read_pods_and_nothing_else(training: Training) -> None:
    def allowed(verb: str, resource: str, namespace: str = "default") -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": namespace}
        spec = {"user": "system:serviceaccount:default:paddle-trainer", "resourceAttributes": attributes}
        review = {"apiVersion": ACCESS_REVIEW.api_version, "kind": ACCESS_REVIEW.kind, "spec": spec}
        answer = training.checkout.api.request("POST", ACCESS_REVIEW.path(), review)
        return bool(answer["status"]["allowed"])

    assert all(allowed(verb, "pods") for verb in ("get", "list", "watch"))
    refused = [(verb, "pods") for verb in ("create", "delete", "patch")]
    refused += [("list", kind) for kind in ("secrets", "configmaps", "pods/log", "nodes")]
    assert not [each for each in refused if allowed(*each)]
    assert not allowed("list", "pods", "kube-system")


def deleted_pod(training: Training) -> None:
    with training.restart("trainer 0's pod"):
        uid = training.attempt["members"][0]
        pods = training.checkout.api.list(POD, "default", labelSelector=f"job-name={JOB}")
        (name,) = (pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == uid)
        training.checkout.api.request("DELETE", POD.path("default", name))
        eventually(lambda: gone(training, name), "the pod is not deleted")
        assert "stopped by SIGTERM" in training.log(uid)
    assert uid not in training.attempt["members"]


def gone(training: Training, pod: str) -> bool:
    try:
        training.checkout.api.get(POD, "default", pod)
    except ApiError as error:
        return error.code == 404
    return False


def killed_launcher_during_an_outage_of_the_api_server(training: Training) -> None:
    with training.restart("trainer 2's pod"):
        attempt = training.attempt
        leader, over = attempt["members"][0], f"attempt {attempt['number']} is over"
        training.kill_launcher(2)
        eventually(lambda: over in training.log(leader), "trainer 0 does not notice the killed launcher")
        with training.outage():
            time.sleep(OUTAGE_SECONDS)
        assert training.attempt["number"] == attempt["number"], (
            "the next attempt was decided before the API server stopped"
        )
    assert training.attempt["members"][2] != attempt["members"][2]


def api_server_stopped_while_training(training: Training) -> None:
    before = training.under_way()
    newest = max(training.checkpoints)
    with training.outage():
        training.allow(PASSES)
        eventually(lambda: max(training.checkpoints) > newest, "the training waits for the API server")
    result = eventually(lambda: training.attempt["result"], "the training does not end")
    assert (result, training.attempt["number"]) == ("finished", before["number"])


def exported_model_is_complete(training: Training) -> None:
    output, _ = training.up.communicate(timeout=LIMIT_SECONDS)
    assert training.up.returncode == 0, output
    assert list(training.checkpoints) == [f"pass-{number:05d}" for number in range(PASSES)]
    s3, bucket = training.checkout.client("s3"), training.checkout.output("bucket")
    for name in training.checkpoints:
        prefix = f"{JOB}/output/{name}"
        done = json.loads(s3.get_object(Bucket=bucket, Key=f"{prefix}/done")["Body"].read())
        assert done["files"].keys() == {"model.pdparams", "optimizer.pdopt"}
        for file, expected in done["files"].items():
            content = s3.get_object(Bucket=bucket, Key=f"{prefix}/{file}")["Body"].read()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (expected["bytes"], expected["sha256"])
    assert done["accuracy"] > 0.9
    newest = s3.get_object(Bucket=bucket, Key=f"{JOB}/output/{contract.NEWEST_FILE}")["Body"].read().decode()
    assert newest == f"{training.checkout.output('model')}{name}/\n"


def command_that_does_not_exist_ends_the_training_at_once(training: Training) -> None:
    """As python3 in an image without Python."""
    training.checkout.set(job={"passes": PASSES + 1, "attempts": 5, "command": ["python9", LAUNCHER]})
    done = training.checkout.run("up")
    assert done.returncode == 1, done.stdout
    errors = done.stdout[done.stdout.index("error:") :]
    assert "[StartError]" in errors
    assert "python9" in errors
    assert "BackoffLimitExceeded" in errors
