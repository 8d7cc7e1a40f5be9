"""Trainer 0's launcher keeps attempts.json and report.html up to date. No failure here ends a training."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Mapping

import contract
from checkpoints import read_checkpoints, with_checksums
from contract import CheckpointLine, parse_json
from files import replace_file, retry_transient
from history import history_message, next_history, read_history, write_history
from page import MOST_POINTS, Report, render
from state_files import CurrentAttempt
from trainer_settings import TrainerSettings, log

SECONDS_BETWEEN_LOOKS = 2.0


def gather(output: Path, job: str, planned: int, settings: Mapping[str, str]) -> Report:
    """Read the facts of the report from the volume."""
    checkpoints = read_checkpoints(output)
    if checkpoints:
        checkpoints[-1] = with_checksums(checkpoints[-1], output / checkpoints[-1].name)
    try:
        made_from = parse_json(retry_transient((output / contract.MADE_FROM_FILE).read_bytes), dict)
    except OSError:
        made_from = {}
    return Report(job, planned, settings, made_from, checkpoints, read_history(output), time.time())


def write_report(output: Path, report: Report) -> None:
    """Replace report.html."""
    replace_file(output / contract.REPORT_FILE, render(report).encode("utf-8", "replace"))


def news(report: Report, known: set[str]) -> list[str]:
    """One message for each checkpoint that is not in `known` yet; adds them to `known`."""
    new = [each for each in report.checkpoints[-MOST_POINTS:] if each.name not in known]
    known.update(each.name for each in new)
    return [CheckpointLine(each.number + 1, report.planned, each.numbers, each.written).message() for each in new]


def fingerprint(output: Path) -> tuple[Any, ...]:
    """A value that changes with each checkpoint and each attempt."""
    names = sorted(entry.name for entry in os.scandir(output) if contract.checkpoint_number(entry.name) is not None)
    stamps = []
    for path in (output / contract.HISTORY_FILE, *(output / name / contract.DONE_FILE for name in names[-1:])):
        try:
            stamps.append(path.stat().st_mtime_ns)
        except OSError:
            stamps.append(0)
    return (*names, *stamps)


class ReportKeeper:
    """Writes the history with each decision of trainer 0. A thread writes the page, which can take minutes."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self.printed: set[str] = set()
        self.trouble = ""
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None

    def record(self, attempt: CurrentAttempt) -> None:
        """Add trainer 0's decision to the history of attempts."""
        output = self.settings.output
        try:
            history = next_history(read_history(output), attempt, time.time())
            write_history(output, history)
            log(history_message(history))
        except Exception as error:  # a report is worth less than the training
            self._complain(error)
        if not self.thread:
            self.thread = threading.Thread(target=self._keep, daemon=True)
            self.thread.start()

    def close(self) -> None:
        """Write the last report."""
        self.closed.set()
        if self.thread:
            self.thread.join()
        self.write()

    def _keep(self) -> None:
        seen: tuple[Any, ...] = ()
        while not self.closed.wait(SECONDS_BETWEEN_LOOKS):
            try:
                now = fingerprint(self.settings.output)
            except OSError:
                continue
            if now != seen:
                seen = now
                self.write()

    def write(self) -> None:
        """Write the report as of now, and print the checkpoints that came since the last time."""
        settings = self.settings
        shown = {
            "trainers": str(settings.trainers),
            "job.namespace": settings.namespace,
            "job.configDir": settings.code.name,
            "job.passes": str(settings.passes),
            "job.attempts": str(settings.max_attempts),
            "job.peerTimeoutMinutes": f"{settings.peer_timeout / 60:g}",
            "pserver.nic": settings.nic,
            "pserver.port": str(settings.port),
        }
        try:
            facts = gather(settings.output, settings.job, settings.passes, shown)
            for line in news(facts, self.printed):
                log(line)
            write_report(settings.output, facts)
            self.trouble = ""
        except Exception as error:  # a report is worth less than the training
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        trouble = f"{contract.REPORT_FILE} cannot be written: {error!r}"
        if trouble != self.trouble:
            log(trouble)
        self.trouble = trouble
