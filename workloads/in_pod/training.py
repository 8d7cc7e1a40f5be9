"""The training itself: this trainer's copy of data and code, the commands, and the processes until they are gone."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import contract
from checkpoints import Attempt
from contract import Env
from trainer_settings import LaunchError, Settings, say

DEVICES = Path("/dev")
TAIL_BYTES = 4096
GRACE_SECONDS = 20.0  # less than the pod's own 30


def copy_in(settings: Settings, trainer: int, work: Path) -> None:
    """Copy this trainer's shard and the training code into the container."""
    shard = contract.shard(settings.root, trainer)
    if not shard.is_dir():
        needed = f"the data must be split for {settings.trainers} trainers"
        raise LaunchError(f"the shard {shard} is missing: {needed}; run the data Job again")
    extra = contract.shard(settings.root, settings.trainers)
    if extra.exists():
        raise LaunchError(
            f"{extra} exists: the data is split for more than {settings.trainers} trainers; run the data Job again"
        )
    if not settings.code.is_dir():
        raise LaunchError(f"the training code {settings.code} is missing: run the data Job again")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(settings.code, work / "code")
    shutil.copytree(shard, work / "data")


def launch_commands(settings: Settings, attempt: Attempt, trainer: int, work: Path) -> dict[str, list[str]]:
    """What to run, by the name of its log: today's paddle, or the parameter servers of the old one."""
    port = settings.port + attempt.number % (settings.ports + settings.ports_sparse)
    paddle = find_spec("paddle")
    if paddle and any((Path(folder) / "distributed").is_dir() for folder in paddle.submodule_search_locations or []):
        if not (work / "code" / "train.py").is_file():
            raise LaunchError(f"the training code {settings.code} has no train.py")
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(processes_per_pod())]
        launcher += ["--log_level", "WARNING", "--log_dir", str(work / "log")]
        launcher += ["--ips", ",".join(attempt.addresses), "--start_port", str(port), "--host", settings.pod_ip]
        launcher += ["--job_id", f"{settings.job}-{attempt.number}", "train.py"]
        return {contract.TRAIN_LOG: [*launcher, *settings.arguments]}
    if not shutil.which("paddle"):
        raise LaunchError("this image has no paddle: neither the Python package nor the old `paddle` command")
    network = [f"--nics={settings.nic}", f"--port={settings.port}", f"--ports_num={settings.ports}"]
    network += [f"--ports_num_for_sparse={settings.ports_sparse}", "--comment=paddle_process_by_paddle"]
    server = ["paddle", "pserver", *network, f"--num_gradient_servers={settings.trainers}"]
    trainee = ["paddle", "train", *network, f"--pservers={','.join(attempt.addresses)}", f"--trainer_id={trainer}"]
    trainee += [f"--trainer_count={settings.threads}", f"--num_passes={settings.passes}", "--local=0"]
    trainee += ["--use_gpu=0", f"--save_dir={settings.output}"]
    if not any(argument.startswith("--config") for argument in settings.arguments):
        trainee += [f"--config={find_config(work / 'code')}"]
    if attempt.resume:
        next_pass = (contract.checkpoint_number(attempt.resume) or 0) + 1
        trainee += [f"--init_model_path={settings.output / attempt.resume}", f"--start_pass={next_pass}"]
    return {contract.SERVER_LOG: server, contract.TRAIN_LOG: [*trainee, *settings.arguments]}


def processes_per_pod() -> int:
    """One for each GPU that the container has, or one on the CPU."""
    return len(list(DEVICES.glob("nvidia[0-9]*"))) or 1


def find_config(code: Path) -> str:
    """The one trainer configuration of the old paddle in the folder."""
    found = sorted(path.name for path in code.glob("trainer_config*.py"))
    if len(found) != 1:
        raise LaunchError(
            f"{code.name} must have one trainer_config*.py, or --config must be given: it has {found or 'none'}"
        )
    return found[0]


