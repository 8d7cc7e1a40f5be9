"""Processes that outlive the command that started them: recorded in the checkout, found again, stopped for certain."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT

GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Process:
    """A process that this checkout started; its birth tells it from a later one with the same pid."""

    name: str
    pid: int
    birth: str
    since: float
    port: int

    @property
    def alive(self) -> bool:
        return birth(self.pid) == self.birth


def start(run: Path, name: str, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]) -> Process:
    """Start `command` in a session of its own and record it under `run`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with interrupt_later(), log.open("ab") as output:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
        )
        return _record(run, Process(name, started.pid, birth(started.pid), time.time(), port))


def start_attached(
    run: Path, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start `command` before the person's eyes, out of reach of the terminal's Ctrl-C, and record it under `run`."""
    with interrupt_later():
        started = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        _record(run, Process(name, started.pid, birth(started.pid), time.time(), port=0))
    return started


def _record(run: Path, process: Process) -> Process:
    run.mkdir(parents=True, exist_ok=True)
    new = run / f"{process.name}.new"
    new.write_text(json.dumps(asdict(process)))
    new.replace(run / f"{process.name}.json")
    return process


def last(run: Path, name: str) -> Process | None:
    """The process of this name that was started last, whether it lives or not."""
    try:
        return Process(**json.loads((run / f"{name}.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def find(run: Path, name: str) -> Process | None:
    """The recorded process of this name, if it still runs."""
    process = last(run, name)
    return process if process and process.alive else None


def stop(run: Path, name: str) -> None:
    """Ask the process and its children to end, insist after the grace, and forget it."""
    if process := find(run, name):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, ending)
            if wait(lambda: not process.alive, GRACE_SECONDS):
                break
    (run / f"{name}.json").unlink(missing_ok=True)


def wait(done: Callable[[], bool], seconds: float) -> bool:
    """Whether `done` came true in time."""
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def birth(pid: int) -> str:
    """When the process began, as the system tells it; empty when there is none or it is a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else fields[18]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip()


def runs(pid: int, mark: str) -> bool:
    """Whether this pid is a process with `mark` on its command line; for pids that somebody else recorded."""
    file = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        return birth(pid) != "" and mark.encode() in file.read_bytes()
    told = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return mark in told.stdout


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as probes:
        bound = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in bound:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in bound]


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except FileNotFoundError:
        return "(it wrote nothing)"


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Hold Ctrl-C back while a process is started and recorded, so that none is started and forgotten."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


def must_answer(process: Process, answers: Callable[[], bool], log: Path, seconds: float) -> None:
    """Wait until a process that was just started answers, or say why it does not."""
    if not wait(lambda: answers() or not process.alive, seconds) or not process.alive:
        raise SandboxError(
            f"{process.name} does not answer on 127.0.0.1:{process.port}; its log {log} ends:\n{last_lines(log)}"
        )


def module_environment() -> dict[str, str]:
    """The environment of a Python module of this checkout, isolated from the user's own configuration."""
    return isolated_environment(os.environ) | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}


def isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
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
