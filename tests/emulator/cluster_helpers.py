"""Helpers for tests with a real Kubernetes control plane."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tools.kubernetes_client import Kind, Object

NAMESPACE = Kind("v1", "Namespace", "namespaces", False)
JOB = Kind("batch/v1", "Job", "jobs", True)
_Found = TypeVar("_Found")


def eventually(look: Callable[[], _Found | None], seconds: float = 60) -> _Found:
    """Call `look` until it returns something true, and return that."""
    limit = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > limit:
            raise AssertionError(f"nothing found within {seconds:g} s")
        time.sleep(0.05)
    return found


class NodeProcess:
    """`python -m sandbox.node`, started as the sandbox starts it."""

    def __init__(self, kubeconfig: Path, root: Path) -> None:
        self.kubeconfig, self.root = kubeconfig, root
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        command = [sys.executable, "-m", "sandbox.node", "--kubeconfig", str(self.kubeconfig), "--root", str(self.root)]
        self.process = subprocess.Popen(command)

    def end(self, kill: bool = False) -> None:
        assert self.process
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(60)

    def log(self, pod: Object, container: str) -> str:
        metadata = pod["metadata"]
        folder = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return (self.root / "logs" / folder / f"{container}.log").read_text()


def job(name: str, namespace: str, script: str, **spec: object) -> Object:
    """A Job that runs a shell script."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}} | spec,
    }
