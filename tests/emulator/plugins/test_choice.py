"""Official plugins are used if available, otherwise the emulated providers."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc

from sandbox import build, commands
from sandbox.plugins import choice

AWS = f"resource-aws-v{metadata.version('pulumi-aws')}/pulumi-resource-aws"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `pulumi` whose `plugin install` fails; tests replace it. This machine has no official plugin."""
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(each for each in folders if not [*Path(each).glob("pulumi-resource-*")]))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return script(tmp_path / "engine/pulumi", "exit 1")


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


NOWHERE = {"PATH": "/nowhere", "HOME": "/nowhere"}


def chosen(engine: Path, user: dict[str, str] = NOWHERE) -> dict[str, Path | None]:
    environment = {"PATH": f"{engine.parent}:{os.environ['PATH']}"}
    return {plugin.name: plugin.executable for plugin in choice.choose(environment, user)}


@pytest.mark.parametrize(
    ("file", "used"),
    [
        ("nothing", False),
        ("bin/pulumi-resource-aws", True),
        (f"home/.pulumi/plugins/{AWS}", True),
        ("home/.pulumi/plugins/resource-aws-v1.0.0/pulumi-resource-aws", False),
    ],
    ids=["none", "on PATH", "installed by the user", "another version"],
)
def test_an_official_plugin_of_this_version_is_used(engine: Path, tmp_path: Path, file: str, used: bool) -> None:
    plugin = script(tmp_path / file, "exit 0")
    user = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    assert chosen(engine, user) == {"aws": plugin if used else None, "kubernetes": None}


def download(start: str) -> str:
    return f"""{start}
folder=$PULUMI_HOME/plugins/resource-$4-$5
mkdir -p $folder
printf '#!/bin/sh\\n' > $folder/pulumi-resource-$4
chmod +x $folder/pulumi-resource-$4"""


def test_plugin_is_downloaded_into_the_cache(engine: Path) -> None:
    script(engine, download(""))
    assert chosen(engine)["aws"] == build.cache() / "pulumi/plugins" / AWS


def test_download_that_does_not_start_is_stopped(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "SECONDS_TO_START", 0)
    script(engine, download("sleep 30"))
    assert chosen(engine) == {"aws": None, "kubernetes": None}


def test_slow_download_may_finish(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = choice._download

    def start_and_wait_for_output(*arguments: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments)
        assert process.stdout
        assert select.select([process.stdout], [], [], 60)[0]
        return process

    monkeypatch.setattr(choice, "_download", start_and_wait_for_output)
    monkeypatch.setattr(choice, "SECONDS_TO_START", 0)
    script(engine, download("echo 'Downloading plugin: 1.2 MiB / 150 MiB'; sleep 0.2"))
    assert None not in chosen(engine).values()


@pytest.mark.parametrize("official", [False, True])
def test_installed_plugins_are_current_until_another_kind_is_found(
    engine: Path, tmp_path: Path, official: bool
) -> None:
    home, user = tmp_path / "sandbox", {"PATH": str(tmp_path / "bin"), "HOME": "/nowhere"}
    plugin = tmp_path / "bin/pulumi-resource-aws"
    if official:
        script(plugin, "exit 0")
    assert not choice.is_current(home, user)
    choice.install(choice.choose({"PATH": f"{engine.parent}:{os.environ['PATH']}"}, user), home, Path(sys.executable))
    assert choice.installed(home) == {"aws": not official, "kubernetes": True}
    assert choice.is_current(home, user)
    plugin.unlink() if official else script(plugin, "exit 0")
    assert not choice.is_current(home, user)


def test_sandbox_starts_over_when_another_kind_of_plugin_is_found(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    environment = {"PATH": f"{engine.parent}:{os.environ['PATH']}"}
    parts = {
        "engine": SimpleNamespace(environment=environment, state=tmp_path / "state"),
        "aws": SimpleNamespace(python=Path(sys.executable), is_current=lambda _: True),
    }
    sandbox: Any = SimpleNamespace(**parts)
    running: Any = object()
    monkeypatch.setattr(commands, "FOLDER", tmp_path)
    monkeypatch.setattr(commands, "PULUMI_HOME", tmp_path / "home/.pulumi")
    monkeypatch.setenv("HOME", "/nowhere")
    assert commands._install_plugins(sandbox) == []
    assert commands._reason_to_start_over(sandbox, running, []) == ""
    script(tmp_path / "bin/pulumi-resource-aws", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    changed = commands._install_plugins(sandbox)
    reason = commands._reason_to_start_over(sandbox, running, changed)
    assert reason == "the stacks were created with the emulated aws provider"
    capsys.readouterr()
    assert commands._install_plugins(sandbox) == []
    assert re.search(r"aws [\d.]+ \(official\), kubernetes [\d.]+ \(emulated\)", capsys.readouterr().out)


def test_installed_emulated_provider_has_the_version_of_the_sdk(cached: None, tmp_path: Path) -> None:
    plugins = [choice.Plugin(name, metadata.version(f"pulumi-{name}"), None) for name in choice.NAMES]
    choice.install(plugins, tmp_path, build.python())
    for plugin in plugins:
        file = tmp_path / f"plugins/resource-{plugin.name}-v{plugin.version}/pulumi-resource-{plugin.name}"
        with subprocess.Popen([file, "127.0.0.1:1"], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            channel = grpc.insecure_channel(f"127.0.0.1:{int(running.stdout.readline())}")
            info = provider_pb2_grpc.ResourceProviderStub(channel).GetPluginInfo(empty_pb2.Empty(), timeout=60)
            running.terminate()
        assert info.version == plugin.version
