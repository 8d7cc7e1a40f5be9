"""Reads the progress of a Job from the log of one of its pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from workloads.in_pod.contract import Attempt, read_attempts_line, read_checkpoint_line

PERCENT = re.compile(r"(?<![\d.])(\d{1,3})%")
REMAINING = re.compile(r"ETA (\d+):(\d\d):(\d\d)")
LONGEST_LINE = 200


@dataclass(frozen=True)
class Progress:
    """Everything that was read from one pod's log."""

    planned: int = 0
    checkpoints: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    written: Mapping[int, float] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    percent: int | None = None
    remaining: float | None = None
    last_line: str = ""


def read(progress: Progress, lines: Iterable[str]) -> Progress:
    """The progress after these lines. Reading a line twice changes nothing."""
    for line in lines:
        progress = read_line(progress, line.strip())
    return progress


def read_line(progress: Progress, line: str) -> Progress:
    if not line:
        return progress
    if reached := read_checkpoint_line(line):
        return replace(
            progress,
            planned=reached.planned,
            checkpoints={**progress.checkpoints, reached.number: reached.numbers},
            written={**progress.written, reached.number: reached.written},
            percent=None,
            remaining=None,
        )
    attempts = read_attempts_line(line)
    if attempts is not None:
        return replace(progress, attempts=tuple(attempts))
    percent, remaining = PERCENT.search(line), REMAINING.search(line)
    return replace(
        progress,
        last_line=line[:LONGEST_LINE],
        percent=min(100, int(percent[1])) if percent else progress.percent,
        remaining=(
            int(remaining[1]) * 3600 + int(remaining[2]) * 60 + int(remaining[3]) if remaining else progress.remaining
        ),
    )


def time_left(progress: Progress, now: float) -> float | None:
    """Seconds until the last checkpoint: the ETA in the log, or an estimate from the newest checkpoints."""
    if progress.remaining is not None:
        return progress.remaining
    newest = sorted(progress.written)[-10:]
    if len(newest) < 2 or not progress.planned:
        return None
    each = (progress.written[newest[-1]] - progress.written[newest[0]]) / (newest[-1] - newest[0])
    return max(0.0, each * (progress.planned - newest[-1]) - (now - progress.written[newest[-1]]))


def share_done(progress: Progress) -> float:
    """How much of the training is done, from 0 to 1."""
    reached = max(progress.checkpoints, default=0)
    if not progress.planned:
        return 0.0
    part = (progress.percent or 0) / 100 if reached < progress.planned else 0.0
    return min(1.0, (reached + part) / progress.planned)
