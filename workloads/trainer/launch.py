"""Run this pod's trainer as one of a gang: find the others, train, and start again together when one is lost.

How the launchers agree. A trainer is known by its id (the pod's completion index) and, as a member of the gang, by
its pod's UID. Every launcher watches the Job's pods, and all share the volume. Rank 0's launcher alone decides: once
all N pods run it writes `gang/attempt.json` (the attempt's number, each member's UID and address, the newest complete
pass), and every launcher named there starts its training. A launcher whose training ends writes the status to
`gang/trainer-<id>.json`. When any training failed, or a member's pod is failed, going or replaced, rank 0 writes the
next attempt as soon as N pods run again; every launcher stops its training when it sees a member lost or the attempt
superseded, and joins the next one. When all N trainings ended with 0, rank 0 writes the verdict `finished` and every
launcher exits 0; when MAX_ATTEMPTS in a row brought no new pass, or a pod did not come in PEER_TIMEOUT_SECONDS, the
verdict is `failed` with the reason, and every launcher exits non-zero. Each attempt has a port of its own (they take
turns), so a straggler of the last one cannot meet the next. Files appear whole (renamed) and have one writer each; an
old reading costs a moment, never a wrong step, because numbers only grow and UIDs are never used twice.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Mapping

import kube

POLL_SECONDS = 0.5
SETTLE_SECONDS = 3.0  # after a failure, for the API server to tell whether a pod went with it
GRACE_SECONDS = 20.0  # less than the pod's own 30


class LaunchError(Exception):
    """What a person has to put right; printed as one line."""


@dataclass(frozen=True)
class Settings:
    """The training pod's environment."""

    job: str
    namespace: str
    root: Path
    code: Path
    trainers: int
    threads: int
    nic: str
    port: int
    ports: int
    ports_sparse: int
    pod_uid: str
    pod_ip: str
    index: int | None
    passes: int
    max_attempts: int
    peer_timeout: float
    arguments: tuple[str, ...]

    @property
    def output(self) -> Path:
        """Where passes and logs go."""
        return self.root / "output"

    @property
    def gang(self) -> Path:
        """Where the launchers leave word for each other."""
        return self.root / "gang"


@dataclass(frozen=True)
class Pod:
    """What matters of a pod of the Job."""

    uid: str
    name: str
    ip: str
    index: int | None
    phase: str
    going: bool
    created: str
    job_uid: str
    note: str

    @property
    def ready(self) -> bool:
        """Whether its launcher can be met."""
        return self.phase == "Running" and bool(self.ip) and not self.going


@dataclass(frozen=True)
class Attempt:
    """What rank 0 decided, as written in gang/attempt.json."""

    job_uid: str = ""
    number: int = 0
    tries: int = 0  # attempts in a row that began at the same pass
    members: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    resume: str = ""
    reason: str = ""
    verdict: str = ""


def say(message: str) -> None:
    """Print at once, with the time."""
    print(f"{time.strftime('%H:%M:%S')} launch: {message}", flush=True)


def read_settings(env: Mapping[str, str], arguments: list[str]) -> Settings:
    """The settings, or a LaunchError that names the variable."""

    def text(name: str) -> str:
        if not env.get(name):
            raise LaunchError(f"{name} is not set: the training Job must give it")
        return env[name]

    def number(name: str, least: int = 0) -> int:
        if not text(name).isdigit() or int(env[name]) < least:
            raise LaunchError(f"{name} is {env[name]!r}: it must be a whole number of at least {least}")
        return int(env[name])

    root = Path(text("JOB_PATH")) / text("JOB_NAME")
    nics = [name for _, name in socket.if_nameindex()]
    if text("CONF_PADDLE_NIC") not in nics:
        raise LaunchError(f"CONF_PADDLE_NIC is {env['CONF_PADDLE_NIC']!r}, but this pod has only {', '.join(nics)}")
    return Settings(
        job=text("JOB_NAME"),
        namespace=text("JOB_NAMESPACE"),
        root=root,
        code=root / text("TRAIN_CONFIG_DIR"),
        trainers=number("CONF_PADDLE_GRADIENT_NUM", 1),
        threads=number("TRAINER_COUNT", 1),
        nic=text("CONF_PADDLE_NIC"),
        port=number("CONF_PADDLE_PORT", 1),
        ports=number("CONF_PADDLE_PORTS_NUM", 1),
        ports_sparse=number("CONF_PADDLE_PORTS_NUM_SPARSE"),
        pod_uid=text("POD_UID"),
        pod_ip=text("POD_IP"),
        index=number("JOB_COMPLETION_INDEX") if env.get("JOB_COMPLETION_INDEX") else None,
        passes=number("PASSES", 1),
        max_attempts=number("MAX_ATTEMPTS", 1),
        peer_timeout=number("PEER_TIMEOUT_SECONDS", 1),
        arguments=tuple(arguments),
    )


