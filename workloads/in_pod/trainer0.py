"""What only the launcher of trainer 0 knows and does: it observes all pods and trainers, and publishes decisions."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from threading import Thread

import contract
from checkpoints import newest_checkpoint
from decisions import Snapshot, first_failure
from pods import PodWatcher, newest_pods
from report import ReportKeeper
from state_files import CurrentAttempt, Status, read_status, write_attempt
from trainer_settings import TrainerSettings, log

POLL_SECONDS = 0.3
STATUSES_PER_POLL = 100


class Verification:
    """The search for the newest complete checkpoint. It reads whole checkpoints, so it has its own thread."""

    def __init__(self, settings: TrainerSettings, reason: object) -> None:
        self.reason = reason
        self.found: Future[str] = Future()
        Thread(target=partial(self._run, settings), daemon=True).start()

    def _run(self, settings: TrainerSettings) -> None:
        try:
            self.found.set_result(newest_checkpoint(settings.output, log))
        except Exception as error:
            self.found.set_exception(error)

    def result(self) -> str | None:
        """The name of the checkpoint, empty if there is none; None if the search takes longer."""
        wait([self.found], POLL_SECONDS)
        return self.found.result() if self.found.done() else None


class Trainer0:
    """The additional state of the launcher of trainer 0."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self.watcher = PodWatcher(settings)
        self.report_keeper = ReportKeeper(settings)
        self.statuses: dict[int, Status] = {}
        self.next_status = 0
        self.failure_seen = 0.0
        self.observed = 0  # the attempt that `statuses` and `failure_seen` describe
        self.verification: Verification | None = None
        self.checkpoint_time = 0.0
        self.published = 0.0

    def observe(self, snapshot: Snapshot) -> Snapshot:
        """Add what only this launcher observes."""
        settings, attempt, now = self.settings, snapshot.attempt, time.monotonic()
        if attempt.number != self.observed:
            self.observed = attempt.number
            self.statuses, self.failure_seen = {}, 0.0
        self._read_statuses(attempt)
        statuses = [
            status if status and (status.attempt, status.uid) == (attempt.number, uid) else None
            for status, uid in ((self.statuses.get(i), uid) for i, uid in enumerate(attempt.members))
        ]
        if first_failure(statuses):
            self.failure_seen = self.failure_seen or now
        ended = sum(1 for status in statuses if status and status.ended)
        pods = self.watcher.pods()
        return replace(
            snapshot,
            pods=newest_pods(pods or [], settings.trainers),
            pods_by_uid=None if pods is None else {pod.uid: pod for pod in pods},
            api_problem=self.watcher.problem,
            statuses=statuses,
            highest_number=max((status.attempt for status in self.statuses.values()), default=0),
            failure_age=now - self.failure_seen if self.failure_seen else 0.0,
            newest_checkpoint=self._newest_checkpoint(attempt, ended),
            checkpoint_time=self._checkpoint_time() if settings.stall_timeout else 0.0,
        )

    def _read_statuses(self, attempt: CurrentAttempt) -> None:
        """Read the status files of the trainers, a limited number in each turn."""
        trainers = self.settings.trainers
        if not attempt.number and self.next_status >= trainers:
            return
        for _ in range(min(trainers, STATUSES_PER_POLL)):
            trainer = self.next_status % trainers
            self.next_status += 1
            known = self.statuses.get(trainer)
            if not (known and known.ended and known.attempt == attempt.number):
                self.statuses[trainer] = read_status(self.settings.job_folder, trainer)

    def _newest_checkpoint(self, attempt: CurrentAttempt, ended: int) -> str | None:
        """The newest complete checkpoint, or None until it is known. During an attempt, the one that it started from.

        A verification reads the whole checkpoint, so each checkpoint is verified only when a decision needs it.
        """
        if attempt.is_running and ended < self.settings.trainers:
            return attempt.resume
        reason = attempt.number, attempt.is_running
        if not self.verification or self.verification.reason != reason:
            self.verification = Verification(self.settings, reason)
        return self.verification.result()

    def _checkpoint_time(self) -> float:
        """When a checkpoint was last written."""
        try:
            found = [entry for entry in os.scandir(self.settings.output) if contract.CHECKPOINT.fullmatch(entry.name)]
            self.checkpoint_time = max((entry.stat().st_mtime for entry in found), default=0.0)
        except OSError:
            pass  # the next turn looks again
        return self.checkpoint_time

    def publish(self, attempt: CurrentAttempt, now: float) -> None:
        """Write the decision for all launchers, and record it."""
        self._write(attempt, now)
        self.report_keeper.record(attempt)
        if attempt.has_result:
            self.report_keeper.close()

    def wait(self, attempt: CurrentAttempt, now: float) -> None:
        """Wait for a change of the pods, or for a moment. The other launchers learn that this one is alive."""
        if attempt.number and time.monotonic() - self.published > self.settings.peer_timeout / 5:
            self._write(attempt, now)
        self.watcher.changed.wait(POLL_SECONDS)
        self.watcher.changed.clear()

    def _write(self, attempt: CurrentAttempt, now: float) -> None:
        write_attempt(self.settings.job_folder, replace(attempt, alive=now))
        self.published = time.monotonic()
