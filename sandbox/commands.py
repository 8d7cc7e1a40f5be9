"""The commands of the sandbox: up, down, status and pulumi. `up` continues from any state of the sandbox."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox import build, processes, progress, summary
from sandbox.cloud.emulated_aws import EmulatedAws
from sandbox.cluster import pod_networks
from sandbox.cluster.control_plane import ControlPlane, WorkerNode
from sandbox.engine import engine_stack_file
from sandbox.engine.pulumi_cli import PulumiCli
from sandbox.errors import SandboxError
from sandbox.node.workers import Workers
from sandbox.paths import CHECKOUT, FOLDER, sandbox_command
from sandbox.plugins import choice
from sandbox.progress import report, step
from workloads.in_pod import contract

PULUMI_HOME = FOLDER / "home/.pulumi"
CONFIG_COMMANDS = ("get", "set", "set-all", "rm", "rm-all")
CHANGING_COMMANDS = ("up", "destroy", "refresh", "import")
STOPPED = "stopped (run `make sandbox`)"
PAST_TENSE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}


@dataclass(frozen=True)
class Sandbox:
    """Everything that one stack needs. Stacks share the emulated AWS; each has its own Kubernetes and workers."""

    stack: engine_stack_file.Stack
    engine: PulumiCli
    aws: EmulatedAws
    binaries: Path
    kubernetes: ControlPlane
    workers: Workers

    @property
    def last_run_succeeded(self) -> Path:
        """A marker file. If it exists, the engine's state matches the resources."""
        return FOLDER / "stacks" / self.stack.name / "last-run-succeeded"

    def pulumi(self, *arguments: str) -> int:
        """Run a Pulumi command in the user's terminal, and restart parts of Kubernetes that stop meanwhile."""
        return self.engine.run(*arguments, every_check=self._restart_kubernetes)

    def _restart_kubernetes(self) -> None:
        # The emulated AWS is not restarted here: it loses its resources when it stops. The next `up` starts over.
        if self.kubernetes.kubeconfig.exists() and (stopped := self.kubernetes.dead()):
            self.kubernetes.restart(self.binaries)
            report(f"restarted a part of Kubernetes that had stopped: {', '.join(stopped)}")


def up(name: str) -> int:
    """Start everything that is not running, then run `pulumi up`."""
    began = time.monotonic()
    with _exclusively():
        stack = engine_stack_file.load(name)
        _refuse_too_many_workers(stack)
        sandbox = _prepare(stack)
        _start(sandbox)
        report("Running `pulumi up`. With a training it takes 1 to 3 minutes.")
        # The preview of a paused stack refuses a changed Job. Without it, the finished Job would be deleted first.
        skip = [] if sandbox.stack.settings.paused else ["--skip-preview"]
        code = sandbox.pulumi("up", "--yes", *skip, "--suppress-outputs")
        if code:
            raise SandboxError(
                f"`pulumi up` failed. The reason is above. The logs of the pods are in {sandbox.workers.root}."
            )
        sandbox.last_run_succeeded.touch()
        _print_summary(sandbox, time.monotonic() - began)
    return 0


def down() -> int:
    """Destroy all stacks, stop all processes and delete their files."""
    if not FOLDER.exists():
        print("There is no sandbox in this checkout. Nothing to stop.")
        return 0
    with _exclusively():
        for name in _stacks_with_state():
            sandbox = _prepare(engine_stack_file.load(name))
            if sandbox.engine.resource_count():
                _start(sandbox)
                # Without --skip-preview: the preview refuses to delete protected data before anything is deleted.
                if sandbox.pulumi("destroy", "--yes", "--suppress-outputs"):
                    raise SandboxError(
                        f"`pulumi destroy` of stack {name} failed. The reason is above. The sandbox is still running."
                    )
        with step("stopping AWS, Kubernetes and the workers"):
            _stop_clusters(Path(sys.executable))
            EmulatedAws(Path(sys.executable), FOLDER).stop()
            shutil.rmtree(FOLDER)
    print(f"The sandbox is removed. Only the built tools remain, in {build.cache()}.")
    return 0


def pulumi(name: str, arguments: Sequence[str]) -> int:
    """Run any Pulumi command on a stack of the sandbox."""
    stack = engine_stack_file.load(name)
    _refuse_lost_settings(stack, arguments)
    _require_started(stack)
    if arguments[0] == "up":
        _refuse_too_many_workers(stack)
    sandbox = _prepare(stack)
    aws = sandbox.aws.running()
    if not _plugins_are_current(sandbox) or (aws and not sandbox.aws.is_current(aws)):
        raise SandboxError(
            f"stack {name} was started with other plugins or by another revision. Run `{_up_command(name)}` first."
        )
    with _exclusively():
        if aws:
            _pass_settings(sandbox, aws)
        if arguments[0] == "up" and sandbox.kubernetes.answers():
            _set_nodes(sandbox)
        known = sandbox.last_run_succeeded.exists()
        if arguments[0] in CHANGING_COMMANDS:
            sandbox.last_run_succeeded.unlink(missing_ok=True)
        code = sandbox.pulumi(*arguments)
        if known and code == 0:
            sandbox.last_run_succeeded.touch()
        return code


