"""Trainer 0's launcher keeps report.html and the history of attempts up to date. No failure here ends a training."""

from __future__ import annotations

import threading
import time

import report
from state_files import Attempt
from trainer_settings import TrainerSettings, log


class ReportKeeper:
    """Writes the report after each decision of trainer 0, and after each checkpoint by its own thread."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self.lock = threading.Lock()
        self.printed: set[str] = set()
        self.trouble = ""
        self.thread: threading.Thread | None = None

    def record(self, attempt: Attempt) -> None:
        """Add trainer 0's decision to the history of attempts, and write the report."""
        output = self.settings.output
        with self.lock:
            try:
                output.mkdir(parents=True, exist_ok=True)
                history = report.next_history(
                    report.read_history(output),
                    attempt.job_uid,
                    attempt.number,
                    attempt.resume,
                    attempt.reason,
                    attempt.result,
                    time.time(),
                )
                report.write_history(output, history)
                log(report.attempts_line(history))
            except Exception as error:  # a report is worth less than the training
                self._complain(error)
        self.write()
        if not self.thread:
            self.thread = threading.Thread(target=report.keep, args=(self.write, output, _pause), daemon=True)
            self.thread.start()

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
        with self.lock:
            try:
                facts = report.gather(settings.output, settings.job, settings.passes, shown)
                for line in report.news(facts, self.printed):
                    log(line)
                report.write_report(settings.output, facts)
                self.trouble = ""
            except Exception as error:  # a report is worth less than the training
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        trouble = f"{report.NAME} cannot be written: {error!r}"
        if trouble != self.trouble:
            log(trouble)
        self.trouble = trouble


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False
