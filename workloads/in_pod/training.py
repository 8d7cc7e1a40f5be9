"""One attempt of this pod's training: the copy of data and code, the commands, and the processes until they end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, BinaryIO, Iterator

import contract
from contract import Env
from files import retry_transient
from processes import catches, descendants, process_state, send
from shards import read_manifest, shard_problem
from state_files import CurrentAttempt
from trainer_settings import LaunchError, TrainerSettings, log

DEVICES = Path("/dev")
BLOCK = 1 << 23
LINE_BYTES = 1 << 16
TAIL_BYTES = 4096
GRACE_SECONDS = 20.0  # less than the pod's 30 seconds
STACK_SECONDS = 10.0
STACK_SIGNAL = signal.SIGRTMIN + 7  # a signal that training code does not use
# Python imports this file in every process of the training. It then looks for the image's own file of that name.
SITE_CUSTOMIZE = """\
import faulthandler, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
faulthandler.register({signal}, file=open(os.path.join({stacks!r}, str(os.getpid())), "w"))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = this
"""
# Lines that paddle prints after the cause of a failure.
NOISE = (
    "LAUNCH ",
    "[SignalInfo",
    "[TimeInfo",
    "FatalError: `",
    "-----",
    "C++ Traceback (most recent call last)",
    "No stack trace in paddle",
    "Error Message Summary",
)
INFORMATION = re.compile(r"I\d{4} \d\d:\d\d:\d\d")  # how a line of paddle's C++ log starts


class CancelledError(Exception):
    """The training was stopped before its processes started."""


def copy_in(settings: TrainerSettings, work: Path, cancelled: threading.Event) -> None:
    """Copy this trainer's shard and the training code into the container."""
    complete = work / ".complete"
    if complete.exists():
        return
    shard = contract.shard(settings.job_folder, settings.trainer)
    if not retry_transient(shard.is_dir):
        needed = f"the data must be split for {settings.trainers} trainers"
        raise LaunchError(f"the shard {shard} is missing: {needed}; {contract.SPLIT_AGAIN}")
    extra = contract.shard(settings.job_folder, settings.trainers)
    if retry_transient(extra.exists):
        why = f"the data is split for more than {settings.trainers} trainers"
        raise LaunchError(f"{extra} exists: {why}; {contract.SPLIT_AGAIN}")
    if not retry_transient(settings.code.is_dir):
        raise LaunchError(f"the training code {settings.code} is missing: {contract.SPLIT_AGAIN}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    copy_folder(settings.code, work / "code", cancelled)
    copy_folder(shard, work / "data", cancelled)
    manifest = retry_transient(lambda: read_manifest(settings.job_folder / contract.DATA))
    if manifest and manifest["splits"] != settings.trainers:
        why = f"the data is split for {manifest['splits']} trainers, not for {settings.trainers}"
        raise LaunchError(f"{settings.job_folder / contract.DATA}: {why}; {contract.SPLIT_AGAIN}")
    if manifest and (problem := shard_problem(work / "data", manifest["shards"][settings.trainer])):
        raise LaunchError(f"the shard {shard} is damaged: the copy {problem}; {contract.SPLIT_AGAIN}")
    complete.touch()


def copy_folder(source: Path, target: Path, cancelled: threading.Event) -> None:
    """Copy a folder from the volume. Each access is repeated while the volume returns a transient error."""
    target.mkdir()
    for path in retry_transient(lambda: sorted(source.iterdir())):
        if retry_transient(path.is_dir):
            copy_folder(path, target / path.name, cancelled)
        else:
            retry_transient(partial(copy_file, path, target / path.name, cancelled))


def copy_file(source: Path, target: Path, cancelled: threading.Event) -> None:
    """Copy a file in blocks, so that the copy can be cancelled."""
    try:
        with source.open("rb") as reader, target.open("wb") as writer:
            for block in iter(lambda: reader.read(BLOCK), b""):
                if cancelled.is_set():
                    raise CancelledError
                writer.write(block)
    except OSError as error:
        raise OSError(error.errno, f"{source} cannot be copied: {error}") from error


def launch_command(settings: TrainerSettings, attempt: CurrentAttempt, work: Path) -> list[str]:
    """The command that starts the processes of this pod."""
    paddle = find_spec("paddle")  # not paddle.distributed: find_spec would import paddle
    folders = (paddle and paddle.submodule_search_locations) or []
    if not any((Path(folder) / "distributed").is_dir() for folder in folders):
        raise LaunchError("this image has no Python package paddle.distributed: it needs Paddle 2 or newer")
    if not (work / "code" / "train.py").is_file():
        raise LaunchError(f"the training code {settings.code} has no train.py")
    # Each attempt uses another port, so a process that is left from the attempt before cannot interfere.
    port = settings.port + attempt.number % (settings.ports + settings.ports_sparse)
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(processes_per_pod())]
    command += ["--log_level", "WARNING", "--log_dir", str(work / "log")]
    command += ["--ips", ",".join(attempt.addresses), "--start_port", str(port), "--host", settings.pod_ip]
    return [*command, "--job_id", f"{settings.job}-{attempt.number}", "train.py", *settings.arguments]


