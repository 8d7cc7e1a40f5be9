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
    homes = [Path(user.get("PULUMI_HOME") or Path(user.get("HOME", "/")) / ".pulumi"), build.cache() / "pulumi"]
    wanted = {name: metadata.version(f"pulumi-{name}") for name in NAMES}

    def found(name: str) -> Path | None:
        command = f"pulumi-resource-{name}"
        installed = (home / "plugins" / f"resource-{name}-v{wanted[name]}" / command for home in homes)
        on_path = shutil.which(command, path=user.get("PATH"))
        return Path(on_path) if on_path else next((file for file in installed if os.access(file, os.X_OK)), None)

    downloads = [
        _download(n, v, dict(environment) | {"PULUMI_HOME": str(homes[1])}) for n, v in wanted.items() if not found(n)
    ]
    for download in downloads:
        _await(download)
    return [Plugin(name, version, found(name)) for name, version in wanted.items()]


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
        target = _folder(home, f"resource-{plugin.name}-v{plugin.version}") / f"pulumi-resource-{plugin.name}"
        if plugin.executable:
            target.symlink_to(plugin.executable)
        else:
            _script(target, f'PYTHONPATH="{CHECKOUT}" exec "{python}" -m sandbox.plugins.{plugin.name}')


def install_language_host(home: Path, python: Path) -> None:
    host = CHECKOUT / "sandbox/engine/language_host.py"
    _script(_folder(home, "language-python-v0.0.1") / "pulumi-language-python", f'exec "{python}" "{host}"')


def _folder(home: Path, name: str) -> Path:
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    return folder


def _script(file: Path, command: str) -> None:
    file.write_text(f'#!/bin/sh\n{command} "$@"\n')
    file.chmod(0o755)
