"""The process that emulates AWS: started, found again, stopped."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes


@dataclass(frozen=True)
class EmulatedAws:
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
        command = [str(self.python), "-m", "sandbox.cloud.server", "--port", str(port)]
        log = self.folder / "logs/aws.log"
        process = processes.start(self.folder / "run", "aws", command, port, log, processes.module_environment())
        processes.must_answer(process, lambda: answers(port), log, 60)
        return process

    def stop(self) -> None:
        processes.stop(self.folder / "run", "aws")


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
