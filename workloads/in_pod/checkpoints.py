"""What the launchers leave on the volume for each other, and which pass there is complete."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import contract
from trainer_settings import Settings, say


@dataclass(frozen=True)
class Attempt:
    """What rank 0 decided, as written in .gang/attempt.json."""

    job_uid: str = ""
    number: int = 0
    tries: int = 0  # attempts in a row that began at the same pass
    members: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    resume: str = ""
    reason: str = ""
    verdict: str = ""


def read_json(path: Path) -> dict[str, Any]:
    """The file's content, empty when there is none."""
    # O_CREAT: an NFS client may answer "no such file" from memory for a minute, but creates at the server.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644)) as stream:
        content = stream.read()
    value: dict[str, Any] = json.loads(content) if content else {}
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace the file whole."""
    aside = path.with_name(f".{path.name}")
    with aside.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(path)


def read_attempt(settings: Settings) -> Attempt:
    """The attempt that rank 0 last wrote."""
    value = read_json(settings.launchers / contract.ATTEMPT_FILE)
    for name in {"members", "addresses"} & value.keys():
        value[name] = tuple(value[name])
    return Attempt(**value)


def flaw(folder: Path) -> str:
    """Why the pass cannot be resumed from, or nothing."""
    done = folder / contract.DONE_FILE
    if not done.is_file():
        return "it has no done marker"
    try:
        files = json.loads(done.read_text())["files"]
    except (ValueError, KeyError, TypeError):
        return ""  # a marker that lists no files, as other training code may write it, vouches for them
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != expected["bytes"]:
            return f"{name} does not have its {expected['bytes']} bytes"
        digest = sha256()
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != expected["sha256"]:
            return f"{name} does not have its checksum"
    return ""


def newest_pass(output: Path) -> str:
    """The name of the newest complete pass; one with a flaw is skipped, aloud."""
    found = [folder for folder in output.glob("*") if contract.checkpoint_number(folder.name) is not None]
    for folder in sorted(found, key=lambda folder: contract.checkpoint_number(folder.name) or 0, reverse=True):
        problem = flaw(folder)
        if not problem:
            return folder.name
        say(f"{folder.name} is skipped: {problem}")
    return ""
