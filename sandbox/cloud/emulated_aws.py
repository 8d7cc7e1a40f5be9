"""Starts, finds and stops the process that emulates AWS."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes
from sandbox.paths import CHECKOUT


@dataclass(frozen=True)
class EmulatedAws:
    """The emulated AWS of a checkout. All stacks of the checkout share it. It keeps its files in `folder`."""

    python: Path
    folder: Path

    def running(self) -> processes.Process | None:
        """The process, if it runs and answers."""
        process = processes.find(self.folder / "run", "aws")
        return process if process and answers(process.port) else None

    def is_current(self, process: processes.Process) -> bool:
        """Whether it has the code of this revision. Older code cannot answer new questions of the program."""
        return processes.runs_current_code(process, self.python, CHECKOUT / "sandbox/cloud")

    def start(self) -> processes.Process:
        """Start an empty AWS, on the same port as before if that port is free."""
        before = processes.last(self.folder / "run", "aws")
        self.stop()
        port = before.port if before and is_free(before.port) else processes.free_ports(1)[0]
        command = [str(self.python), "-m", "sandbox.cloud.server", "--port", str(port)]
        log = self.folder / "logs/aws.log"
        process = processes.start(self.folder / "run", "aws", command, port, log, processes.module_environment())
        processes.wait_until_it_answers(process, lambda: answers(port), log, 60)
        return process

    def stop(self) -> None:
        processes.stop(self.folder / "run", "aws")


def answers(port: int) -> bool:
    """Whether an emulated AWS answers on this port."""
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
