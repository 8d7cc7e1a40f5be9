"""One run of a container, as seen from the node: start it, read its files, end it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.node.run_files import ContainerSpec, Ended, Running


@dataclass(frozen=True)
class ContainerRun:
    """The run of a container; the watcher (run_container.py) writes the files of its folder."""

    folder: Path

    @property
    def started(self) -> bool:
        return self.folder.exists()

    def running(self) -> Running | None:
        """The process, while it runs."""
        return Running.read(self.folder) if self.ended() is None else None

    def ended(self) -> Ended | None:
        """How the run ended, or None while it runs."""
        if (found := Ended.read(self.folder)) or has_watcher(self.folder):
            return found
        # The watcher ended between the two checks. If it wrote no result, it was killed, and the container with it.
        if (found := Ended.read(self.folder)) is None:
            found = killed(Running.read(self.folder))
            found.write(self.folder)
        return found

    def signal(self, number: int) -> None:
        if running := self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, number)


def start(folder: Path, spec: ContainerSpec) -> subprocess.Popen[bytes]:
    """Start a container in an existing folder; returns its watcher."""
    spec.write(folder)
    Path(spec.log).touch()
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "sandbox.node.run_container", str(folder), str(lock.fileno())],
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def has_watcher(folder: Path) -> bool:
    """Whether the watcher of this run lives. It holds the lock for its whole life."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def killed(running: Running | None) -> Ended:
    """The result of a container that left none: the one of SIGKILL."""
    return Ended(137, 9, running.started if running else time.time(), time.time())


def end_containers(pod: Path) -> None:
    """Kill every container of the pod with this folder. Their mounts end with them."""
    for lock in sorted(pod.glob("containers/*/lock")):
        while has_watcher(lock.parent):
            ContainerRun(lock.parent).signal(signal.SIGKILL)
            time.sleep(0.02)


def end_all_containers(root: Path) -> None:
    """Kill every container of every pod of a node process."""
    for pod in root.glob("pods/*"):
        end_containers(pod)


def any_container_runs(root: Path) -> bool:
    return any(has_watcher(lock.parent) for lock in root.glob("pods/*/containers/*/lock"))


def tail(log: Path, size: int) -> str:
    """The last `size` bytes of a file."""
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - size, 0))
        return file.read().decode(errors="replace")
