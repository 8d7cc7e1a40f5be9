"""The files of one container run: what to run (spec.json), the running process (running.json), its end (exit.json).

The watcher of every container imports this module, so it imports the standard library alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SPEC, RUNNING, EXIT = "spec.json", "running.json", "exit.json"


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine, and its path inside the container. Without a source: an empty folder."""

    source: str
    target: str
    readonly: bool


@dataclass(frozen=True)
class ContainerSpec:
    """Everything that the watcher needs to start a container. `machine` holds the mounts of system files."""

    argv: list[str]
    env: dict[str, str]
    address: str
    hostname: str
    log: str
    machine: list[Mount]
    mounts: list[Mount]
    readonly_root: bool
    drop_capabilities: bool
    forbid_new_privileges: bool

    def write(self, folder: Path) -> None:
        write_json(folder / SPEC, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> ContainerSpec | None:
        if (found := read_json(folder / SPEC)) is None:
            return None
        lists = {key: [Mount(**mount) for mount in found[key]] for key in ("machine", "mounts")}
        return cls(**found | lists)


@dataclass(frozen=True)
class Running:
    """The process of a container that was started."""

    pid: int
    started: float

    def write(self, folder: Path) -> None:
        write_json(folder / RUNNING, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Running | None:
        found = read_json(folder / RUNNING)
        return cls(**found) if found else None


@dataclass(frozen=True)
class Ended:
    """How a container ended; `error` is set if its program could not be started."""

    code: int
    signal: int
    started: float
    finished: float
    error: str = ""

    def write(self, folder: Path) -> None:
        write_json(folder / EXIT, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Ended | None:
        found = read_json(folder / EXIT)
        return cls(**found) if found else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file in one step, so that no reader sees half of it."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of the file, or None if there is no complete file."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return None
