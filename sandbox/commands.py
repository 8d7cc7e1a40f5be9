"""The sandbox of one checkout as a whole: up, down, status. Whatever state it is in, `up` goes on from there."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox import build, processes, progress
from sandbox.cloud.emulated_aws import EmulatedAws
from sandbox.cluster import pod_networks
from sandbox.cluster.control_plane import ControlPlane, WorkerNode
from sandbox.engine import stack_file
from sandbox.engine.cli import Engine
from sandbox.errors import SandboxError
from sandbox.node.workers import Workers
from sandbox.paths import CHECKOUT
from sandbox.plugins import choice
from sandbox.progress import say, step

FOLDER = CHECKOUT / ".sandbox"
DEAD = "dead: `make sandbox` restarts it"


@dataclass(frozen=True)
class Sandbox:
    """What one stack runs on: its checkout's engine and AWS, a Kubernetes and workers of its own."""

    stack: stack_file.Stack
    engine: Engine
    aws: EmulatedAws
    binaries: Path
    kubernetes: ControlPlane
    workers: Workers

    @property
    def settled(self) -> Path:
        """There as long as the recorded state is known to be what AWS and Kubernetes hold."""
        return FOLDER / "stacks" / self.stack.name / "settled"

    def pulumi(self, *arguments: str) -> int:
        """Run the engine before the person's eyes, and keep alive what it talks to."""
        return self.engine.show(*arguments, meanwhile=self._heal)

    def _heal(self) -> None:
        # A killed AWS has lost all it held: the engine fails of it, and the next `up` begins anew.
        if self.kubernetes.kubeconfig.exists() and (dead := self.kubernetes.dead()):
            self.kubernetes.restart(self.binaries)
            say(f"{', '.join(dead)} of Kubernetes ended, and was restarted")


def up(name: str) -> int:
    """Start what does not run, then have the engine make the stack."""
    began = time.monotonic()
    with _alone():
        sandbox = _assemble(stack_file.load(name))
        endpoint = _start(sandbox)
        code = sandbox.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs")
        if code:
            raise SandboxError(
                f"`pulumi up` failed; the reason is above, logs of the pods are in {sandbox.workers.root}"
            )
        sandbox.settled.touch()
        changed = {kind: count for kind, count in sandbox.engine.last_changes().items() if kind != "same"}
        _tell(sandbox, endpoint, changed, time.monotonic() - began)
    return 0


def down() -> int:
    """Destroy every stack that was made, then stop and remove all that `up` started."""
    if not FOLDER.exists():
        print("no sandbox here: nothing to stop")
        return 0
    with _alone():
        for made in _made_stacks():
            sandbox = _assemble(stack_file.load(made))
            if sandbox.engine.resources():
                _start(sandbox)
                # The preview refuses protected data before anything is gone.
                if sandbox.pulumi("destroy", "--yes", "--suppress-outputs"):
                    raise SandboxError(
                        f"`pulumi destroy` of {made} failed; the reason is above, and nothing was stopped"
                    )
        with step("stopping AWS, the workers and Kubernetes"):
            _stop_clusters(Path(sys.executable))
            EmulatedAws(Path(sys.executable), FOLDER).stop()
            shutil.rmtree(FOLDER)
    print("nothing is left of the sandbox but the cache of built tools in", build.cache())
    return 0


def pulumi(name: str, arguments: Sequence[str]) -> int:
    """Any command of the engine, on the stack that runs here."""
    sandbox = _assemble(stack_file.load(name))
    if not sandbox.engine.config.exists():
        raise SandboxError(f"{name} was not started here: run `make sandbox` first")
    with _alone():
        return sandbox.pulumi(*arguments)


def status() -> int:
    """What runs, since when, with pids and ports."""
    rows: list[tuple[str, str, str, str, str]] = []
    for record in sorted((FOLDER / "run").glob("*.json")):
        process = processes.last(FOLDER / "run", record.stem)
        if process and (process.alive or record.stem != "engine"):
            since = _ago(process.since) if process.alive else DEAD
            rows.append((process.name, "-", str(process.pid), str(process.port or "-"), since))
    for folder in _clusters():
        control_plane = ControlPlane(folder)
        dead = control_plane.dead()
        for component, pid in control_plane.pids().items():
            port = str(control_plane.port) if component == "kube-apiserver" else "-"
            since = DEAD if component in dead else _ago(control_plane.started(component))
            rows.append((component, folder.parent.name, str(pid), port, since))
    if not rows:
        print("nothing runs here; `make sandbox` starts it")
        return 1
    for row in [("what", "stack", "pid", "port", "since"), *rows]:
        print("{:<26}{:<12}{:>8}{:>8}  {}".format(*row))
    return 0


def _assemble(settings: stack_file.Stack) -> Sandbox:
    """Everything that is needed, built or installed now if it is not there."""
    path = [] if shutil.which("pulumi") else [build.engine()]
    binaries, python = build.control_plane(), build.python()
    path += [binaries, python.parent]
    folder = FOLDER / "stacks" / settings.name
    return Sandbox(
        settings,
        Engine(FOLDER, path, settings.name, folder / f"Pulumi.{settings.name}.yaml"),
        EmulatedAws(python, FOLDER),
        binaries,
        ControlPlane(folder / "kubernetes"),
        Workers(python, FOLDER, settings.name),
    )


