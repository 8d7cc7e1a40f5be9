"""Finds the newest checkpoint that a training can resume from."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable

import contract
from transient import TRANSIENT, retry_transient


def listed_files(content: bytes) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each file that `done` lists. Empty if a user's own code wrote `done` in another form."""
    try:
        value: Any = json.loads(content)
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in value["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    known = all(type(size) is int and isinstance(digest, str) for size, digest in files.values())
    return files if known else {}


def defect(checkpoint: Path) -> str:
    """Why the training cannot resume from the checkpoint; empty if it can."""
    try:
        return damage(checkpoint)
    except OSError as error:
        if error.errno in TRANSIENT:
            raise
        return f"it cannot be read: {error}"


def damage(checkpoint: Path) -> str:
    """What is missing or wrong in the checkpoint; empty if nothing is."""
    done = checkpoint / contract.DONE_FILE
    if not done.is_file():
        return f"it has no file {contract.DONE_FILE}"
    for name, (size, expected) in listed_files(done.read_bytes()).items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != size:
            return f"{name} does not have its {size} bytes"
        digest = sha256()
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != expected.lower():
            return f"{name} does not have its checksum"
    return ""


def newest_checkpoint(output: Path, log: Callable[[str], None]) -> str:
    """The name of the newest complete checkpoint; empty if there is none. Skipped checkpoints are logged."""
    numbers: dict[str, int] = {}
    for folder in retry_transient(lambda: list(output.glob("*"))):
        number = contract.checkpoint_number(folder.name)
        if number is not None:
            numbers[folder.name] = number
    for name in sorted(numbers, key=lambda name: numbers[name], reverse=True):
        problem = retry_transient(partial(defect, output / name))
        if not problem:
            return name
        log(f"checkpoint {name} is skipped: {problem}")
    return ""
