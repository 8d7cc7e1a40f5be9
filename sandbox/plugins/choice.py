"""Which plugins a checkout's engine runs: the published ones where they can be had, else the stand-ins."""

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
# Time for the engine to hear from the plugin's vendor; once a download is under way it may take as long as it needs.
SECONDS_TO_BEGIN = 15
UNDER_WAY = re.compile(rb"\d [KMG]i?B")


@dataclass(frozen=True)
class Plugin:
    """A provider plugin and where it comes from; no `executable` means the stand-in."""

    name: str
    version: str
    executable: Path | None

    @property
    def stand_in(self) -> bool:
        return self.executable is None


def choose(environment: Mapping[str, str], person: Mapping[str, str]) -> list[Plugin]:
    """Look for each published plugin: on the person's PATH, among those installed, at its vendor."""
    homes = [Path(person.get("PULUMI_HOME") or Path(person.get("HOME", "/")) / ".pulumi"), build.cache() / "pulumi"]
    wanted = {name: metadata.version(f"pulumi-{name}") for name in NAMES}

    def found(name: str) -> Path | None:
        command = f"pulumi-resource-{name}"
        installed = (home / "plugins" / f"resource-{name}-v{wanted[name]}" / command for home in homes)
        on_path = shutil.which(command, path=person.get("PATH"))
        return Path(on_path) if on_path else next((file for file in installed if os.access(file, os.X_OK)), None)

    asked = [
        _ask_vendor(n, v, dict(environment) | {"PULUMI_HOME": str(homes[1])}) for n, v in wanted.items() if not found(n)
    ]
    for install in asked:
        _await(install)
    return [Plugin(name, version, found(name)) for name, version in wanted.items()]


def _ask_vendor(name: str, version: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = ["pulumi", "plugin", "install", "resource", name, f"v{version}"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _await(install: subprocess.Popen[bytes]) -> None:
    """Let it end in time, or as late as it needs once bytes flow."""
    assert install.stdout is not None
    try:
        install.wait(SECONDS_TO_BEGIN)
    except subprocess.TimeoutExpired:
        os.set_blocking(install.stdout.fileno(), False)
        if UNDER_WAY.search(install.stdout.read() or b""):
            os.set_blocking(install.stdout.fileno(), True)
            install.communicate()
    finally:
        install.kill()
        install.wait()
        install.stdout.close()


def lay(plugins: list[Plugin], home: Path, python: Path) -> None:
    """Put them where an engine with this home finds them, under the versions that the program's packages ask for."""
    for plugin in plugins:
        target = _folder(home, f"resource-{plugin.name}-v{plugin.version}") / f"pulumi-resource-{plugin.name}"
        if plugin.executable:
            target.symlink_to(plugin.executable)
        else:
            _script(target, f'PYTHONPATH="{CHECKOUT}" exec "{python}" -m sandbox.plugins.{plugin.name}')


def lay_language_host(home: Path, python: Path) -> None:
    host = CHECKOUT / "sandbox/engine/language_host.py"
    _script(_folder(home, "language-python-v0.0.1") / "pulumi-language-python", f'exec "{python}" "{host}"')


def _folder(home: Path, name: str) -> Path:
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    return folder


def _script(file: Path, command: str) -> None:
    file.write_text(f'#!/bin/sh\n{command} "$@"\n')
    file.chmod(0o755)