def _start(sandbox: Sandbox) -> str:
    """Have AWS, Kubernetes and the workers run, and the engine know them; AWS's address."""
    sandbox.engine.heal()
    aws = sandbox.aws.running()
    if why := _why_begin_anew(sandbox, aws):
        with step(f"{why}: beginning anew") as shown:
            shown.note("what it held is gone, and Kubernetes' objects with it")
            _stop_clusters(sandbox.aws.python)
            sandbox.aws.stop()
            shutil.rmtree(sandbox.engine.state)
            aws = None
    sandbox.engine.select()
    _lay_plugins(sandbox)
    why_simulated = sandbox.workers.why_not()
    with step("Kubernetes") as shown:
        shown.note(sandbox.kubernetes.up(sandbox.binaries, simulate_pods=bool(why_simulated)))
        sandbox.kubernetes.set_nodes(_nodes(sandbox.stack, pod_networks.claim(sandbox.kubernetes.folder)))
    with step("AWS") as shown:
        shown.note("runs already" if aws else "started")
        aws = aws or sandbox.aws.start()
    endpoint = f"http://127.0.0.1:{aws.port}"
    if why_simulated:
        say(f"{why_simulated}: they are simulated")
    else:
        with step("workers"):
            sandbox.workers.start(sandbox.kubernetes.kubeconfig, endpoint)
    stack_file.write(sandbox.stack, sandbox.engine.config, endpoint, sandbox.kubernetes.kubeconfig, sandbox.engine.salt)
    if sandbox.settled.exists():
        sandbox.settled.unlink()
    elif sandbox.engine.resources():
        _refresh(sandbox)
    return endpoint


def _why_begin_anew(sandbox: Sandbox, aws: processes.Process | None) -> str:
    """Why nothing that was made can be built on: AWS keeps all in its process, and what was made unrecorded would be
    made twice."""
    if not sandbox.engine.state.exists():
        return ""
    if aws is None:
        return "AWS was killed"
    lost = [made["type"] for made in sandbox.engine.unfinished() if not made["type"].startswith("kubernetes:")]
    return f"the engine was killed while it made {', '.join(lost)}" if lost else ""


def _clusters() -> list[Path]:
    return sorted((FOLDER / "stacks").glob("*/kubernetes"))


def _stop_clusters(python: Path) -> None:
    """End every stack's workers and Kubernetes, and forget them."""
    for folder in _clusters():
        Workers(python, FOLDER, folder.parent.name).stop()
        ControlPlane(folder).down()
    shutil.rmtree(FOLDER / "stacks", ignore_errors=True)


def _lay_plugins(sandbox: Sandbox) -> None:
    home = FOLDER / "home/.pulumi"
    if (home / "plugins").exists():
        return
    with step("looking for the published provider plugins") as shown:
        plugins = choice.choose(sandbox.engine.environment, os.environ)
        stand_ins = [plugin.name for plugin in plugins if plugin.emulated]
        shown.note(f"not to be had: stand-ins for {' and '.join(stand_ins)} are used" if stand_ins else "found")
    choice.install(plugins, home, sandbox.aws.python)
    if not shutil.which("pulumi-language-python"):
        choice.install_language_host(home, Path(sys.executable))


def _refresh(sandbox: Sandbox) -> None:
    """Record what is really there after a run that was broken off."""
    say("the last run was broken off: reading what is there")
    # The engine can forget what it was making, not adopt it; left there, it would be in its own way.
    for made in sandbox.engine.unfinished():
        sandbox.kubernetes.remove(made["inputs"])
    if sandbox.pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--suppress-outputs"):
        raise SandboxError("`pulumi refresh` failed; the reason is above")


def _nodes(settings: stack_file.Stack, network: int) -> list[WorkerNode]:
    zones = settings.usable("availabilityZones", list) or [f"{settings.region}a", f"{settings.region}b"]
    kind, count = settings.usable("workers.instanceType", str), settings.usable("workers.count", int)
    if count > pod_networks.NODES:
        raise SandboxError(f"workers.count: {count} is more than the {pod_networks.NODES} nodes that a machine can be")
    return [WorkerNode(i + 1, zones[i % len(zones)], kind, network) for i in range(count)]


def _made_stacks() -> list[str]:
    return sorted(file.stem for file in (FOLDER / "state").glob(".pulumi/stacks/*/*.json"))


def _ago(since: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))} ({progress.elapsed(time.time() - since)})"


@contextmanager
def _alone() -> Iterator[None]:
    """One `up` or `down` at a time in a checkout; the lock dies with whoever holds it."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError("another `up` or `down` of the sandbox runs in this checkout: wait for it") from None
        yield


def _tell(sandbox: Sandbox, endpoint: str, changed: dict[str, int], took: float) -> None:
    print()
    for key, value in sandbox.engine.outputs().items():
        if not isinstance(value, dict):
            print(f"  {key}: {value}")
            continue
        print(f"  {key}:")
        for name, each in value.items():
            print(f"    {name}: {each}")
    aws = sandbox.aws.python.with_name("aws")
    said = ", ".join(f"{count} {kind}d" for kind, count in changed.items()) or "nothing changed"
    trained = "" if sandbox.workers.running() else " Pods were simulated: nothing was trained, and there is no model."
    print(
        f"""
{said}, in {progress.elapsed(took)}.{trained}

  look around   kubectl --kubeconfig {sandbox.kubernetes.kubeconfig} get all --all-namespaces
                AWS_ACCESS_KEY_ID=sandbox AWS_SECRET_ACCESS_KEY=sandbox \\
                  {aws} --endpoint-url {endpoint} --region {sandbox.stack.region} s3 ls
  logs          {FOLDER / "logs"}, of the pods {sandbox.workers.root}
  what runs     {sys.executable} -m sandbox status
  stop          make sandbox-down
"""
    )