# The gang, as the API server tells it


def read_pod(item: dict[str, Any]) -> Pod:
    """The pod, and in `note` why it does not run, as far as Kubernetes says."""
    metadata, status = item["metadata"], item.get("status", {})
    index = metadata.get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    notes = [
        f"{c.get('reason', '')}: {c.get('message', '')}" for c in status.get("conditions", []) if c["status"] == "False"
    ]
    for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        state = container.get("state", {})
        notes += [
            f"{s.get('reason', '')} {s.get('exitCode', '')}".strip()
            for s in (state.get("waiting"), state.get("terminated"))
            if s
        ]
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        ip=status.get("podIP", ""),
        index=int(index) if index is not None else None,
        phase=status.get("phase", "Pending"),
        going="deletionTimestamp" in metadata,
        created=metadata.get("creationTimestamp", ""),
        job_uid=next((o["uid"] for o in metadata.get("ownerReferences", []) if o["kind"] == "Job"), ""),
        note=notes[-1] if notes else "",
    )


class Gang:
    """The Job's pods as last told by the API server; a thread keeps them up to date."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.items: dict[str, Any] = {}
        self.trouble = ""
        self.changed = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        path = f"/api/v1/namespaces/{self.settings.namespace}/pods"
        for items in kube.follow(path, {"labelSelector": f"job-name={self.settings.job}"}, self._tell):
            self.items, self.trouble = items, ""
            self.changed.set()

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            say(trouble)
        self.trouble = trouble

    def wait(self) -> None:
        """Until something changed, or a moment passed."""
        self.changed.wait(POLL_SECONDS)
        self.changed.clear()

    def pods(self) -> list[Pod]:
        """The pods of the Job that this pod belongs to."""
        pods = [read_pod(item) for item in self.items.values()]
        mine = next((pod.job_uid for pod in pods if pod.uid == self.settings.pod_uid), None)
        return [pod for pod in pods if pod.job_uid == mine]


def holders(pods: list[Pod], settings: Settings) -> list[Pod | None]:
    """For each trainer id the pod that holds it now: by completion index, else by address once all are there."""
    if settings.index is None:
        ready = sorted((pod for pod in pods if pod.ready), key=lambda pod: pod.ip)
        return [*ready, *[None] * (settings.trainers - len(ready))]
    newest: list[Pod | None] = [None] * settings.trainers
    for pod in sorted(pods, key=lambda pod: (not pod.going and pod.phase != "Failed", pod.created)):
        if pod.index is not None and pod.index < settings.trainers:
            newest[pod.index] = pod
    return newest


def complete(gang: list[Pod | None]) -> list[Pod]:
    """The gang if every trainer's pod runs, else nothing."""
    ready = [pod for pod in gang if pod and pod.ready]
    return ready if len(ready) == len(gang) else []


def describe_missing(gang: list[Pod | None]) -> str:
    """Which trainers are not there, and why; the first few by name."""
    missing = [(i, pod) for i, pod in enumerate(gang) if not pod or not pod.ready]
    named = [
        f"trainer {i}: {f'{pod.name} {pod.phase} {pod.note}'.strip() if pod else 'no pod'}" for i, pod in missing[:5]
    ]
    more = [f"and {len(missing) - 5} more"] if len(missing) > 5 else []
    return f"{len(gang) - len(missing)} of {len(gang)} pods run; " + "; ".join(named + more)


