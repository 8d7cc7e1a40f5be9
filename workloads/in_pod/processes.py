"""The processes below this one: the training and all that it started."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

# Paddle's launcher exits with 256 - N when signal N killed its worker. Other numbers are exit statuses of the code.
KILLED = {
    256 - number: number
    for number in (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGTERM,
    )
}


def adopt_orphans() -> None:
    """Make this process the parent of processes whose parent ends, as the first process of a container always is."""
    set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def descendants() -> list[int]:
    """Every living process below this one. Paddle's workers have their own sessions, so a process group misses them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def process_state(process: int) -> tuple[str, int]:
    """The state of a process and the CPU time that it used, in ticks."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[11]) + int(fields[12])


def catches(process: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(mask & 1 << (number - 1))


def send(processes: list[int], number: int) -> None:
    """Send the signal to the processes that still exist."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def describe_status(status: int) -> str:
    """An exit status in words."""
    killed = -status if status < 0 else KILLED.get(status, 0)
    return f"was killed by signal {killed}" if killed else f"ended with status {status}"
