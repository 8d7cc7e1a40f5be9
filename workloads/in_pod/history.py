"""The history of a training's attempts, in attempts.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Sequence

import contract
from contract import Attempt
from files import replace_file, retry_transient
from state_files import CurrentAttempt
from texts import plain

MOST_PRINTED = 20


def read_history(output: Path) -> list[Attempt]:
    """All attempts of this training. Unreadable entries are left out."""
    try:
        content = retry_transient((output / contract.HISTORY_FILE).read_bytes)
    except OSError:
        return []
    return contract.parse_attempts(contract.parse_json(content, list))


def next_history(history: Sequence[Attempt], current: CurrentAttempt, now: float) -> list[Attempt]:
    """The history after a decision of trainer 0: the current attempt is the last entry, and the others have ended."""
    entries = []
    for each in history:
        if (each.job, each.number) == (current.job, current.number):
            continue
        if each.is_running:
            reason = current.previous if each.job == current.job else "the Job was replaced or deleted"
            each = dataclasses.replace(each, ended=now, reason=reason)
        entries.append(each)
    if current.number:
        entries.append(Attempt(*(getattr(current, field.name) for field in dataclasses.fields(Attempt))))
    return entries


def write_history(output: Path, history: Sequence[Attempt]) -> None:
    """Replace attempts.json."""
    entries = [dataclasses.asdict(each) for each in history]
    replace_file(output / contract.HISTORY_FILE, json.dumps(entries, indent=1).encode())


def history_message(history: Sequence[Attempt]) -> str:
    """The newest attempts as one line of the log."""
    newest = history[-MOST_PRINTED:]
    return contract.attempts_message(dataclasses.replace(each, reason=plain(each.reason)) for each in newest)