def describe_lost(attempt: Attempt, pods: list[Pod]) -> str:
    """Which member of the attempt is lost, or nothing."""
    by_uid = {pod.uid: pod for pod in pods}
    for trainer, uid in enumerate(attempt.members):
        pod = by_uid.get(uid)
        if not pod:
            return f"trainer {trainer}'s pod is gone"
        if pod.going:
            return f"trainer {trainer}'s pod {pod.name} is being deleted"
        if pod.phase == "Failed":
            return f"trainer {trainer}'s pod {pod.name} failed {pod.note}".strip()
    return ""


# The volume


def read_json(path: Path) -> dict[str, Any]:
    """The file's content, empty when there is none."""
    # O_CREAT: an NFS client may answer "no such file" from memory for a minute, but creates at the server.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644)) as stream:
        content = stream.read()
    value: dict[str, Any] = json.loads(content) if content else {}
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace the file whole."""
    aside = path.with_name(f".{path.name}")
    with aside.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(path)


def read_attempt(settings: Settings) -> Attempt:
    """The attempt that rank 0 last wrote."""
    value = read_json(settings.gang / "attempt.json")
    for name in {"members", "addresses"} & value.keys():
        value[name] = tuple(value[name])
    return Attempt(**value)


def flaw(folder: Path) -> str:
    """Why the pass cannot be resumed from, or nothing."""
    done = folder / "done"
    if not done.is_file():
        return "it has no done marker"
    try:
        files = json.loads(done.read_text())["files"]
    except (ValueError, KeyError, TypeError):
        return ""  # a marker that lists no files, as other training code may write it, vouches for them
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != expected["bytes"]:
            return f"{name} does not have its {expected['bytes']} bytes"
        digest = sha256()
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != expected["sha256"]:
            return f"{name} does not have its checksum"
    return ""


def newest_pass(output: Path) -> str:
    """The name of the newest complete pass; one with a flaw is skipped, aloud."""
    for folder in sorted(output.glob("pass-[0-9]*"), reverse=True):
        problem = flaw(folder)
        if not problem:
            return folder.name
        say(f"{folder.name} is skipped: {problem}")
    return ""


def copy_in(settings: Settings, trainer: int, work: Path) -> None:
    """Copy this trainer's shard and the training code into the container."""
    shard = settings.root / "data" / str(trainer)
    if not shard.is_dir():
        raise LaunchError(f"the shard {shard} is missing: run the data Job again with SPLIT_COUNT={settings.trainers}")
    extra = settings.root / "data" / str(settings.trainers)
    if extra.exists():
        raise LaunchError(
            f"{extra} exists: the data is split for more than {settings.trainers} trainers; run the data Job again"
        )
    if not settings.code.is_dir():
        raise LaunchError(f"the training code {settings.code} is missing: run the data Job again")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(settings.code, work / "code")
    shutil.copytree(shard, work / "data")


# The training


