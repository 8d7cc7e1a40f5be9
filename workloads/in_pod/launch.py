"""Runs one trainer of the training Job: finds the other trainers, trains, and resumes after a failure.

Every pod of the Job runs this launcher. In each turn of its loop, it observes, decides (decisions.py) and acts.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import contract
from decisions import TERMINATED, Action, Exit, Join, Publish, Snapshot, StopTraining, decide
from files import retry_transient
from processes import adopt_orphans, describe_status
from state_files import CurrentAttempt, Status, read_attempt, read_status, write_status
from trainer0 import POLL_SECONDS, Trainer0
from trainer_settings import LaunchError, TrainerSettings, log, read_settings
from training import Training


def poll_seconds(trainers: int) -> float:
    """The time between two observations. It is longer with many trainers, to limit the load on the file server."""
    return max(POLL_SECONDS, min(1.0, trainers / 2000))


class Launcher:
    """The state of one launcher between two turns of its loop."""

    def __init__(self, settings: TrainerSettings, work: Path) -> None:
        self.settings = settings
        self.work = work
        self.trainer0 = Trainer0(settings) if settings.trainer == 0 else None
        self.training: Training | None = None
        self.terminated = False
        self.joined = 0
        # When this launcher last took part in an attempt or verified the checkpoints, and when `attempt` last changed.
        self.last_part = self.last_change = time.monotonic()
        self.attempt = CurrentAttempt(job=settings.job_uid)
        self.status = Status()
        self.reported = 0.0
        self.waiting = ""
        signal.signal(signal.SIGTERM, self._terminate)
        launchers = settings.job_folder / contract.LAUNCHERS
        retry_transient(lambda: launchers.mkdir(parents=True, exist_ok=True))
        self._recover()

    def _terminate(self, *_: Any) -> None:
        self.terminated = True
        if self.training:
            self.training.cancelled.set()

    def _recover(self) -> None:
        """If an earlier launcher of this pod ended during an attempt, report that attempt as failed."""
        status = read_status(self.settings.job_folder, self.settings.trainer)
        if status.uid == self.settings.pod_uid:
            self.joined = status.attempt
            if not status.ended:
                self._report(ended=True, exit_status=1, message="lost its launcher, which was started again")

    def run(self) -> int:
        """Observe, decide and act until the launcher has to exit."""
        while True:
            snapshot = self.observe()
            action = decide(snapshot, self.settings)
            status = self.act(action, snapshot)
            if status is not None:
                return status

    def observe(self) -> Snapshot:
        """Report this pod's training, and collect what the decision needs."""
        settings = self.settings
        self._report_training()
        attempt = read_attempt(settings.job_folder, settings.job_uid)
        now = time.monotonic()
        if attempt != self.attempt:
            self.attempt, self.last_change = attempt, now
        if attempt.is_running and attempt.number == self.joined:
            self.last_part = now
        snapshot = Snapshot(
            now=time.time(),
            idle=now - self.last_part,
            silence=now - self.last_change,
            terminated=self.terminated,
            joined=self.joined,
            training=self.training is not None and not self.status.ended,
            attempt=attempt,
        )
        if self.trainer0:
            snapshot = self.trainer0.observe(snapshot)
            if snapshot.newest_checkpoint is None:
                self.last_part = now
        return snapshot

    def act(self, action: Action, snapshot: Snapshot) -> int | None:
        """Carry out the action. Returns the exit status if the launcher has to exit."""
        if isinstance(action, Exit):
            self._stop_training(snapshot.attempt)
            if snapshot.terminated and self.joined and not self.status.ended:
                self._report(ended=True, exit_status=TERMINATED, message="was stopped by SIGTERM")
            log(action.message)
            return action.status
        if isinstance(action, Join):
            self._join(action.attempt)
        elif isinstance(action, StopTraining):
            log(f"attempt {self.joined} is over: {action.reason}")
            self._stop_training(snapshot.attempt)
        elif isinstance(action, Publish):
            assert self.trainer0
            self.trainer0.publish(action.attempt, snapshot.now)
        else:
            self._wait(action.reason, snapshot)
        return None

    def _wait(self, reason: str, snapshot: Snapshot) -> None:
        if reason and reason != self.waiting:
            log(f"waiting: {reason}")
        self.waiting = reason
        if self.trainer0:
            self.trainer0.wait(snapshot.attempt, snapshot.now)
        else:
            time.sleep(poll_seconds(self.settings.trainers))

    def _join(self, attempt: CurrentAttempt) -> None:
        settings = self.settings
        start = f"from checkpoint {attempt.resume}" if attempt.resume else "from the beginning"
        because = f"; the last attempt ended because {attempt.previous}" if attempt.previous else ""
        self._stop_training(attempt)
        log(f"attempt {attempt.number}: trainer {settings.trainer} of {settings.trainers} starts {start}{because}")
        self.joined = attempt.number
        self.status = Status()
        self._report(ended=False)
        self.training = Training(settings, attempt, self.work)

    def _stop_training(self, attempt: CurrentAttempt) -> None:
        if not self.training:
            return
        if attempt.stalled == self.joined:
            self.training.dump_stacks()
        self.training.stop()
        self.training = None

    def _report_training(self) -> None:
        """Write this trainer's status file when its training ends. With a stall timeout, also write it before."""
        training = self.training
        if not training or self.status.ended:
            return
        status = training.status()
        if status is not None:
            output, when = training.last_output() if status and not training.start_error else ("", time.time())
            message = training.start_error or describe_status(status)
            self._report(ended=True, exit_status=status, message=message, output=output, time=when)
            if status:
                training.stop()
                self.training = None
        elif self.settings.stall_timeout and time.monotonic() - self.reported > self.settings.stall_timeout / 20:
            active, suspended = training.activity()
            self._report(ended=False, last_output=training.printed, last_active=active, suspended=suspended)

    def _report(self, **fields: Any) -> None:
        self.reported = time.monotonic()
        self.status = replace(Status(uid=self.settings.pod_uid, attempt=self.joined, time=time.time()), **fields)
        write_status(self.settings.job_folder, self.settings.trainer, self.status)
        if self.status.ended:
            log(f"trainer {self.settings.trainer} {self.status.message}")


def main() -> int:
    """Run the launcher. An error that a person has to correct is printed as one line."""
    adopt_orphans()
    try:
        settings = read_settings(os.environ, sys.argv[1:])
        with tempfile.TemporaryDirectory() as work:
            code = Launcher(settings, Path(work) / "trainer").run()
    except LaunchError as error:
        print(f"launch.py: {error}", file=sys.stderr, flush=True)
        return contract.FINAL_FAILURE
    except OSError as error:
        print(f"launch.py: {error}", file=sys.stderr, flush=True)
        return 1
    if code == TERMINATED:
        log("Kubernetes ends the pods of a Job at its time limit (job.timeoutMinutes), and of a node that it drains")
    if code in (contract.FINAL_FAILURE, TERMINATED):
        log(contract.repeat(os.environ[contract.Env.JOB_NAME]))
    return code


if __name__ == "__main__":
    sys.exit(main())
