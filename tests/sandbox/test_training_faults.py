"""One training survives many faults and exports a complete model; a training that cannot continue gives the reason.

All tests with `training` share one run of `up`: each continues where the previous one ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
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
from tests.sandbox.checkout import Checkout, eventually
from tools.kubernetes_client import POD, ApiError, Kind
from workloads.in_pod import contract

RECORDS, PASSES = 20_000, 8
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
LIMIT_SECONDS = 600


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
        (log,) = self.workers.glob(f"logs/*_{uid}/trainer/0.log")
        return log.read_text(errors="replace")

    def kill(self, trainer: int, script: str) -> None:
        """Kill the process that runs the script in this trainer's pod."""
        pod = f"POD_UID={self.attempt['members'][trainer]}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                if arguments[-2:-1] != [script.encode()] or b"paddle.distributed.launch" in arguments:
                    continue
                if pod in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        (pid,) = found
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def restart(self, because: str) -> Iterator[dict[str, tuple[int, int]]]:
        """The body causes a fault. Then all trainers restart from the newest checkpoint and keep the yielded ones."""
        before = self.under_way()
        kept = self.checkpoints
        yield kept
        eventually(lambda: self.attempt["number"] > before["number"], LIMIT_SECONDS, "no new attempt")
        after = self.under_way()
        assert because in after["reason"]
        assert after["number"] == before["number"] + 1
        assert after["resume"] >= max(kept)
        assert self.checkpoints.items() >= kept.items()

    def under_way(self) -> dict[str, Any]:
        """The current attempt, after it has written a checkpoint."""
        eventually(lambda: self.attempt, LIMIT_SECONDS, "no attempt")
        if self.newest_written() <= self.decided():
            self.allow(len(self.checkpoints) + 1)
            eventually(lambda: self.newest_written() > self.decided(), LIMIT_SECONDS, "no new checkpoint")
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
        """The API server does not answer during the body, and for at least OUTAGE_SECONDS."""
        pid = self.checkout.pid("kube-apiserver")
        ends = time.monotonic() + OUTAGE_SECONDS
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
            time.sleep(max(0.0, ends - time.monotonic()))
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path_factory.mktemp("faults"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def training(checkout: Checkout) -> Iterator[Training]:
    code = checkout.project / "workloads/in_pod/quick_start"
    (code / "train.py").rename(code / "original.py")
    (code / "train.py").write_text(CONTROLLED_TRAINING)
    checkout.set(job={"passes": PASSES}, data={"records": RECORDS})
    with checkout.running("up") as up:
        yield Training(checkout, up)


def test_trainers_listen_only_on_the_loopback(training: Training) -> None:
    training.under_way()
    pods = {pid for pid, line in training.checkout.processes().items() if WORKER in line}
    addresses = listening.by(pods)
    assert addresses, "no trainer listens, not even the store of paddle"
    assert listening.beyond_loopback(addresses) == []


def test_trainers_can_read_pods_and_nothing_else(training: Training) -> None:
    training.under_way()

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


def test_killed_training_process(training: Training) -> None:
    with training.restart("was killed by signal"):
        training.kill(1, WORKER)


def test_corrupt_newest_checkpoint(training: Training) -> None:
    training.under_way()
    training.allow(len(training.checkpoints) + 1)
    eventually(lambda: len(training.checkpoints) > 1, LIMIT_SECONDS, "no second checkpoint")
    with training.restart("was killed by signal") as kept:
        # Trainer 0 writes the checkpoints, so no newer one follows.
        training.kill(0, WORKER)
        *_, before, newest = training.checkpoints
        broken = kept.pop(newest)
        model = training.volume / "output" / newest / "model.pdparams"
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 0xFF
        model.write_bytes(content)
    attempt = training.attempt
    assert attempt["resume"] == before
    assert f"{newest} is skipped: model.pdparams does not have its checksum" in training.log(attempt["members"][0])
    assert training.checkpoints[newest] != broken


def test_deleted_pod(training: Training) -> None:
    with training.restart("trainer 0's pod"):
        uid = training.attempt["members"][0]
        pods = training.checkout.api.list(POD, "default", labelSelector=f"job-name={JOB}")
        (name,) = (pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == uid)
        training.checkout.api.request("DELETE", POD.path("default", name))
        eventually(lambda: gone(training, name), LIMIT_SECONDS, "the pod is not deleted")
        assert "stopped by SIGTERM" in training.log(uid)
    assert uid not in training.attempt["members"]


def gone(training: Training, pod: str) -> bool:
    try:
        training.checkout.api.get(POD, "default", pod)
    except ApiError as error:
        return error.code == 404
    return False


def test_killed_launcher_during_an_outage_of_the_api_server(training: Training) -> None:
    with training.restart("trainer 2's pod"):
        attempt = training.attempt
        leader, over = attempt["members"][0], f"attempt {attempt['number']} is over"
        training.kill(2, LAUNCHER)
        eventually(lambda: over in training.log(leader), LIMIT_SECONDS, "trainer 0 does not notice the killed launcher")
        with training.outage():
            pass
        assert training.attempt["number"] == attempt["number"], (
            "the next attempt was decided before the API server stopped"
        )
    assert training.attempt["members"][2] != attempt["members"][2]


def test_api_server_stopped_while_training(training: Training) -> None:
    before = training.under_way()
    newest = max(training.checkpoints)
    with training.outage():
        training.allow(PASSES)
        eventually(lambda: max(training.checkpoints) > newest, LIMIT_SECONDS, "the training waits for the API server")
    result = eventually(lambda: training.attempt["result"], LIMIT_SECONDS, "the training does not end")
    assert (result, training.attempt["number"]) == ("finished", before["number"])


def test_the_exported_model_is_complete(training: Training) -> None:
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


def test_a_command_that_does_not_exist_ends_the_training_at_once(training: Training) -> None:
    """As python3 in an image without Python."""
    output = failing_up(training.checkout, passes=PASSES + 1, attempts=5, command=["python9", LAUNCHER])
    errors = output[output.index("error:") :]
    assert "[StartError]" in errors
    assert "python9" in errors
    assert "BackoffLimitExceeded" in errors


def test_full_disk_of_one_trainer(training: Training) -> None:
    # A container without capabilities cannot mount a small disk, but its files can be limited to 64 KiB.
    limit = '[ "$JOB_COMPLETION_INDEX" != 1 ] || ulimit -f 128'
    command = ["sh", "-ec", f"{limit}; exec python3 {LAUNCHER}"]
    output = failing_up(training.checkout, passes=PASSES + 1, attempts=1, command=command)
    assert "trainer 1 could not start: " in output
    assert "File too large" in output


def test_missing_shard(training: Training) -> None:
    shutil.rmtree(training.volume / "data/1")
    output = failing_up(training.checkout, passes=PASSES + 1, attempts=1, command=["python3", LAUNCHER])
    assert "/data/1 is missing: the data must be split for 3 trainers" in output


def failing_up(checkout: Checkout, **job: object) -> str:
    """The output of an `up` whose training Job cannot succeed."""
    checkout.set(job=job)
    done = checkout.run("up")
    assert done.returncode == 1, done.stdout
    return done.stdout