def processes_per_pod() -> int:
    """The number of processes: one for each GPU of the container, or one on the CPU."""
    return len(list(DEVICES.glob("nvidia[0-9]*"))) or 1


class Training:
    """The training processes of one attempt. A thread starts them, because the copy of a shard can take minutes."""

    def __init__(self, settings: TrainerSettings, attempt: CurrentAttempt, work: Path) -> None:
        self.settings, self.attempt, self.work = settings, attempt, work
        self.cancelled = threading.Event()
        self.start_error = ""
        self.copier: OutputCopier | None = None  # None until the process has started
        self.cpu_ticks, self.last_active = 0, time.time()
        self.thread = threading.Thread(target=self._start, daemon=True)
        self.thread.start()

    def _start(self) -> None:
        try:
            copy_in(self.settings, self.work, self.cancelled)
            command = launch_command(self.settings, self.attempt, self.work)
            logs = contract.log_folder(self.settings.job_folder, self.settings.trainer)
            retry_transient(lambda: logs.mkdir(parents=True, exist_ok=True))
            environment = self._environment()
            if self.cancelled.is_set():
                return
            process = subprocess.Popen(
                command, cwd=self.work / "code", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            heading = f"=== attempt {self.attempt.number} of trainer {self.settings.trainer}: {' '.join(command)}\n"
            self.copier = OutputCopier(process, logs / contract.TRAIN_LOG, heading)
        except CancelledError:
            return
        except OSError as error:
            self.start_error = f"could not start: {error.strerror or error}"
        except Exception as error:  # otherwise the launcher would wait for this thread forever
            self.start_error = f"could not start: {error if isinstance(error, LaunchError) else repr(error)}"

    def _environment(self) -> dict[str, str]:
        site, stacks = self.work / "site", self.work / "stacks"
        site.mkdir(exist_ok=True)
        shutil.rmtree(stacks, ignore_errors=True)
        stacks.mkdir()
        (site / "sitecustomize.py").write_text(SITE_CUSTOMIZE.format(signal=int(STACK_SIGNAL), stacks=str(stacks)))
        resume = self.attempt.resume
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": self.settings.nic,
            Env.DATA_DIR: str(self.work / "data"),
            Env.OUTPUT_DIR: str(self.settings.output),
            Env.PASSES: str(self.settings.passes),
            Env.RESUME_FROM: str(self.settings.output / resume) if resume else "",
        }

    @property
    def printed(self) -> float:
        """When the training last printed a line."""
        return self.copier.printed if self.copier else self.last_active

    def last_output(self) -> tuple[str, float]:
        """The last line that the training wrote, and the time when it wrote it."""
        copier = self.copier
        assert copier
        copier.join(timeout=2)
        # Paddle's launcher shows a worker's output some seconds late, and the end twice. The worker's log has its time.
        logs = (self.work / "log").glob("workerlog.*")
        written = [path.stat().st_mtime for path in logs if last_line(path) == copier.last]
        return copier.last, min(written, default=copier.when)

    def status(self) -> int | None:
        """The training's exit status; None while it runs."""
        if self.start_error:
            return 1
        return self.copier.process.poll() if self.copier else None

    def activity(self) -> tuple[float, bool]:
        """When the training last used the CPU, and whether a process of it is suspended."""
        states = [process_state(process) for process in descendants()]
        ticks = sum(used for _, used in states)
        if not self.copier or ticks != self.cpu_ticks:
            self.cpu_ticks, self.last_active = ticks, time.time()
        return self.last_active, any(state in "Tt" for state, _ in states)

    def dump_stacks(self) -> None:
        """Write the Python stack of every process of the training to its log."""
        asked = [process for process in descendants() if catches(process, STACK_SIGNAL)]
        send(asked, STACK_SIGNAL)
        send(asked, signal.SIGCONT)
        files = {process: self.work / "stacks" / str(process) for process in asked}
        deadline = time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline and not all(p.is_file() and p.stat().st_size for p in files.values()):
            time.sleep(0.1)
        for process, path in files.items():
            if self.copier and path.is_file():
                self.copier.add(f"=== Python stack of process {process}\n{path.read_text(errors='replace')}")

    def stop(self) -> None:
        """End every process: send SIGTERM, wait for the grace period, send SIGKILL."""
        self.cancelled.set()
        self.thread.join()
        deadline = time.monotonic() + GRACE_SECONDS
        send(descendants(), signal.SIGTERM)
        send(descendants(), signal.SIGCONT)
        while descendants() and time.monotonic() < deadline:
            self._reap()
        while descendants():
            send(descendants(), signal.SIGKILL)
            self._reap()
        if self.copier:
            self.copier.join(timeout=5)

    def _reap(self) -> None:
        if self.copier:
            self.copier.process.poll()
        time.sleep(0.1)