def run(name: str, command: Sequence[str]) -> int:
    """Run a command in which `aws` and `kubectl` use the sandbox."""
    stack = engine_stack_file.load(name)
    _require_started(stack)
    sandbox = _prepare(stack)
    try:
        return subprocess.run(command, env=_tool_environment(sandbox), check=False).returncode
    except FileNotFoundError:
        raise SandboxError(f"the command `{command[0]}` was not found on PATH.") from None


def status() -> int:
    """List the processes of the sandbox with their process IDs and ports."""
    rows: list[tuple[str, str, str, str, str]] = []
    for record in sorted((FOLDER / "run").glob("*.json")):
        process = processes.last(FOLDER / "run", record.stem)
        if process and (process.alive or record.stem != "engine"):
            since = _since(process.since) if process.alive else STOPPED
            rows.append((process.name, "-", str(process.pid), str(process.port or "-"), since))
    for folder in _clusters():
        control_plane = ControlPlane(folder)
        stopped = control_plane.dead()
        for component, pid in control_plane.pids().items():
            port = str(control_plane.port) if component == "kube-apiserver" else "-"
            since = STOPPED if component in stopped else _since(control_plane.started(component))
            rows.append((component, folder.parent.name, str(pid), port, since))
    if not rows:
        print("The sandbox is not running. To start it, run `make sandbox`.")
        return 1
    for row in [("process", "stack", "pid", "port", "running since"), *rows]:
        print("{:<23} {:<8} {:>7} {:>5}  {}".format(*row))
    return 0


def _refuse_lost_settings(stack: engine_stack_file.Stack, arguments: Sequence[str]) -> None:
    """Refuse commands that write settings into the copy of the stack file, which the next `up` overwrites."""
    instead = f"Run `{sandbox_command()} --stack {stack.name} pulumi config set KEY VALUE`, or edit {stack.file.name}."
    if arguments[0] == "config":
        verbs = [each for each in arguments[1:] if not each.startswith("-")]
        if verbs and verbs[0] not in CONFIG_COMMANDS:
            raise SandboxError(f"`pulumi config {verbs[0]}` does not work in the sandbox. {instead}")
        if "--secret" in arguments:
            raise SandboxError(f"--secret: the sandbox cannot read secrets of {stack.file.name}. Use a plain value.")
    elif any(each.startswith(("-c", "-yc", "--config=")) or each == "--config" for each in arguments):
        raise SandboxError(f"--config: the next `up` would forget this value. {instead}")


def _require_started(stack: engine_stack_file.Stack) -> None:
    if not _engine(stack).config.exists():
        raise SandboxError(
            f"stack {stack.name} was not started in this checkout. Run `{_up_command(stack.name)}` first. "
            f"To change a setting before, edit {stack.file.name}."
        )


def _refuse_too_many_workers(stack: engine_stack_file.Stack) -> None:
    count, most = stack.settings.workers.count, pod_networks.NODES
    if count > most:
        raise SandboxError(f"workers.count: {count} is too many. The sandbox can run up to {most}.")


def _engine(stack: engine_stack_file.Stack) -> PulumiCli:
    return PulumiCli(FOLDER, stack.name, FOLDER / "stacks" / stack.name / stack.file.name, stack.file)


def _prepare(stack: engine_stack_file.Stack) -> Sandbox:
    """Build the tools that are missing in the cache."""
    tools = build.tools()
    binaries, python = tools.control_plane, tools.python
    return Sandbox(
        stack,
        _engine(stack),
        EmulatedAws(python, FOLDER),
        binaries,
        ControlPlane(FOLDER / "stacks" / stack.name / "kubernetes"),
        Workers(python, FOLDER, stack.name),
    )


