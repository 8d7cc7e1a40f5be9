"""The files of a checkpoint: which ones are complete, what `done` states, and the newest that a training can use."""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, NamedTuple

from contract import DONE_FILE, checkpoint_number, finite_numbers, parse_json
from files import TRANSIENT, retry_transient

BLOCK = 1 << 20
LONGEST_NAME = 60


class File(NamedTuple):
    """A file of a checkpoint. The checksum is empty if it is not known."""

    name: str
    size: int
    sha256: str


class Checkpoint(NamedTuple):
    """The facts about one complete checkpoint."""

    name: str
    number: int
    written: float
    numbers: dict[str, float]
    files: tuple[File, ...]
    stated: bool = True  # whether `done` lists the files


def stated_files(done: dict[str, Any]) -> tuple[File, ...]:
    """The files that `done` lists. Empty if a user's own code wrote `done` in another form."""
    try:
        files = [File(name, entry["bytes"], entry["sha256"]) for name, entry in done["files"].items()]
    except (LookupError, TypeError, AttributeError):
        return ()
    known = all(type(each.size) is int and isinstance(each.sha256, str) for each in files)
    return tuple(sorted(files)) if known else ()


def sha256(path: Path) -> str:
    """The file's checksum."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


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
    done = checkpoint / DONE_FILE
    if not done.is_file():
        return f"it has no file {DONE_FILE}"
    for file in stated_files(parse_json(done.read_bytes(), dict)):
        path = checkpoint / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            return f"{file.name} does not have its {file.size} bytes"
        if sha256(path) != file.sha256.lower():
            return f"{file.name} does not have its checksum"
    return ""


def newest_checkpoint(output: Path, log: Callable[[str], None]) -> str:
    """The name of the newest complete checkpoint; empty if there is none. Skipped checkpoints are logged."""
    numbers: dict[str, int] = {}
    for folder in retry_transient(lambda: list(output.glob("*"))):
        number = checkpoint_number(folder.name)
        if number is not None:
            numbers[folder.name] = number
    for name in sorted(numbers, key=lambda name: numbers[name], reverse=True):
        problem = retry_transient(partial(defect, output / name))
        if not problem:
            return name
        log(f"checkpoint {name} is skipped: {problem}")
    return ""


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in this folder; None if it is not complete."""
    number, path = checkpoint_number(folder.name), folder / DONE_FILE
    try:
        if number is None or not path.is_file():
            return None
        done, written = parse_json(path.read_bytes(), dict), path.stat().st_mtime
        numbers = {name[:LONGEST_NAME]: value for name, value in finite_numbers(done).items() if name != "pass"}
        stated = stated_files(done)
        return Checkpoint(folder.name, number, written, numbers, stated or files_in(folder), bool(stated))
    except FileNotFoundError:
        return None


def read_checkpoints(output: Path) -> list[Checkpoint]:
    """The complete checkpoints, oldest first."""
    found = [read_checkpoint(folder) for folder in output.glob("*")]
    return sorted((each for each in found if each), key=lambda each: each.number)


def files_in(folder: Path) -> tuple[File, ...]:
    """The files that are in the folder, without their checksums."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != DONE_FILE)
    return tuple(File(path.relative_to(folder).as_posix(), path.stat().st_size, "") for path in paths)


def with_checksums(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The checkpoint with computed checksums, if `done` does not list the files. A file that is gone has none."""
    if checkpoint.stated:
        return checkpoint
    found = []
    for each in checkpoint.files:
        path = folder / each.name
        try:
            status = path.stat()
            found.append(each._replace(sha256=known_sha256(path, status.st_size, status.st_mtime_ns)))
        except OSError:
            found.append(each)
    return checkpoint._replace(files=tuple(found))


@lru_cache(maxsize=1000)
def known_sha256(path: Path, size: int, changed: int) -> str:
    """Size and time are part of the cache key, so an unchanged file is read only once."""
    return sha256(path)