class OutputCopier(threading.Thread):
    """Copies a process's output to our own output and to its log. If the log's disk is full, the training goes on."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path, heading: str) -> None:
        super().__init__(daemon=True)
        self.process, self.path = process, path
        self.last, self.when = "", time.time()
        self.printed = time.time()
        self.file: BinaryIO | None = None
        self.lock = threading.Lock()
        try:
            self.file = retry_transient(lambda: path.open("ab", buffering=0))
        except OSError as error:
            log(f"{path} cannot be written: {error}")
        self._write(heading.encode())
        self.start()

    def run(self) -> None:
        """Copy until the process and all that it started have closed their output."""
        assert self.process.stdout
        with self.process.stdout as stream:
            for line, is_start in pieces(stream):
                self.printed = time.time()
                if is_start and (cause := possible_cause(line)):
                    self.last, self.when = cause, self.printed
                with self.lock:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
                    self._write(line)

    def add(self, text: str) -> None:
        """Add the launcher's own text to the output."""
        with self.lock:
            sys.stdout.buffer.write(text.encode())
            sys.stdout.flush()
            self._write(text.encode())

    def _write(self, content: bytes) -> None:
        if not self.file:
            return
        try:
            retry_transient(lambda: self.file and self.file.write(content))
        except OSError as error:
            log(f"{self.path} cannot be written: {error}")
            self.file = None


def pieces(stream: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The lines of the stream, long ones in pieces of limited size; and whether each piece starts a line."""
    is_start = True
    for piece in iter(lambda: stream.readline(LINE_BYTES), b""):
        yield piece, is_start
        is_start = piece.endswith(b"\n")


def possible_cause(line: bytes) -> str:
    """The line, shortened, if it may be the cause of a failure; else empty."""
    text = line[: 4 * 300].decode(errors="replace").strip()
    return "" if text.startswith(NOISE) or INFORMATION.match(text) else text[:300]


def last_line(path: Path) -> str:
    """The last line of a file that may be the cause of a failure."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return next(filter(None, map(possible_cause, reversed(file.readlines()))), "")