def _start(sandbox: Sandbox) -> None:
    """Start AWS, Kubernetes and the workers if they are not running."""
    sandbox.engine.clean_up_after_kill()
    aws = sandbox.aws.running()
    changed_plugins = _install_plugins(sandbox)
    if reason := _reason_to_start_over(sandbox, aws, changed_plugins):
        with step("starting over with an empty AWS and Kubernetes") as shown:
            shown.note(f"because {reason}")
            _stop_clusters(sandbox.aws.python)
            sandbox.aws.stop()
            shutil.rmtree(sandbox.engine.state, ignore_errors=True)
            aws = None
    sandbox.engine.create_stack()
    why_simulated = sandbox.workers.why_not()
    with step("starting Kubernetes") as shown:
        shown.note(sandbox.kubernetes.up(sandbox.binaries, simulate_pods=bool(why_simulated)))
        _set_nodes(sandbox)
    with step("starting the emulated AWS") as shown:
        shown.note("already running" if aws else "")
        aws = aws or sandbox.aws.start()
    if why_simulated:
        report(f"{why_simulated}. They are simulated instead.")
    else:
        with step("starting the workers"):
            sandbox.workers.start(sandbox.kubernetes.kubeconfig, _endpoint(aws))
    _pass_settings(sandbox, aws)
    if sandbox.last_run_succeeded.exists():
        sandbox.last_run_succeeded.unlink()
    elif sandbox.engine.resource_count():
        _refresh(sandbox)


def _reason_to_start_over(sandbox: Sandbox, aws: processes.Process | None, changed_plugins: list[str]) -> str:
    """Why the recorded state does not fit the emulated AWS. Empty if it does."""
    if aws and not sandbox.aws.is_current(aws):
        return "the emulated AWS was started by another revision of this checkout"
    if not sandbox.engine.state.exists():
        return ""
    if aws is None:
        return "the emulated AWS had stopped and lost its resources"
    if changed_plugins:
        return f"the stacks were created with {' and '.join(changed_plugins)}"
    return ""


def _clusters() -> list[Path]:
    return sorted((FOLDER / "stacks").glob("*/kubernetes"))


def _stop_clusters(python: Path) -> None:
    """Stop the workers and the Kubernetes of every stack, and delete their files."""
    for folder in _clusters():
        Workers(python, FOLDER, folder.parent.name).stop()
        ControlPlane(folder).down()
    shutil.rmtree(FOLDER / "stacks", ignore_errors=True)


def _plugin_code(sandbox: Sandbox) -> str:
    """The paths that the plugins start. Another revision can have its code, or its Python, at other paths."""
    code = sorted(str(file) for file in (CHECKOUT / "sandbox").glob("*/*.py"))
    return "\n".join([sys.executable, str(sandbox.aws.python), *code])


def _plugins_are_current(sandbox: Sandbox) -> bool:
    installed = PULUMI_HOME / "plugins-start.txt"
    same_code = installed.exists() and installed.read_text() == _plugin_code(sandbox)
    return same_code and choice.is_current(PULUMI_HOME, os.environ)


def _install_plugins(sandbox: Sandbox) -> list[str]:
    """Returns the former providers that were replaced: an official by an emulated one, or the other way round."""
    current = _plugins_are_current(sandbox)
    with step("choosing the provider plugins") as shown:
        plugins = choice.found(os.environ) if current else choice.choose(sandbox.engine.environment, os.environ)
        shown.note(choice.described(plugins))
    if current:
        return []
    before = choice.installed(PULUMI_HOME)
    shutil.rmtree(PULUMI_HOME / "plugins", ignore_errors=True)
    choice.install(plugins, PULUMI_HOME, sandbox.aws.python)
    if not shutil.which("pulumi-language-python"):
        choice.install_language_host(PULUMI_HOME, Path(sys.executable))
    (PULUMI_HOME / "plugins-start.txt").write_text(_plugin_code(sandbox))
    replaced = [plugin for plugin in plugins if before.get(plugin.name, plugin.emulated) != plugin.emulated]
    return [f"the {'official' if plugin.emulated else 'emulated'} {plugin.name} provider" for plugin in replaced]


def _refresh(sandbox: Sandbox) -> None:
    """Update the engine's state with the resources that exist, after an interrupted run."""
    report("The last run did not finish. Reading which resources exist.")
    if sandbox.engine.deployment().get("pending_operations"):
        _recover(sandbox)
    elif sandbox.pulumi("refresh", "--yes", "--skip-preview", "--suppress-outputs"):
        raise SandboxError("`pulumi refresh` failed. The reason is above.")


def _recover(sandbox: Sandbox) -> None:
    command = [
        str(sandbox.aws.python),
        "-m",
        "tools.recover",
        sandbox.stack.name,
        "--config-file",
        str(sandbox.engine.config),
    ]
    environment = sandbox.engine.environment | {"AWS_ENDPOINT_URL": _aws_endpoint(sandbox)}
    if subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode:
        raise SandboxError("the state could not be repaired. The reason is above. To start over: `make sandbox-down`.")


