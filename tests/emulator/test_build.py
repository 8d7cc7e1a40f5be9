"""The cache of built tools: it contains only finished builds, and all checkouts share it."""

from __future__ import annotations

import multiprocessing
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from sandbox import build, commands
from sandbox.engine import pulumi_cli
from sandbox.errors import SandboxError
from sandbox.progress import step


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "paddle-on-aws"


def test_interrupted_build_does_not_get_the_final_name(cache: Path) -> None:
    def half(folder: Path) -> None:
        (folder / "tool").write_text("half")
        with pytest.raises(SandboxError, match=r"(?s)exit code 3.*the reason"), step("failing") as shown:
            build._run(["sh", "-c", "echo the reason; exit 3"], shown)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.cached("tools-1", half)
    assert not (cache / "tools-1").exists()

    def whole(folder: Path) -> None:
        assert not list(folder.iterdir()), "the half-built file is still there"
        (folder / "tool").write_text("whole")

    assert (build.cached("tools-1", whole) / "tool").read_text() == "whole"


def build_until(log: Path, waits: Event) -> None:
    def work(folder: Path) -> None:
        with log.open("a") as file:
            file.write("began\n")
        assert waits.wait(60)
        (folder / "tool").touch()

    @contextmanager
    def step(title: str) -> Iterator[None]:
        assert title == "waiting for another process that builds tools-2"
        waits.set()
        yield

    vars(build)["step"] = step
    assert (build.cached("tools-2", work) / "tool").exists()


def test_two_checkouts_build_once(cache: Path, tmp_path: Path) -> None:
    log, waits = tmp_path / "log", multiprocessing.Event()
    builders = [multiprocessing.Process(target=build_until, args=(log, waits)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(90)
    assert [builder.exitcode for builder in builders] == [0, 0]
    assert log.read_text() == "began\n"


def test_full_disk_is_reported_before_the_build(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DISK_NEEDED", 1 << 60)
    with pytest.raises(SandboxError, match=re.escape(f"{cache}: ") + r".* GB of disk are free, but the build needs"):
        build.cached("tools-3", lambda folder: None)


def test_a_running_step_fits_on_one_line_of_the_terminal() -> None:
    near, far = pty.openpty()
    shown = "import time; from sandbox import progress\nprogress.REDRAW_SECONDS = 0.01\n"
    shown += "with progress.step('s' * 90): time.sleep(0.5)"
    subprocess.run([sys.executable, "-c", shown], env=os.environ | {"COLUMNS": "60"}, stdout=far, check=True)
    drawn = os.read(near, 4096).decode().split("\r\x1b[2K")[1:-1]
    os.close(near)
    os.close(far)
    assert drawn
    assert {len(line) for line in drawn} == {59}


def test_nothing_is_built_for_the_settings_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "cached", lambda name, builder: pytest.fail(f"{name} is built"))
    with pytest.raises(SandboxError, match=r"was not started .* edit Pulumi\.local\.yaml"):
        commands.pulumi("local", ["config", "set", "trainers", "2"])
    assert pulumi_cli.environment()["PULUMI_HOME"].endswith(".sandbox/home/.pulumi")


def test_go_on_path_is_used_only_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin/go"
    go.parent.mkdir()
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    monkeypatch.setattr(build, "cached", lambda name, builder: tmp_path / name)
    for version, used in {"go1.99.1": True, "go1.20.3": False}.items():
        go.write_text(f"#!/bin/sh\necho {version}\n")
        go.chmod(0o755)
        assert (build.go(build.HERE / "engine/go") == go) is used


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of builds, which do not run."""
    commands: list[list[str]] = []

    def run(command: list[str], *_: object, **__: object) -> str:
        commands.append(command)
        return ""

    monkeypatch.setattr(build, "_run", run)
    return commands


def test_a_python_without_paddle_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "NO_PADDLE", sys.version_info[:2])
    with pytest.raises(SandboxError, match=r"Run `rm -rf \.venv`, then for example `make sandbox PYTHON=python3\.13`"):
        build.python()


def test_the_python_of_the_pods_needs_no_file_of_the_checkout(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: list[list[str]]
) -> None:
    in_checkout = tmp_path / "python"
    in_checkout.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(in_checkout))
    build.python()
    assert built[0][:3] == [os.path.realpath(in_checkout), "-m", "venv"]


@pytest.mark.parametrize(("version", "used"), [("1.36.3", True), ("1.36.3-beta.1", False), ("1.35.0", False)])
def test_an_api_server_from_path_is_used_only_in_the_pinned_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: list[list[str]], version: str, used: bool
) -> None:
    file = tmp_path / "kube-apiserver"
    file.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
    file.chmod(0o755)

    def cached(name: str, compile_into: Callable[[Path], None]) -> Path:
        (tmp_path / name).mkdir()
        compile_into(tmp_path / name)
        return tmp_path / name

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(build, "cached", cached)
    monkeypatch.setattr(build, "go", lambda module: Path("go"))
    folder = build.control_plane()
    assert (folder / "kube-apiserver").readlink() == (file if used else Path(build.BINARY))
    assert (folder / "etcd").readlink() == Path(build.BINARY)
    assert ("-tags=without_kube_apiserver" in built[-1]) is used


def test_built_tools_report_the_pinned_versions(cached: None) -> None:
    pulumi = subprocess.run([build.engine() / "pulumi", "version"], capture_output=True, text=True, check=True)
    assert pulumi.stdout.strip() == "v3.258.0"
    kubectl = [str(build.control_plane() / "kubectl"), "version", "--client"]
    assert "Client Version: v1.36.3" in subprocess.run(kubectl, capture_output=True, text=True, check=True).stdout
