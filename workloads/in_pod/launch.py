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
from checkpoints import newest_checkpoint
from decisions import TERMINATED, Action, Exit, Join, Publish, Snapshot, StopTraining, decide, first_failure
from keep_report import ReportKeeper
from pods import PodWatcher, newest_pods
from state_files import Attempt, Status, read_attempt, read_status, write_attempt, write_status
from trainer_settings import LaunchError, TrainerSettings, log, read_settings
from training import Training, adopt_orphans, describe_status
from transient import retry_transient

POLL_SECONDS = 0.3
STATUSES_PER_POLL = 100


def poll_seconds(trainers: int) -> float:
    """The time between two observations. It is longer with many trainers, to limit the load on the file server."""
    return max(POLL_SECONDS, min(1.0, trainers / 2000))


class Launcher:
    """The state of one launcher between two turns of its loop."""

    def __init__(self, settings: TrainerSettings, work: Path) -> None:
        self.settings = settings
        self.work = work
        self.watcher = PodWatcher(settings) if settings.trainer == 0 else None
        self.report_keeper = ReportKeeper(settings)
        self.training: Training | None = None
        self.terminated = False
        self.joined = 0
        self.started = time.monotonic()
        self.last_part = self.started  # when this launcher last took part in an attempt
        self.status = Status()
        self.reported = 0.0
        self.waiting = ""
        # Known to the launcher of trainer 0 only.
        self.statuses: dict[int, Status] = {}
        self.next_status = 0
        self.failure_seen = 0.0
        self.observed = 0  # the attempt that `statuses` and `failure_seen` describe
        self.checkpoint: tuple[str, tuple[object, ...]] = ("", ())
        self.checkpoint_time = 0.0
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
        if attempt.number and attempt.number == self.joined and not attempt.ended:
            self.last_part = now
        snapshot = Snapshot(
            now=time.time(),
            age=now - self.started,
            idle=now - self.last_part,
            terminated=self.terminated,
            joined=self.joined,
            training=self.training is not None and not self.status.ended,
            attempt=attempt,
        )
        return self._observe_all(snapshot, now) if self.watcher else snapshot

    def _observe_all(self, snapshot: Snapshot, now: float) -> Snapshot:
        """Add what only the launcher of trainer 0 observes."""
        settings, attempt = self.settings, snapshot.attempt
        assert self.watcher
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

    def _read_statuses(self, attempt: Attempt) -> None:
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

    def _newest_checkpoint(self, attempt: Attempt, ended: int) -> str:
        """The newest complete checkpoint. While an attempt runs, the checkpoint that it started from.

        A verification reads the whole checkpoint, so each checkpoint is verified only when a decision needs it.
        """
        running = attempt.number and not attempt.ended
        if running and ended < self.settings.trainers:
            return attempt.resume
        key = (attempt.number, bool(attempt.ended), ended if running else 0)
        if self.checkpoint[1] != key:
            self.checkpoint = (newest_checkpoint(self.settings.output, log), key)
        return self.checkpoint[0]

    def _checkpoint_time(self) -> float:
        """When a checkpoint was last written."""
        try:
            found = [entry for entry in os.scandir(self.settings.output) if contract.CHECKPOINT.fullmatch(entry.name)]
            self.checkpoint_time = max((entry.stat().st_mtime for entry in found), default=0.0)
        except OSError:
            pass  # the next turn looks again
        return self.checkpoint_time

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
            write_attempt(self.settings.job_folder, replace(action.attempt, alive=snapshot.now))
            if not action.attempt.ended or action.attempt.result:
                self.report_keeper.record(action.attempt)
        else:
            self._wait(action.reason, snapshot)
        return None

    def _wait(self, reason: str, snapshot: Snapshot) -> None:
        if reason and reason != self.waiting:
            log(f"waiting: {reason}")
        self.waiting = reason
        attempt = snapshot.attempt
        if not self.watcher:
            time.sleep(poll_seconds(self.settings.trainers))
            return
        # The other launchers give up when this one is silent for the peer timeout.
        if attempt.number and snapshot.now - attempt.alive > self.settings.peer_timeout / 5:
            write_attempt(self.settings.job_folder, replace(attempt, alive=snapshot.now))
        self.watcher.changed.wait(POLL_SECONDS)
        self.watcher.changed.clear()

    def _join(self, attempt: Attempt) -> None:
        settings = self.settings
        start = f"from checkpoint {attempt.resume}" if attempt.resume else "from the beginning"
        because = f"; the last attempt ended because {attempt.reason}" if attempt.reason else ""
        self._stop_training(attempt)
        log(f"attempt {attempt.number}: trainer {settings.trainer} of {settings.trainers} starts {start}{because}")
        self.joined = attempt.number
        self.status = Status()
        self._report(ended=False)
        self.training = Training(settings, attempt, self.work)

    def _stop_training(self, attempt: Attempt) -> None:
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
