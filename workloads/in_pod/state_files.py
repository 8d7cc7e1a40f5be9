"""The files that the launchers of a training use to communicate.

The launcher of trainer 0 writes attempt.json. The launcher of trainer N writes trainer-N.json. Every other launcher
only reads them. A write replaces the whole file.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contract
from contract import Attempt, from_json, parse_json
from files import replace_file, retry_transient


@dataclass(frozen=True)
class CurrentAttempt(Attempt):
    """The content of attempt.json: what the launcher of trainer 0 decided last."""

    tries: int = 0  # attempts in a row without a new checkpoint, this one included
    members: tuple[str, ...] = ()  # the UID of each trainer's pod
    addresses: tuple[str, ...] = ()
    previous: str = ""  # why the attempt before this one ended
    early_failure: str = ""  # how the attempt before this one failed, if that was at once and without any checkpoint
    stalled: int = 0  # the number of the last attempt that ended because all trainings hung
    alive: float = 0.0  # when the launcher of trainer 0 last wrote the file, by its own clock


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

    return parse_json(retry_transient(read), dict)


def write_json(path: Path, value: Any) -> None:
    """Replace the file by the dataclass."""
    replace_file(path, json.dumps(dataclasses.asdict(value)).encode())


def attempt_file(job_folder: Path) -> Path:
    """The path of attempt.json."""
    return job_folder / contract.LAUNCHERS / contract.ATTEMPT_FILE


def read_attempt(job_folder: Path, job: str) -> CurrentAttempt:
    """The last decision for this Job; an empty one if there is none or it cannot be read."""
    attempt = from_json(CurrentAttempt, read_json(attempt_file(job_folder)))
    return attempt if attempt and attempt.job == job else CurrentAttempt(job=job)


def write_attempt(job_folder: Path, attempt: CurrentAttempt) -> None:
    """Publish the decision to all launchers."""
    write_json(attempt_file(job_folder), attempt)


def read_status(job_folder: Path, trainer: int) -> Status:
    """The status of a trainer; an empty one if there is none or it cannot be read."""
    return from_json(Status, read_json(contract.status_file(job_folder, trainer))) or Status()


def write_status(job_folder: Path, trainer: int, status: Status) -> None:
    """Report to the launcher of trainer 0."""
    write_json(contract.status_file(job_folder, trainer), status)
