"""Rendezvous at size: two launchers and many simulated peers on the real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox import build
from tests.in_pod import controlplane
from tests.in_pod.api import make_pod
from tests.in_pod.job import STUB, Gang


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """The real API server."""
    with controlplane.run(build.control_plane(), tmp_path_factory.mktemp("controlplane")) as running:
        yield running


class Peers:
    """Pods whose launchers are not there, but whose status says that they run."""

    def __init__(self, plane: controlplane.ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.local = threading.local()

    def call(self, *arguments: Any) -> Any:
        """A request over this thread's connection."""
        if not hasattr(self.local, "plane"):
            self.local.plane = self.plane.another()
        return self.local.plane.call(*arguments)

    def create(self, index: int) -> dict[str, Any]:
        """A pod as the Job controller makes it, not yet scheduled, of the size that such pods have."""
        pod = make_pod("job", index, "", phase="Pending", owner="00000000-0000-0000-0000-000000000001")
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        environment = [{"name": f"CONF_PADDLE_{number}", "value": str(number)} for number in range(20)]
        pod["spec"] = {"containers": [{"name": "trainer", "image": "paddlepaddle/paddle", "env": environment}]}
        pod["metadata"].pop("uid")
        pod.pop("status")
        created: dict[str, Any] = self.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod)
        return created

    def run(self, pod: dict[str, Any], address: str) -> None:
        """Say that the pod runs."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.call("PATCH", path, {"status": status}, "application/merge-patch+json")


@pytest.mark.parametrize("trainers", [3, 100, 1000])
def test_launch_follows_the_last_running_pod_at_once(
    plane: controlplane.ControlPlane, tmp_path: Path, trainers: int, record_property: Any
) -> None:
    namespace = f"size-{trainers}"
    account = plane.account(tmp_path / "account", namespace)
    gang = Gang(tmp_path, plane, account, trainers=trainers)  # type: ignore[arg-type]
    gang.settings["JOB_NAMESPACE"] = namespace
    gang.prepare(STUB / "train.py")
    peers = Peers(plane, namespace)
    with ThreadPoolExecutor(8) as pool:
        pods = list(pool.map(peers.create, range(trainers)))
        addresses = [f"10.0.{index // 250}.{index % 250 + 1}" for index in range(trainers)]
        addresses[:2] = [gang.address(0), gang.address(1)]
        launchers = [gang.launch(index, pods[index]) for index in (0, 1)]
        try:
            list(pool.map(peers.run, pods[:-1], addresses[:-1]))
            gang.wait(lambda: all(f"{trainers - 1} of {trainers} pods run" in t.text() for t in launchers))
            peers.run(pods[-1], addresses[-1])
            running = time.time()
            started = [gang.root / f"started-{index}" for index in (0, 1)]
            gang.wait(lambda: all(path.exists() and path.read_text() for path in started), seconds=30)
            waited = [float(path.read_text()) - running for path in started]
        finally:
            gang.close()
    requests = plane.requests(namespace)
    lists = [uri for uri in requests if "watch=" not in uri]
    print(f"{trainers} trainers: {max(waited):.2f} s from the last pod Running to launch, {len(requests)} requests")
    record_property("seconds", waited)
    assert max(waited) < 2
    assert len(requests) - len(lists) == 2, "one watch for each of the two launchers"
    assert len(lists) == 2 * -(-trainers // 500), "one list for each, in pages of 500"
