"""AWS and the worker nodes, as processes."""

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
class Aws:
    """The AWS that every stack of a checkout shares, run by `python`; all it writes lies in `folder`."""

    python: Path
    folder: Path

    def running(self) -> processes.Process | None:
        """Its process if it answers."""
        process = processes.find(self.folder / "run", "aws")
        return process if process and answers(process.port) else None

    def start(self) -> processes.Process:
        """AWS with nothing in it, on the port that it had before if that can be had again."""
        before = processes.last(self.folder / "run", "aws")
        self.stop()
        port = before.port if before and is_free(before.port) else processes.free_ports(1)[0]
        command = [str(self.python), "-m", "sandbox.aws.server", "--port", str(port)]
        log = self.folder / "logs/aws.log"
        process = processes.start(self.folder / "run", "aws", command, port, log, _environment({}))
        processes.must_answer(process, lambda: answers(port), log, 60)
        return process

    def stop(self) -> None:
        processes.stop(self.folder / "run", "aws")


@dataclass(frozen=True)
class Workers:
    """What the kubelets of one stack's nodes do: run the pods that are bound to them."""

    python: Path
    folder: Path
    stack: str

    @property
    def name(self) -> str:
        return f"workers-{self.stack}"

    @property
    def root(self) -> Path:
        return self.folder / "stacks" / self.stack / "workers"

    def why_not(self) -> str:
        """Why pods cannot run as processes of this machine; empty when they can."""
        command = [str(self.python), "-m", "sandbox.node", "--check"]
        tried = subprocess.run(command, env=_environment({}), capture_output=True, text=True, check=False)
        return tried.stderr.strip() if tried.returncode else ""

    def running(self) -> processes.Process | None:
        return processes.find(self.folder / "run", self.name)

    def start(self, kubeconfig: Path, endpoint: str) -> None:
        if self.running():
            return
        command = [str(self.python), "-m", "sandbox.node", "--kubeconfig", str(kubeconfig), "--root", str(self.root)]
        environment = _environment({"AWS_ENDPOINT_URL": endpoint})
        log = self.folder / f"logs/{self.name}.log"
        process = processes.start(self.folder / "run", self.name, command, 0, log, environment)
        if processes.wait(lambda: not process.alive, 1):
            raise SandboxError(f"the workers ended at once; {log} ends:\n{processes.last_lines(log)}")

    def stop(self) -> None:
        processes.stop(self.folder / "run", self.name)
        # Workers that were killed have left their pods running.
        command = [str(self.python), "-m", "sandbox.node", "--clean", "--root", str(self.root)]
        subprocess.run(command, env=_environment({}), check=False)


def answers(port: int) -> bool:
    """Whether an AWS of ours answers there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5) as reply:
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
    return clean(os.environ) | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"} | dict(ours)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment less all that is the person's at AWS, Pulumi or Kubernetes."""
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
