"""Which provider plugins the engine of the sandbox uses: the official ones if available, else the emulated ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from sandbox import build
from sandbox.paths import CHECKOUT

NAMES = ("aws", "kubernetes")
# How long a download may take to start. A download that has started may take as long as it needs.
SECONDS_TO_START = 15
DOWNLOADING = re.compile(rb"\d [KMG]i?B")


@dataclass(frozen=True)
class Plugin:
    """A provider plugin; without `executable` it is the emulated provider."""

    name: str
    version: str
    executable: Path | None

    @property
    def emulated(self) -> bool:
        return self.executable is None


def choose(environment: Mapping[str, str], user: Mapping[str, str]) -> list[Plugin]:
    """Look for each official plugin: on the user's PATH, in the plugin folders, and for download."""
    cache = {"PULUMI_HOME": str(build.cache() / "pulumi")}
    downloads = [
        _download(name, version, dict(environment) | cache)
        for name, version in _versions().items()
        if not _find(name, version, user)
    ]
    for download in downloads:
        _await(download)
    return found(user)


def found(user: Mapping[str, str]) -> list[Plugin]:
    """The same choice without a download."""
    return [Plugin(name, version, _find(name, version, user)) for name, version in _versions().items()]


def described(plugins: list[Plugin]) -> str:
    """The plugins for the user, such as `aws 7.51.1 (official), kubernetes 4.34.2 (emulated)`."""
    return ", ".join(f"{each.name} {each.version} ({'emulated' if each.emulated else 'official'})" for each in plugins)


def installed(home: Path) -> dict[str, bool]:
    """The plugins in this home: whether each one is the emulated provider."""
    files = (home / "plugins").glob("resource-*/pulumi-resource-*")
    return {file.name.removeprefix("pulumi-resource-"): not file.is_symlink() for file in files}


def is_current(home: Path, user: Mapping[str, str]) -> bool:
    """Whether `choose` would choose the installed plugins again. Downloads nothing."""

    def current(name: str, version: str) -> bool:
        file = _file(home, name, version)
        if file.is_symlink():
            return file.exists()
        return file.exists() and not _find(name, version, user)

    return all(current(name, version) for name, version in _versions().items())


def _versions() -> dict[str, str]:
    return {name: metadata.version(f"pulumi-{name}") for name in NAMES}


def _file(home: Path, name: str, version: str) -> Path:
    return home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"


def _find(name: str, version: str, user: Mapping[str, str]) -> Path | None:
    """The official plugin, on the user's PATH or in a plugin folder."""
    on_path = shutil.which(f"pulumi-resource-{name}", path=user.get("PATH"))
    homes = [Path(user.get("PULUMI_HOME") or Path(user.get("HOME", "/")) / ".pulumi"), build.cache() / "pulumi"]
    files = [Path(on_path)] if on_path else [_file(home, name, version) for home in homes]
    return next((file for file in files if os.access(file, os.X_OK)), None)


def _download(name: str, version: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = ["pulumi", "plugin", "install", "resource", name, f"v{version}"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _await(download: subprocess.Popen[bytes]) -> None:
    """Wait until it ends; stop it if it has not started in time."""
    assert download.stdout is not None
    try:
        download.wait(SECONDS_TO_START)
    except subprocess.TimeoutExpired:
        os.set_blocking(download.stdout.fileno(), False)
        if DOWNLOADING.search(download.stdout.read() or b""):
            os.set_blocking(download.stdout.fileno(), True)
            download.communicate()
    finally:
        download.kill()
        download.wait()
        download.stdout.close()


def install(plugins: list[Plugin], home: Path, python: Path) -> None:
    """Put them into the plugin folder of this home, with the versions that the program's packages require."""
    for plugin in plugins:
        file = _file(home, plugin.name, plugin.version)
        file.parent.mkdir(parents=True)
        if plugin.executable:
            file.symlink_to(plugin.executable)
        else:
            variables = f'PLUGIN_VERSION={plugin.version} PYTHONPATH="{CHECKOUT}"'
            _script(file, f'{variables} exec "{python}" -m sandbox.plugins.{plugin.name}')


def install_language_host(home: Path, python: Path) -> None:
    host = CHECKOUT / "sandbox/engine/language_host.py"
    file = home / "plugins/language-python-v0.0.1/pulumi-language-python"
    file.parent.mkdir(parents=True)
    _script(file, f'exec "{python}" "{host}"')


def _script(file: Path, command: str) -> None:
    file.write_text(f'#!/bin/sh\n{command} "$@"\n')
    file.chmod(0o755)
