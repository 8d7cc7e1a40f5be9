"""A copy of the project with its own sandbox. Tests use it through the command line, as a user does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml

from sandbox import build
from tools.kubernetes_client import Api, Kind, Object, load_kubeconfig

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ("__main__.py", "Pulumi.yaml", "settings", "infra", "workloads", "tools")
SANDBOX = ("Pulumi.local.yaml", "constraints.txt", "sandbox")
# A training, and a stand-in for paddle that starts it. The import of paddle alone takes a second of CPU per process.
STUB = ROOT / "tests/in_pod/stub"
JOB = Kind("batch/v1", "Job", "jobs", True)
# `pulumi` itself. `python -m sandbox` refuses a second command while the first one runs.
ENGINE = "import os, sys; from sandbox.engine.pulumi_cli import environment;"
ENGINE += " os.execvpe('pulumi', ['pulumi', *sys.argv[1:]], environment())"
# For everything that a test waits for: a busy machine is slow.
LIMIT_SECONDS = 900
# Starts a command on a machine that cannot isolate processes, so that pods are simulated.
WITHOUT_MOUNT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user"),
    *("sh", "-c", 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"', "sh"),
)


def copy(names: Sequence[str], folder: Path) -> None:
    """Copy these files and folders of the project."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".venv"))
        else:
            shutil.copy(ROOT / name, folder)


@dataclass(frozen=True)
class Checkout:
    """The files of the program, and a home folder whose credentials must not be read."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Checkout:
        """Copy the program, and replace the user's credential files by traps."""
        copy((*PROGRAM, *SANDBOX), folder / "project")
        for trap in (".aws/credentials", ".aws/config", ".pulumi/credentials.json", ".kube/config"):
            file = folder / "home" / trap
            file.parent.mkdir(parents=True, exist_ok=True)
            # A process that opens this pipe blocks, because nothing writes to it.
            os.mkfifo(file)
        return cls(folder)

    def stub_training(self, before: str = "") -> None:
        """Replace the training code, for tests that are not about paddle. `before` is Python code that runs first."""
        code = self.project / "workloads/in_pod/quick_start"
        shutil.rmtree(code)
        shutil.copytree(STUB, code, ignore=shutil.ignore_patterns("__pycache__"))
        (code / "train.py").rename(code / "original.py")
        (code / "train.py").write_text(f'{before}\nimport runpy\nrunpy.run_path("original.py", run_name="__main__")\n')

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def sandbox(self) -> Path:
        return self.project / ".sandbox"

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(build.cache().parent),
            "AWS_ACCESS_KEY_ID": "poison",
            "AWS_SECRET_ACCESS_KEY": "poison",
            "AWS_PROFILE": "poison",
            "AWS_REGION": "poison-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "PULUMI_ACCESS_TOKEN": "poison",
            "PULUMI_BACKEND_URL": "http://127.0.0.1:9",
            "PULUMI_HOME": str(self.folder / "home/.pulumi"),
            "KUBECONFIG": str(self.folder / "home/.kube/config"),
        }

    def run(self, *arguments: str, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run `python -m sandbox ARGUMENTS`, optionally as an argument of another command."""
        with self.running(*arguments, under=under) as process:
            output, _ = process.communicate(timeout=LIMIT_SECONDS)
        return subprocess.CompletedProcess(arguments, process.returncode, output)

    @contextmanager
    def running(self, *arguments: str, under: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
        """Start `python -m sandbox ARGUMENTS`. Interrupt it if it is still running at the end of the block."""
        process = subprocess.Popen(
            # If pytest runs in the background, it ignores SIGINT, and so would its children. A function that runs after
            # the fork could reset the signal too, but gRPC in this process can end the child at that moment.
            ["env", "--default-signal=INT", *under, sys.executable, "-m", "sandbox", *arguments],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=LIMIT_SECONDS)

    def succeed(self, *arguments: str, under: Sequence[str] = ()) -> str:
        """As `run`. The command must succeed. Returns its output."""
        done = self.run(*arguments, under=under)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def refused(self, *arguments: str, under: Sequence[str] = ()) -> str:
        """As `run`. The command must fail, without a traceback. Returns its output without line breaks."""
        done = self.run(*arguments, under=under)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stdout
        return " ".join(done.stdout.split())

    def up(self) -> str:
        return self.succeed("up")

    def engine(self, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a Pulumi command with this stack file, also while `python -m sandbox` runs another command."""
        return subprocess.run(
            [sys.executable, "-c", ENGINE, *arguments, "--stack", "local", "--config-file", str(config)],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def stop(self) -> None:
        """End all processes. Nothing is destroyed, because the resources end with the emulated AWS."""
        shutil.rmtree(self.sandbox / "state", ignore_errors=True)
        self.run("down")

    def set(self, **settings: object) -> None:
        """Change settings in the stack file. A mapping changes only its own keys."""
        file = self.project / "Pulumi.local.yaml"
        written = yaml.safe_load(file.read_text())
        for key, value in settings.items():
            before = written["config"].get(f"paddle-on-aws:{key}")
            merged = {**(before or {}), **value} if isinstance(value, Mapping) else value
            written["config"][f"paddle-on-aws:{key}"] = merged
        file.write_text(yaml.safe_dump(written))

    def pid(self, name: str) -> int:
        """The process ID of `aws`, `workers-local`, `engine`, or a component of Kubernetes."""
        recorded = self.sandbox / "run" / f"{name}.json"
        if recorded.exists():
            return int(json.loads(recorded.read_text())["pid"])
        return int((self.sandbox / f"stacks/local/kubernetes/clusters/sandbox/pids/{name}.pid").read_text())

    @property
    def endpoint(self) -> str:
        """The emulated AWS."""
        return f"http://127.0.0.1:{json.loads((self.sandbox / 'run/aws.json').read_text())['port']}"

    def client(self, service: str, region: str = "us-west-2") -> Any:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, region_name=region, endpoint_url=self.endpoint, **keys)

    @property
    def api(self) -> Api:
        return Api(load_kubeconfig(str(self.sandbox / "stacks/local/kubernetes/kubeconfig")))

    def job(self, name: str) -> Object:
        return self.api.get(JOB, "default", name)

    def resources(self) -> list[dict[str, Any]]:
        """The resources in the engine's state."""
        (file,) = self.sandbox.glob("state/.pulumi/stacks/*/local.json")
        recorded = json.loads(file.read_text())["checkpoint"].get("latest") or {}
        return recorded.get("resources") or []

    def ids(self, prefix: str) -> dict[str, str]:
        """The IDs of the resources whose type has this prefix, by URN."""
        return {
            each["urn"]: each["id"] for each in self.resources() if "id" in each and each["type"].startswith(prefix)
        }

    def output(self, name: str) -> str:
        (stack,) = (each for each in self.resources() if each["type"] == "pulumi:pulumi:Stack")
        return str(stack["outputs"][name])

    def processes(self) -> dict[int, str]:
        """The processes that name this checkout, and its containers: process ID and command line."""
        found = {}
        # The root folder of a container is in the checkout. Its path is relative to the file system it is on.
        container_root = "/".join((*self.project.parts[-3:], ".sandbox/stacks")).encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line, environment, mounts = (
                    (folder / name).read_bytes() for name in ("cmdline", "environ", "mountinfo")
                )
            except OSError:
                continue
            if str(self.project).encode() in line + environment or container_root in mounts:
                found[int(folder.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found


def eventually(look: Callable[[], Any], otherwise: str) -> Any:
    """Call `look` until it returns something, and return that."""
    ends = time.monotonic() + LIMIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < ends, otherwise
        time.sleep(0.2)
    return found
