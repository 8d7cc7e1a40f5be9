"""The start of large trainings: launchers for trainers 0 and 1, simulated ones for the others, a real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import contract
import pytest
from decisions import Join, Snapshot, decide
from launch import poll_seconds
from state_files import read_attempt
from trainer_settings import read_settings

from sandbox import build
from tests.in_pod import controlplane
from tests.in_pod.api import make_pod
from tests.in_pod.training_run import STUB, TrainingRun

JOB_UID = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """The real API server."""
    with controlplane.run(build.control_plane(), tmp_path_factory.mktemp("controlplane")) as running:
        yield running


class Pods:
    """Creates the pods of the Job and reports that they run."""

    def __init__(self, plane: controlplane.ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.local = threading.local()

    def call(self, *arguments: Any) -> Any:
        """A request over this thread's connection."""
        if not hasattr(self.local, "plane"):
            self.local.plane = self.plane.another()
        return self.local.plane.call(*arguments)

    def create(self, index: int) -> dict[str, Any]:
        """A pod as the Job controller creates it, not yet scheduled, of the usual size."""
        pod = make_pod("job", index, "", phase="Pending", owner=JOB_UID)
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        environment = [{"name": f"CONF_PADDLE_{number}", "value": str(number)} for number in range(20)]
        pod["spec"] = {"containers": [{"name": "trainer", "image": "paddlepaddle/paddle", "env": environment}]}
        pod["metadata"].pop("uid")
        pod.pop("status")
        created: dict[str, Any] = self.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod)
        return created

    def run(self, pod: dict[str, Any], address: str) -> None:
        """Report that the pod runs."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    def delete(self, pod: dict[str, Any]) -> None:
        """Delete the pod at once."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        self.call("DELETE", path, {"gracePeriodSeconds": 0})


class Followers:
    """Launchers without processes: each reads attempt.json as often as a real one, and decides as a real one."""

    def __init__(self, run: TrainingRun, pods: list[dict[str, Any]], first: int) -> None:
        one = read_settings(run.environment(first, pods[first]), []) if len(pods) > first else None
        self.settings = [
            replace(one, trainer=index, pod_uid=pods[index]["metadata"]["uid"])
            for index in range(first, len(pods))
            if one
        ]
        self.folder = run.root / contract.LAUNCHERS
        self.joined: dict[int, int] = {}
        self.last_join = 0.0
        self.stopped = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        while not self.stopped:
            turn = time.monotonic()
            for settings in self.settings:
                attempt = read_attempt(settings.job_folder, settings.job_uid)
                joined = self.joined.get(settings.trainer, 0)
                seen = Snapshot(now=time.time(), joined=joined, attempt=attempt)
                if isinstance(decide(seen, settings), Join):
                    self.joined[settings.trainer] = attempt.number
                    self.last_join = time.time()
            time.sleep(max(0.0, poll_seconds(len(self.settings)) - (time.monotonic() - turn)))

    def all_joined(self, number: int) -> bool:
        """Whether every one has joined the attempt."""
        return all(self.joined.get(settings.trainer) == number for settings in self.settings)

    def stop(self) -> None:
        """End the thread."""
        self.stopped = True
        self.thread.join()


@pytest.mark.parametrize("trainers", [3, 1000])
def test_a_training_starts_with_its_last_pod_by_one_list_and_one_watch(
    plane: controlplane.ControlPlane, tmp_path: Path, trainers: int, record_property: Any
) -> None:
    namespace = f"size-{trainers}"
    account = plane.account(tmp_path / "account", namespace)
    run = TrainingRun(tmp_path, plane, account, trainers=trainers)  # type: ignore[arg-type]
    run.settings["JOB_NAMESPACE"] = namespace
    run.prepare(STUB / "train.py")
    cluster = Pods(plane, namespace)
    with ThreadPoolExecutor(8) as pool:
        pods = list(pool.map(cluster.create, range(trainers)))
    addresses = [f"10.0.{index // 250}.{index % 250 + 1}" for index in range(trainers)]
    addresses[:2] = [run.address(0), run.address(1)]
    launchers = [run.launch(index, pods[index]) for index in (0, 1)]
    followers = Followers(run, pods, 2)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(cluster.run, pods[:-1], addresses[:-1]))
        run.wait(lambda: f"{trainers - 1} of {trainers} pods run" in launchers[0].text())
        cluster.run(pods[-1], addresses[-1])
        running = time.time()
        started = [run.root / f"started-{index}" for index in (0, 1)]
        run.wait(lambda: all(path.exists() and path.read_text() for path in started), seconds=30)
        run.wait(lambda: followers.all_joined(1), seconds=30)
        waited = max([float(path.read_text()) for path in started] + [followers.last_join]) - running
        requests = plane.requests(namespace)

        # Trainer 0's pod is lost, and its replacement decides from then on.
        run.all[0].process.kill()
        cluster.delete(pods[0])
        run.pods.pop(0)
        replacement = cluster.create(0)
        run.launch(0, replacement)
        cluster.run(replacement, addresses[0])
        run.wait(lambda: followers.all_joined(2), seconds=60)
        run.wait(lambda: "attempt 2: trainer 1" in launchers[1].text(), seconds=30)
    finally:
        followers.stop()
        run.close()
    lists = [uri for uri in requests if "watch=" not in uri]
    print(f"{trainers} trainers: {waited:.2f} s from the last running pod to the last start, {len(requests)} requests")
    record_property("seconds", waited)
    assert len(requests) - len(lists) == 1, "one watch for the whole training"
    assert len(lists) == -(-trainers // 500), "one list for the whole training, in pages of 500"
