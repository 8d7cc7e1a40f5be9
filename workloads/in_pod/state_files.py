"""The files that the launchers of a training use to communicate.

The launcher of trainer 0 writes attempt.json. The launcher of trainer N writes trainer-N.json. Every other launcher
only reads them. A write replaces the whole file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contract
from transient import retry_transient

FINISHED, FAILED = "finished", "failed"


@dataclass(frozen=True)
class Attempt:
    """The content of attempt.json: what the launcher of trainer 0 decided last."""

    job_uid: str = ""
    number: int = 0
    tries: int = 0  # attempts in a row without a new checkpoint, this one included
    members: tuple[str, ...] = ()  # the UID of each trainer's pod
    addresses: tuple[str, ...] = ()
    resume: str = ""  # the checkpoint that the attempt starts from
    started: float = 0.0
    reason: str = ""  # why the attempt before this one ended, or the reason of the result
    early_failure: str = ""  # how the attempt before this one failed, if that was at once and without any checkpoint
    ended: str = ""  # why this attempt ended
    stalled: int = 0  # the number of the last attempt that ended because all trainings hung
    result: str = ""  # FINISHED or FAILED: the end of the training
    alive: float = 0.0  # when the launcher of trainer 0 last wrote the file


@dataclass(frozen=True)
class Status:
    """The content of trainer-N.json: how trainer N is doing in an attempt."""

    uid: str = ""
    attempt: int = 0
    ended: bool = False
    exit_status: int = 0
    message: str = ""  # how the training ended, for people
    output: str = ""  # the last line that the training printed
    time: float = 0.0  # when the training ended
    last_output: float = 0.0
    last_active: float = 0.0  # when the training last used the CPU
    suspended: bool = False  # a process of the training was stopped by a signal


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty if the file is absent or unreadable."""

    def read() -> bytes:
        # With O_CREAT, an NFS client asks the server. Otherwise its cache may say "no such file" for a minute.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "rb") as stream:
            return stream.read()

    try:
        value = json.loads(retry_transient(read))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace the file."""
    # A pod that ends and its replacement may write the same file at the same time.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as stream:
            json.dump(value, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)

    retry_transient(write)


def fields_of(kind: Any, value: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a dataclass from JSON; None if one has an unexpected type."""
    found = {}
    for field in dataclasses.fields(kind):
        given = value.get(field.name, field.default)
        if isinstance(field.default, tuple) and isinstance(given, list) and all(isinstance(v, str) for v in given):
            given = tuple(given)
        if isinstance(field.default, float) and type(given) is int:
            given = float(given)
        if type(given) is not type(field.default):
            return None
        found[field.name] = given
    return found


def attempt_file(job_folder: Path) -> Path:
    """The path of attempt.json."""
    return job_folder / contract.LAUNCHERS / contract.ATTEMPT_FILE


def read_attempt(job_folder: Path, job_uid: str) -> Attempt:
    """The last decision for this Job; an empty one if there is none or it cannot be read."""
    found = fields_of(Attempt, read_json(attempt_file(job_folder)))
    attempt = Attempt(**found) if found else Attempt()
    return attempt if attempt.job_uid == job_uid else Attempt(job_uid=job_uid)


def write_attempt(job_folder: Path, attempt: Attempt) -> None:
    """Publish the decision to all launchers."""
    write_json(attempt_file(job_folder), dataclasses.asdict(attempt))


def read_status(job_folder: Path, trainer: int) -> Status:
    """The status of a trainer; an empty one if there is none or it cannot be read."""
    found = fields_of(Status, read_json(contract.status_file(job_folder, trainer)))
    return Status(**found) if found else Status()


def write_status(job_folder: Path, trainer: int, status: Status) -> None:
    """Report to the launcher of trainer 0."""
    write_json(contract.status_file(job_folder, trainer), dataclasses.asdict(status))
