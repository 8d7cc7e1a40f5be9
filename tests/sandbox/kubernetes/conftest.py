"""A Kubernetes control plane of the tests' own, with nodes that run pods."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sandbox import build
from sandbox.kubeapi import POD, Api, Kind, Object, load_kubeconfig
from sandbox.kubernetes import ControlPlane, Node

NAMESPACE = Kind("v1", "Namespace", "namespaces", False)
JOB = Kind("batch/v1", "Job", "jobs", True)
_Found = TypeVar("_Found")


def eventually(look: Callable[[], _Found | None], seconds: float = 30) -> _Found:
    """What `look` finds, as soon as it finds something."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"not so after {seconds:g} s")
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server, scheduler and controllers, and three nodes."""
    plane = ControlPlane(tmp_path_factory.mktemp("cluster"))
    try:
        plane.up(build.control_plane(), simulate_pods=False)
        plane.set_nodes([Node(number, "us-west-2a", "c5.xlarge") for number in (1, 2, 3)])
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="session")
def api(cluster: ControlPlane) -> Api:
    return Api(load_kubeconfig(str(cluster.kubeconfig)))


class NodeProcess:
    """`python -m sandbox.node` as the sandbox runs it."""

    def __init__(self, kubeconfig: Path, root: Path) -> None:
        self.kubeconfig, self.root = kubeconfig, root
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sandbox.node", "--kubeconfig", str(self.kubeconfig), "--root", str(self.root)]
        self.process = subprocess.Popen(command)

    def end(self, kill: bool = False) -> None:
        assert self.process
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(20)

    def log(self, pod: Object, container: str, run: int = 0) -> str:
        metadata = pod["metadata"]
        folder = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return (self.root / "logs" / folder / container / f"{run}.log").read_text()


@pytest.fixture(scope="session")
def node(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The nodes' pods run for as long as the tests do."""
    process = NodeProcess(cluster.kubeconfig, tmp_path_factory.mktemp("node"))
    process.start()
    yield process
    process.end()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace for one test, whose service account is there."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.request("POST", NAMESPACE.path(), {"metadata": {"name": name}})
    account = Kind("v1", "ServiceAccount", "serviceaccounts", True)
    eventually(lambda: api.find(account, name, "default"))
    yield name
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    api.request("DELETE", POD.path(name), now)
    api.request("DELETE", NAMESPACE.path("", name), {"propagationPolicy": "Background"})


def job(name: str, namespace: str, script: str, **spec: object) -> Object:
    """A Job that runs a line of shell."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}} | spec,
    }
