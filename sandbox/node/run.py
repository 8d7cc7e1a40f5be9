"""One run of a container, as its watcher (container.py) records it in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.cluster.api import Object
from sandbox.node.container import write_json

_BACKOFF_SECONDS = 10.0
_LONGEST_BACKOFF_SECONDS = 300.0


@dataclass(frozen=True)
class Run:
    """One run of a container, as its watcher's files tell it."""

    folder: Path

    def running(self) -> Object | None:
        """Its pid and start, while it runs."""
        if self.ended() is not None:
            return None
        return read_json(self.folder / "running.json")

    def ended(self) -> Object | None:
        """How it ended, or None while it runs."""
        if told := read_json(self.folder / "exit.json"):
            return told
        if watched(self.folder):
            return None
        # The file may have been written between the two looks; else its watcher was killed, and it with it.
        if not (self.folder / "exit.json").exists():
            write_json(self.folder / "exit.json", lost(read_json(self.folder / "running.json")))
        return read_json(self.folder / "exit.json")

    def signal(self, number: int) -> None:
        if running := self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(running["pid"], number)


def start(folder: Path, spec: Object) -> subprocess.Popen[bytes]:
    """Begin a run in a folder that is there; its watcher."""
    write_json(folder / "spec.json", spec)
    Path(spec["log"]).touch()
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "sandbox.node.container", str(folder), str(lock.fileno())],
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def watched(folder: Path) -> bool:
    """Whether the watcher of this run lives: it holds the lock for as long as it does."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def lost(running: Object | None) -> Object:
    started = (running or {}).get("started", time.time())
    return {"code": 137, "signal": 9, "started": started, "finished": time.time(), "error": ""}


def read_json(path: Path) -> Object | None:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return None


def end_processes(folder: Path) -> None:
    """Kill whatever runs for the pod in this folder; its mounts end with it."""
    for lock in sorted(folder.glob("containers/*/*/lock")):
        while watched(lock.parent):
            Run(lock.parent).signal(signal.SIGKILL)
            time.sleep(0.02)


def locks(root: Path) -> list[Path]:
    """The lock of every run that is on record."""
    return sorted(root.glob("pods/*/containers/*/*/lock"))


def backoff(runs: int) -> float:
    """Seconds before a container that ran so often is run again: none the first time, then more and more."""
    return 0.0 if runs < 2 else min(_BACKOFF_SECONDS * 2 ** (runs - 2), _LONGEST_BACKOFF_SECONDS)


def tail(log: Path, size: int) -> str:
    """The end of a file."""
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - size, 0))
        return file.read().decode(errors="replace")