def _pass_settings(sandbox: Sandbox, aws: processes.Process) -> None:
    """Give the engine the settings that the stack file has now."""
    engine, kubeconfig = sandbox.engine, sandbox.kubernetes.kubeconfig
    engine_stack_file.write_for_engine(sandbox.stack, engine.config, _endpoint(aws), kubeconfig, engine.salt)


def _set_nodes(sandbox: Sandbox) -> None:
    network = pod_networks.claim(sandbox.kubernetes.folder)
    sandbox.kubernetes.set_nodes(_nodes(sandbox.stack, network))


def _nodes(stack: engine_stack_file.Stack, network: int) -> list[WorkerNode]:
    every_zone = stack.settings.availability_zones or (f"{stack.region}a", f"{stack.region}b")
    zones = every_zone[: stack.settings.worker_zones(len(every_zone))]
    workers = stack.settings.workers
    preferred = next(iter(workers.instance_types), "")
    return [WorkerNode(i + 1, zones[i % len(zones)], preferred, network) for i in range(workers.count)]


def _stacks_with_state() -> list[str]:
    return sorted(file.stem for file in (FOLDER / "state").glob(".pulumi/stacks/*/*.json"))


def _up_command(stack: str) -> str:
    return "make sandbox" if stack == "local" else f"{sandbox_command()} --stack {stack} up"


def _since(start: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(start))} ({progress.elapsed(time.time() - start)})"


@contextmanager
def _exclusively() -> Iterator[None]:
    """Run one command at a time per checkout. The operating system releases the lock when the process ends."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError("another sandbox command is running in this checkout. Wait until it ends.") from None
        yield


def _print_summary(sandbox: Sandbox, seconds: float) -> None:
    outputs = sandbox.engine.stack_outputs()
    model = str(outputs.get("model", ""))
    copies = FOLDER / "stacks" / sandbox.stack.name / "model"
    trained = sandbox.workers.running() is not None
    if trained and model.startswith("s3://"):
        _copy_results(sandbox, model, copies)
    counts = sandbox.engine.last_changes()
    changes = ", ".join(f"{counts[kind]} {past}" for kind, past in PAST_TENSE.items() if kind in counts)
    simulated = [] if trained else ["  Pods were simulated: nothing was trained. There is no model."]
    stack = "" if sandbox.stack.name == "local" else f" --stack {sandbox.stack.name}"
    sections = {
        "Stack outputs": summary.output_lines(outputs),
        "Model": summary.model_lines(model, copies) if trained else simulated,
        "Next steps": summary.next_steps(outputs.get("nextSteps") or {}, sandbox_command() + stack),
        "Sandbox": [
            f"  logs: {FOLDER / 'logs'}",
            f"  logs of the pods: {sandbox.workers.root / 'logs'}",
            "  list the processes: make sandbox-status",
            "  stop: make sandbox-down",
        ],
    }
    print(f"\n{summary.text(sections)}\n")
    print(f"Done in {progress.elapsed(seconds)}. Resources: {changes or 'nothing changed'}.")


def _copy_results(sandbox: Sandbox, model: str, folder: Path) -> None:
    """Copy the report, the address of the newest checkpoint and the files `done` from the bucket."""
    names = (contract.REPORT_FILE, contract.NEWEST_FILE, f"pass-*/{contract.DONE_FILE}")
    wanted = [argument for name in names for argument in ("--include", name)]
    copy = ["aws", "s3", "cp", model, str(folder), "--recursive", "--exclude", "*", *wanted]
    shutil.rmtree(folder, ignore_errors=True)
    # Without these files the summary is shorter. `pulumi up` has succeeded all the same.
    subprocess.run(copy, env=_tool_environment(sandbox), capture_output=True, check=False)


def _aws_endpoint(sandbox: Sandbox) -> str:
    aws = sandbox.aws.running()
    if aws is None:
        name = sandbox.stack.name
        raise SandboxError(f"the emulated AWS of stack {name} is not running. Run `{_up_command(name)}` first.")
    return _endpoint(aws)


def _endpoint(aws: processes.Process) -> str:
    return f"http://127.0.0.1:{aws.port}"


def _tool_environment(sandbox: Sandbox) -> dict[str, str]:
    """The environment in which `aws` and `kubectl` use the sandbox."""
    tools = [str(sandbox.binaries), str(sandbox.aws.python.parent)]
    return processes.isolated_environment(os.environ) | {
        "AWS_ENDPOINT_URL": _aws_endpoint(sandbox),
        "AWS_REGION": sandbox.stack.region,
        "KUBECONFIG": str(sandbox.kubernetes.kubeconfig),
        "PATH": os.pathsep.join([*tools, sandbox.engine.environment["PATH"]]),
    }
