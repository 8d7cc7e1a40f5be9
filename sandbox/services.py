"""AWS and the worker nodes of one checkout, as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes
from sandbox.errors import SandboxError

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Services:
    """What runs beside Kubernetes; `python` is the sandbox's own, `folder` the checkout's `.sandbox`."""

    python: Path
    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def aws(self) -> processes.Process | None:
        return processes.find(self.run, "aws")

    def start_aws(self, port: int) -> processes.Process:
        """AWS with nothing in it."""
        processes.stop(self.run, "aws")
        command = [str(self.python), "-m", "sandbox.aws.server", "--port", str(port)]
        process = processes.start(self.run, "aws", command, port, self.logs / "aws.log", _environment({}))
        processes.must_answer(process, lambda: answers(port), self.logs / "aws.log", 60)
        return process

    def start_node(self, kubeconfig: Path, endpoint: str) -> None:
        """What a kubelet does, for every node: runs the pods that are bound to it."""
        if processes.find(self.run, "node"):
            return
        command = [str(self.python), "-m", "sandbox.node", "--kubeconfig", str(kubeconfig)]
        command += ["--root", str(self.folder / "node")]
        environment = _environment({"AWS_ENDPOINT_URL": endpoint})
        process = processes.start(self.run, "node", command, 0, self.logs / "node.log", environment)
        if processes.wait(lambda: not process.alive, 1):
            raise SandboxError(f"the nodes ended at once; {self.logs / 'node.log'} ends:\n" + self.last_words("node"))

    def why_no_pods(self) -> str:
        """Why pods cannot run as processes of this machine; empty when they can."""
        command = [str(self.python), "-m", "sandbox.node", "--check"]
        tried = subprocess.run(command, env=_environment({}), capture_output=True, text=True, check=False)
        return tried.stderr.strip() if tried.returncode else ""

    def last_words(self, name: str) -> str:
        return processes.last_lines(self.logs / f"{name}.log")

    def down(self) -> None:
        for name in ("node", "aws"):
            processes.stop(self.run, name)
        # A node that was killed has left its pods running.
        command = [str(self.python), "-m", "sandbox.node", "--clean", "--root", str(self.folder / "node")]
        subprocess.run(command, env=_environment({}), check=False)


def answers(port: int) -> bool:
    """Whether an AWS of ours answers there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """This process's own, less all that is the person's at AWS, Pulumi or Kubernetes."""
    return clean(os.environ) | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"} | dict(ours)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    private = ("AWS_", "PULUMI_", "KUBE", "BOTO", "MOTO_")
    kept = {key: value for key, value in environment.items() if not key.startswith(private)}
    # No file of the person's is read either, and nobody asks for an instance's role.
    return kept | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
    }