class Training:
    """The training processes of one attempt; nothing of them is left after stop()."""

    def __init__(self, settings: Settings, attempt: Attempt, trainer: int, work: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": settings.nic,
            Env.DATA_DIR: str(work / "data"),
            Env.OUTPUT_DIR: str(settings.output),
            Env.PASSES: str(settings.passes),
            Env.RESUME_FROM: str(settings.output / attempt.resume) if attempt.resume else "",
        }
        logs = contract.log_folder(settings.root, trainer)
        logs.mkdir(parents=True, exist_ok=True)
        self.worker_logs = work / "log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.copiers: list[Tee] = []
        for log, command in launch_commands(settings, attempt, trainer, work).items():
            process = subprocess.Popen(
                command, cwd=work / "code", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            heading = f"=== attempt {attempt.number} of trainer {trainer}: {' '.join(command)}\n"
            self.processes.append(process)
            self.copiers.append(Tee(process, logs / log, heading))

    def last_words(self) -> tuple[str, float]:
        """The last line that the training wrote, and when."""
        copier = self.copiers[-1]
        copier.join(timeout=2)
        # Paddle's launcher shows what its workers write when it next looks, and the end of it twice.
        logs = self.worker_logs.glob("workerlog.*")
        written = [log.stat().st_mtime for log in logs if last_line(log) == copier.last]
        return copier.last, min(written, default=copier.when)

    def status(self) -> int | None:
        """The training's exit status; a parameter server that ends first has failed."""
        *servers, trainee = (process.poll() for process in self.processes)
        if trainee is not None:
            return trainee
        return next((status or 1 for status in servers if status is not None), None)

    def stop(self) -> None:
        """End every process: SIGTERM, a time of grace, SIGKILL."""
        deadline = time.monotonic() + GRACE_SECONDS
        send(descendants(), signal.SIGTERM)
        while descendants() and time.monotonic() < deadline:
            self.reap()
        while descendants():
            send(descendants(), signal.SIGKILL)
            self.reap()
        for copier in self.copiers:
            copier.join(timeout=5)

    def reap(self) -> None:
        """Take notice of ended processes."""
        for process in self.processes:
            process.poll()
        time.sleep(0.1)


class Tee(threading.Thread):
    """Copies what a process prints to our output and to its log; a full disk costs the log, not the training."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, heading: str) -> None:
        super().__init__(daemon=True)
        self.process, self.log, self.heading = process, log, heading
        self.last, self.when = "", time.time()
        self.start()

    def run(self) -> None:
        """Until the process and all that it started have closed their output."""
        assert self.process.stdout
        with self.process.stdout as stream:
            try:
                with self.log.open("ab", buffering=0) as file:
                    file.write(self.heading.encode())
                    for line in stream:
                        self.show(line)
                        file.write(line)
            except OSError as error:
                say(f"{self.log} cannot be written: {error}")
            for line in stream:
                self.show(line)

    def show(self, line: bytes) -> None:
        """Print the line, and keep it if it may tell why the training ended."""
        sys.stdout.buffer.write(line)
        sys.stdout.flush()
        if words := telling(line):
            self.last, self.when = words, time.time()


def telling(line: bytes) -> str:
    """What a line may tell of why the training ended; nothing if it is paddle's launcher's own."""
    text = line.decode(errors="replace").strip()
    return "" if text.startswith("LAUNCH ") else text[:300]


def last_line(log: Path) -> str:
    """The last line of a file that tells something."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return next(filter(None, map(telling, reversed(file.readlines()))), "")


def adopt_orphans() -> None:
    """Make this process the parent of all that its children leave behind, as it is anyway as a container's first."""
    set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def descendants() -> list[int]:
    """Every living process below this one. Paddle puts its workers in sessions of their own, so a group is no help."""
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


def send(processes: list[int], number: signal.Signals) -> None:
    """Signal the processes that still are."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def describe_status(status: int) -> str:
    """An exit status in words; paddle's launcher turns `killed by N` into 256 - N."""
    killed = -status if status < 0 else 256 - status if 256 - 65 < status < 256 else 0
    return f"was killed by signal {killed}" if killed else f"ended with status {status}"