def launch_commands(settings: Settings, attempt: Attempt, trainer: int, work: Path) -> dict[str, list[str]]:
    """What to run, by the name of its log: today's paddle, or the parameter servers of the old one."""
    port = settings.port + attempt.number % (settings.ports + settings.ports_sparse)
    paddle = find_spec("paddle")
    if paddle and any((Path(folder) / "distributed").is_dir() for folder in paddle.submodule_search_locations or []):
        if not (work / "code" / "train.py").is_file():
            raise LaunchError(f"the training code {settings.code} has no train.py")
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "1"]
        launcher += ["--ips", ",".join(attempt.addresses), "--start_port", str(port), "--host", settings.pod_ip]
        launcher += ["--job_id", f"{settings.job}-{attempt.number}", "--log_dir", str(work / "log"), "train.py"]
        return {"train.log": [*launcher, *settings.arguments]}
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
        next_pass = int(attempt.resume[len("pass-") :]) + 1
        trainee += [f"--init_model_path={settings.output / attempt.resume}", f"--start_pass={next_pass}"]
    return {"server.log": server, "train.log": [*trainee, *settings.arguments]}


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
            "OMP_NUM_THREADS": str(settings.threads),
            **os.environ,
            "GLOO_SOCKET_IFNAME": settings.nic,
            "DATA_DIR": str(work / "data"),
            "OUTPUT_DIR": str(settings.output),
            "PASSES": str(settings.passes),
            "RESUME_FROM": str(settings.output / attempt.resume) if attempt.resume else "",
        }
        logs = settings.output / f"node_{trainer}"
        logs.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.copiers: list[threading.Thread] = []
        for log, command in launch_commands(settings, attempt, trainer, work).items():
            process = subprocess.Popen(
                command, cwd=work / "code", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            heading = f"=== attempt {attempt.number} of trainer {trainer}: {' '.join(command)}\n"
            copier = threading.Thread(target=tee, args=(process, logs / log, heading), daemon=True)
            copier.start()
            self.processes.append(process)
            self.copiers.append(copier)

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


def tee(process: subprocess.Popen[bytes], log: Path, heading: str) -> None:
    """Copy what the process prints to our output and to the log; a full disk costs the log, not the training."""
    assert process.stdout
    with process.stdout as stream:
        try:
            with log.open("ab", buffering=0) as file:
                file.write(heading.encode())
                for line in stream:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
                    file.write(line)
        except OSError as error:
            say(f"{log} cannot be written: {error}")
        for line in stream:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()


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


# The agreement


class Launcher:
    """One launcher's part in the agreement, from rendezvous to verdict."""

    def __init__(self, settings: Settings, work: Path) -> None:
        self.settings = settings
        self.work = work
        self.gang = Gang(settings)
        self.terminated = False
        self.joined = 0
        self.status = 0
        settings.gang.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: Any) -> None:
        self.terminated = True

    def run(self) -> int:
        """Take part in attempt after attempt until a verdict, and return the exit status."""
        reason = ""
        while True:
            attempt, trainer = self.rendezvous(reason)
            if attempt.verdict:
                say(f"{attempt.verdict}: {attempt.reason}")
                return 0 if attempt.verdict == "finished" else self.status % 256 or 1
            if not self.terminated:
                reason = self.take_part(attempt, trainer)
            if self.terminated:
                say("told to stop (SIGTERM)")
                return 128 + signal.SIGTERM

    def rendezvous(self, reason: str) -> tuple[Attempt, int]:
        """The next attempt that this pod is in and its trainer id there, or the verdict; rank 0 decides both."""
        settings, said, began = self.settings, "", time.monotonic()
        settled = began + SETTLE_SECONDS if self.joined else began
        while not self.terminated:
            pods = self.gang.pods()
            gang = holders(pods, settings)
            ready = complete(gang)
            trainer = next((i for i, pod in enumerate(gang) if pod and pod.uid == settings.pod_uid), None)
            attempt = read_attempt(settings)
            if not pods or attempt.job_uid != pods[0].job_uid:
                attempt = Attempt(job_uid=pods[0].job_uid if pods else "")
            if attempt.verdict:
                return attempt, -1
            if trainer is not None and not self.joined:
                self.own_up(trainer)
            if trainer == 0 and time.monotonic() >= settled and (ready or self.is_last(attempt)):
                return self.decide(attempt, ready, reason), 0
            if trainer and ready and attempt.number > self.joined and attempt.members == tuple(p.uid for p in ready):
                return attempt, trainer
            waiting = "all pods run; trainer 0 decides" if ready else describe_missing(gang)
            if waiting != said:
                say(f"waiting: {waiting}")
                said = waiting
            if time.monotonic() - began > settings.peer_timeout:
                missing = f"after {settings.peer_timeout:.0f} s: {waiting} {self.gang.trouble}".strip()
                if trainer != 0:
                    raise LaunchError(missing)
                return self.announce(replace(attempt, verdict="failed", reason=missing)), 0
            self.gang.wait()
        return Attempt(), -1

    def own_up(self, trainer: int) -> None:
        """If this container was started again in its pod, the attempt that its last life had joined has failed."""
        report = read_json(self.report_path(trainer))
        if report.get("uid") == self.settings.pod_uid:
            self.joined = report["attempt"]
            self.report(trainer, 1, "its launcher was started again")

    def is_last(self, attempt: Attempt) -> bool:
        """Whether no further attempt may follow this one."""
        if attempt.tries < self.settings.max_attempts:
            return False
        return newest_pass(self.settings.output) == attempt.resume

    def decide(self, previous: Attempt, ready: list[Pod], reason: str) -> Attempt:
        """As rank 0: write the attempt that follows the previous one, or the verdict when there may be none."""
        if previous.number and not reason:
            reason = "trainer 0's launcher was started again"
        if self.is_last(previous):
            reason = f"{previous.tries} attempts in a row brought no new pass; the last: {reason}"
            return self.announce(replace(previous, verdict="failed", reason=reason))
        resume = newest_pass(self.settings.output)
        return self.announce(
            Attempt(
                job_uid=ready[0].job_uid,
                number=previous.number + 1,
                tries=previous.tries + 1 if resume == previous.resume else 1,
                members=tuple(pod.uid for pod in ready),
                addresses=tuple(pod.ip for pod in ready),
                resume=resume,
                reason=reason,
            )
        )

    def announce(self, attempt: Attempt) -> Attempt:
        """Tell every launcher."""
        write_json(self.settings.gang / "attempt.json", asdict(attempt))
        return attempt

    def report_path(self, trainer: int) -> Path:
        """Where the launcher of this trainer leaves word for rank 0's."""
        return self.settings.gang / f"trainer-{trainer}.json"

    def report(self, trainer: int, status: int | None, reason: str) -> None:
        """Tell rank 0 how this trainer fares in the attempt it joined; no status while it trains."""
        word = {"uid": self.settings.pod_uid, "attempt": self.joined, "status": status, "reason": reason}
        write_json(self.report_path(trainer), word)
        if status is not None:
            say(f"trainer {trainer} {reason}")

    def take_part(self, attempt: Attempt, trainer: int) -> str:
        """Train until the attempt is over, for whatever reason; that is returned."""
        settings = self.settings
        resumed = f"from {attempt.resume}" if attempt.resume else "from the beginning"
        because = f" because {attempt.reason}" if attempt.reason else ""
        say(f"attempt {attempt.number}: trainer {trainer} of {settings.trainers} starts {resumed}{because}")
        self.joined, self.status = attempt.number, 0
        self.report(trainer, None, "")
        training: Training | None = None
        ended = False
        finished: set[int] = set()
        try:
            copy_in(settings, trainer, self.work)
            training = Training(settings, attempt, trainer, self.work)
        except (LaunchError, OSError, shutil.Error) as error:
            ended = True
            self.report(trainer, 1, f"could not start: {error}")
        try:
            while not self.terminated:
                self.gang.wait()
                status = training.status() if training and not ended else None
                if status is not None:
                    ended, self.status = True, status
                    self.report(trainer, status, describe_status(status))
                latest = read_attempt(settings)
                if latest.job_uid == attempt.job_uid and (latest.number > attempt.number or latest.verdict):
                    return latest.reason
                reason = describe_lost(attempt, self.gang.pods())
                if trainer == 0 and not reason:
                    reason = self.hear(attempt, finished)
                    if len(finished) == settings.trainers:
                        done = (
                            f"all {settings.trainers} trainers ended well; newest pass: {newest_pass(settings.output)}"
                        )
                        self.announce(replace(attempt, verdict="finished", reason=done))
                if reason:
                    say(f"attempt {attempt.number} is over: {reason}")
                    return reason
            self.report(trainer, 128 + signal.SIGTERM, "was told to stop")
            return ""
        finally:
            if training:
                training.stop()

    def hear(self, attempt: Attempt, finished: set[int]) -> str:
        """As rank 0: note which trainers ended well in this attempt; return the first failure, or nothing."""
        for trainer in set(range(self.settings.trainers)) - finished:
            word = read_json(self.report_path(trainer))
            if word.get("attempt") != attempt.number or word.get("uid") != attempt.members[trainer]:
                continue
            if word["status"] == 0:
                finished.add(trainer)
            elif word["status"] is not None:
                return f"trainer {trainer} {word['reason']}"
        return ""


def main() -> int:
    """Launch, and turn what a person can mend into one line."""
    adopt_orphans()
    try:
        settings = read_settings(os.environ, sys.argv[1:])
        with tempfile.TemporaryDirectory() as work:
            return Launcher(settings, Path(work) / "trainer").run()
    except (LaunchError, OSError) as error:
        print(f"launch.py: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
