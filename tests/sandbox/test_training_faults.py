"""One training goes through fault after fault and its model comes out whole; what cannot go on says why.

The tests of `training` are one run of `up`: each goes on where the last one ended.
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

from sandbox.cluster.api import POD, ApiError, Kind
from tests.sandbox import listening
from tests.sandbox.checkout import Checkout, eventually
from workloads.in_pod import contract

# A pass takes a second or two: long enough to hit, and few enough to be exported soon.
RECORDS, PASSES = 60_000, 10
LAUNCHER, WORKER = f"{contract.SCRIPTS}/launch.py", "train.py"
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", False)
JOB = "paddle-cluster-job"
ATTEMPT = f"volumes/fs-*/{JOB}/{contract.LAUNCHERS}/{contract.ATTEMPT_FILE}"
GRACE_SECONDS = 30
OUTAGE_SECONDS = 20


@dataclass(frozen=True)
class Training:
    """A training under way, seen from the machine that it runs on."""

    checkout: Checkout
    up: subprocess.Popen[str]

    @property
    def volume(self) -> Path:
        """The Job's folder on the volume."""
        (folder,) = self.workers.glob(f"volumes/fs-*/{JOB}")
        return folder

    @property
    def workers(self) -> Path:
        return self.checkout.sandbox / "stacks/local/workers"

    @property
    def attempt(self) -> dict[str, Any]:
        """What trainer 0's launcher decided last; nothing before the trainers have met."""
        written = [file.read_text() for file in self.workers.glob(ATTEMPT)]
        return dict(json.loads(written[0])) if written and written[0] else {}

    @property
    def passes(self) -> dict[str, tuple[int, int]]:
        """Every pass on the volume, and what changes when it is written again."""
        found = {}
        for folder in sorted(self.workers.glob(f"volumes/fs-*/{JOB}/output/pass-*")):
            told = (folder / "done").stat()
            found[folder.name] = (told.st_ino, told.st_mtime_ns)
        return found

    def said(self, uid: str) -> str:
        """The log of a trainer's pod, which outlives it."""
        (log,) = self.workers.glob(f"logs/*_{uid}/trainer/0.log")
        return log.read_text(errors="replace")

    def kill(self, trainer: int, script: str) -> None:
        """End the one process that runs the script in this trainer's pod, without a word."""
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
        """A fault is made inside; then all start again from the newest pass, and every pass yielded stays as it is."""
        before = self.under_way()
        kept = self.passes
        yield kept
        eventually(lambda: self.attempt["number"] > before["number"], 120, "no new attempt")
        after = self.under_way()
        assert because in after["reason"]
        assert after["number"] == before["number"] + 1
        assert after["resume"] >= max(kept)
        assert self.passes.items() >= kept.items()

    def under_way(self) -> dict[str, Any]:
        """The attempt, once it has brought a pass."""
        eventually(lambda: self.newest_written() > self.decided(), 180, "no new pass")
        attempt = self.attempt
        assert not attempt["verdict"], f"training ended before the fault: {attempt}"
        return attempt

    def newest_written(self) -> int:
        """When a pass was written last."""
        return max((written for _, written in self.passes.values()), default=0)

    def decided(self) -> int:
        """When an attempt was decided last."""
        return max((file.stat().st_mtime_ns for file in self.workers.glob(ATTEMPT)), default=0)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The API server answers nobody inside, and for its whole time."""
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
    made.run("down")


@pytest.fixture(scope="module")
def training(checkout: Checkout) -> Iterator[Training]:
    checkout.set(job={"passes": PASSES}, data={"records": RECORDS})
    with checkout.running("up") as up:
        yield Training(checkout, up)


def test_trainers_listen_on_the_loopback_alone(training: Training) -> None:
    training.under_way()
    pods = {pid for pid, line in training.checkout.processes().items() if WORKER in line}
    addresses = listening.by(pods)
    assert addresses, "the trainers' own store is not seen"
    assert listening.beyond_loopback(addresses) == []


def test_trainers_may_read_pods_and_nothing_else(training: Training) -> None:
    training.under_way()

    def may(verb: str, resource: str, namespace: str = "default") -> bool:
        asked = {"verb": verb, "resource": resource, "namespace": namespace}
        spec = {"user": "system:serviceaccount:default:paddle-trainer", "resourceAttributes": asked}
        review = {"apiVersion": ACCESS_REVIEW.api_version, "kind": ACCESS_REVIEW.kind, "spec": spec}
        answer = training.checkout.api.request("POST", ACCESS_REVIEW.path(), review)
        return bool(answer["status"]["allowed"])

    assert all(may(verb, "pods") for verb in ("get", "list", "watch"))
    refused = [(verb, "pods") for verb in ("create", "delete", "patch")]
    refused += [("list", kind) for kind in ("secrets", "configmaps", "pods/log", "nodes")]
    assert not [each for each in refused if may(*each)]
    assert not may("list", "pods", "kube-system")


def test_killed_worker(training: Training) -> None:
    with training.restart("was killed by signal"):
        training.kill(1, WORKER)


def test_corrupt_newest_pass(training: Training) -> None:
    eventually(lambda: len(training.passes) > 1, 180, "no second pass")
    with training.restart("was killed by signal") as kept:
        # The one that writes the passes: so none newer follows.
        training.kill(0, WORKER)
        *_, before, newest = training.passes
        broken = kept.pop(newest)
        model = training.volume / "output" / newest / "model.pdparams"
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 0xFF
        model.write_bytes(content)
    attempt = training.attempt
    assert attempt["resume"] == before
    assert f"{newest} is skipped: model.pdparams does not have its checksum" in training.said(attempt["members"][0])
    assert training.passes[newest] != broken


def test_deleted_pod(training: Training) -> None:
    with training.restart("trainer 0's pod"):
        uid = training.attempt["members"][0]
        pods = training.checkout.api.list(POD, "default", labelSelector=f"job-name={JOB}")
        (name,) = (pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == uid)
        training.checkout.api.request("DELETE", POD.path("default", name))
        eventually(lambda: gone(training, name), GRACE_SECONDS - 5, "SIGTERM did not end the launcher")
        assert "told to stop (SIGTERM)" in training.said(uid)
    assert uid not in training.attempt["members"]


def gone(training: Training, pod: str) -> bool:
    try:
        training.checkout.api.get(POD, "default", pod)
    except ApiError as error:
        return error.code == 404
    return False


def test_killed_launcher_and_no_api_server_to_replace_it(training: Training) -> None:
    with training.restart("trainer 2's pod"):
        attempt = training.attempt
        leader, over = attempt["members"][0], f"attempt {attempt['number']} is over"
        training.kill(2, LAUNCHER)
        eventually(lambda: over in training.said(leader), 30, "nobody noticed")
        with training.outage():
            pass
        assert training.attempt["number"] == attempt["number"], "the rendezvous was over before the API server stopped"
    assert training.attempt["members"][2] != attempt["members"][2]


def test_api_server_stopped_while_training(training: Training) -> None:
    before = training.under_way()
    newest = max(training.passes)
    with training.outage():
        eventually(lambda: max(training.passes) > newest, OUTAGE_SECONDS, "training waits for the API server")
    verdict = eventually(lambda: training.attempt["verdict"], 180, "training does not end")
    assert (verdict, training.attempt["number"]) == ("finished", before["number"])


def test_model_comes_out_whole(training: Training) -> None:
    output, _ = training.up.communicate(timeout=300)
    assert training.up.returncode == 0, output
    assert list(training.passes) == [f"pass-{number:05d}" for number in range(PASSES)]
    s3, bucket = training.checkout.client("s3"), training.checkout.output("bucket")
    for name in training.passes:
        prefix = f"{JOB}/output/{name}"
        done = json.loads(s3.get_object(Bucket=bucket, Key=f"{prefix}/done")["Body"].read())
        assert done["files"].keys() == {"model.pdparams", "optimizer.pdopt"}
        for file, told in done["files"].items():
            content = s3.get_object(Bucket=bucket, Key=f"{prefix}/{file}")["Body"].read()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (told["bytes"], told["sha256"])
    assert done["accuracy"] > 0.9
    assert training.checkout.output("model") == f"s3://{bucket}/{JOB}/output/{name}/"


def test_no_room_for_the_data_of_one_trainer(training: Training) -> None:
    # A container without capabilities can make no small disk; to files of 64 KiB it can be kept.
    limit = '[ "$JOB_COMPLETION_INDEX" != 1 ] || ulimit -f 128'
    command = ["sh", "-ec", f"{limit}; exec python3 {LAUNCHER}"]
    said = failing_up(training.checkout, passes=PASSES + 1, attempts=1, command=command)
    assert "trainer 1 could not start: " in said
    assert "File too large" in said


def test_missing_shard(training: Training) -> None:
    shutil.rmtree(training.volume / "data/1")
    said = failing_up(training.checkout, passes=PASSES + 1, attempts=1, command=["python3", LAUNCHER])
    assert "/data/1 is missing: the data must be split for 3 trainers" in said


def failing_up(checkout: Checkout, **job: object) -> str:
    """All that an `up` said whose training Job cannot succeed."""
    checkout.set(job=job)
    done = checkout.run("up")
    assert done.returncode == 1, done.stdout
    return done.stdout
