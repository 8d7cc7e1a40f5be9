"""Background processes: start them, record them in the checkout, find them again, and stop them."""

from __future__ import annotations

import contextlib
import json
import os
import random
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
SERVER_PORTS = range(20000, 32768)


@dataclass(frozen=True)
class Process:
    """A process that this checkout started. `birth` identifies it if its process ID is used again."""

    name: str
    pid: int
    birth: str
    since: float
    port: int

    @property
    def alive(self) -> bool:
        return birth(self.pid) == self.birth


def runs_current_code(process: Process, python: Path, code: Path) -> bool:
    """Whether it runs this Python, and the code in this folder is older than the process: `git pull` changes both."""
    return runs(process.pid, str(python)) and all(file.stat().st_mtime <= process.since for file in code.rglob("*.py"))


def start(run: Path, name: str, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]) -> Process:
    """Start `command` in the background and record it in the folder `run`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with delay_interrupt(), log.open("ab") as output:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
        )
        return _record(run, Process(name, started.pid, birth(started.pid), time.time(), port))


def start_attached(
    run: Path, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start `command` with output to the terminal, but without its Ctrl-C, and record it in the folder `run`."""
    with delay_interrupt():
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
    """The process of this name that was started last. It may have ended."""
    try:
        return Process(**json.loads((run / f"{name}.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def find(run: Path, name: str) -> Process | None:
    """The process of this name, if it is running."""
    process = last(run, name)
    return process if process and process.alive else None


def stop(run: Path, name: str) -> None:
    """Terminate the process and its children, kill them after the grace period, and delete the record."""
    if process := find(run, name):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, ending)
            if wait(lambda: not process.alive, GRACE_SECONDS):
                break
    (run / f"{name}.json").unlink(missing_ok=True)


def wait(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until `done()` is true. False if that takes longer than `seconds`."""
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def birth(pid: int) -> str:
    """The start time of a process as the system reports it. Empty if the process has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else fields[18]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def runs(pid: int, mark: str) -> bool:
    """Whether the process runs and has `mark` in its command line. For process IDs that other programs recorded."""
    file = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        return birth(pid) != "" and mark.encode() in file.read_bytes()
    listed = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return mark in listed.stdout


def free_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1."""
    found: list[int] = []
    with contextlib.ExitStack() as probes:
        while len(found) < count:
            # Linux gives ports of the higher range to connections. Such a port could be taken before its server starts.
            port = random.choice(SERVER_PORTS)
            with contextlib.suppress(OSError):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


def last_lines(log: Path) -> str:
    """The last five lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    except FileNotFoundError:
        return "(the log is empty)"


@contextlib.contextmanager
def delay_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until a process is started and recorded. Otherwise it could run without a record."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


def wait_until_it_answers(process: Process, answers: Callable[[], bool], log: Path, seconds: float) -> None:
    """Wait until a new process answers. Fail with the end of its log if it does not."""
    if not wait(lambda: answers() or not process.alive, seconds) or not process.alive:
        raise SandboxError(
            f"{process.name} does not answer on 127.0.0.1:{process.port}. The end of its log {log}:\n{last_lines(log)}"
        )


def module_environment() -> dict[str, str]:
    """The environment for a Python module of this checkout, without the user's own configuration."""
    return isolated_environment(os.environ) | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}


def isolated_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the user's settings and credentials for AWS, Pulumi and Kubernetes."""
    private = ("AWS_", "PULUMI_", "KUBE", "BOTO", "MOTO_")
    kept = {key: value for key, value in environment.items() if not key.startswith(private)}
    # Keep the AWS SDK away from the user's files and from the metadata service of an EC2 instance.
    return kept | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
    }
