"""Run this pod's trainer as one of a gang: find the others, train, and start again together when one is lost.

How the launchers agree. A trainer is known by its id (the pod's completion index) and, as a member of the gang, by
its pod's UID. Every launcher watches the Job's pods, and all share the volume. Rank 0's launcher alone decides: once
all N pods run it writes `.launchers/attempt.json` (the attempt's number, each member's UID and address, the newest
complete pass), and every launcher named there starts its training. A launcher whose training ends writes the status
to `.launchers/trainer-<id>.json`. When any training failed, or a member's pod is failed, going or replaced, rank 0
writes the next attempt as soon as N pods run again; every launcher stops its training when it sees a member lost or
the attempt superseded, and joins the next one. When all N trainings ended with 0, rank 0 writes the verdict
`finished` and every launcher exits 0; when MAX_ATTEMPTS in a row brought no new pass, or a pod did not come in
PEER_TIMEOUT_SECONDS, the verdict is `failed` with the reason, and every launcher exits non-zero. Each attempt has a
port of its own (they take turns), so a straggler of the last one cannot meet the next. Files appear whole (renamed)
and have one writer each; an old reading costs a moment, never a wrong step, because numbers only grow and UIDs are
never used twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import contract
from checkpoints import Attempt, newest_pass, read_attempt, read_json, write_json
from keep_report import ReportKeeper
from pods import Gang, Pod, complete, describe_lost, describe_missing, holders
from trainer_settings import LaunchError, Settings, read_settings, say
from training import Training, adopt_orphans, copy_in, describe_status

SETTLE_SECONDS = 3.0  # after a failure, for the API server to tell whether a pod went with it


class Launcher:
    """One launcher's part in the agreement, from rendezvous to verdict."""

    def __init__(self, settings: Settings, work: Path) -> None:
        self.settings = settings
        self.work = work
        self.gang = Gang(settings)
        self.report_keeper = ReportKeeper(settings)
        self.terminated = False
        self.joined = 0
        self.copied = -1
        self.status = 0
        settings.launchers.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: Any) -> None:
        self.terminated = True

    def run(self) -> int:
        """Take part in attempt after attempt until a verdict, and return the exit status."""
        while True:
            attempt, trainer = self.rendezvous()
            if attempt.verdict:
                say(f"{attempt.verdict}: {attempt.reason}")
                return 0 if attempt.verdict == "finished" else self.status % 256 or 1
            if not self.terminated:
                self.take_part(attempt, trainer)
            if self.terminated:
                say("told to stop (SIGTERM)")
                return 128 + signal.SIGTERM

    def rendezvous(self) -> tuple[Attempt, int]:
        """The next attempt that this pod is in and its trainer id there, or the verdict; rank 0 decides both."""
        settings, said, began = self.settings, "", time.monotonic()
        settled = began + SETTLE_SECONDS if self.joined else began
        last = bool(self.joined) and self.is_last(read_attempt(settings))
        while not self.terminated:
            pods = self.gang.pods()
            gang = holders(pods, settings)
            ready = complete(gang)
            trainer = next((i for i, pod in enumerate(gang) if pod and pod.uid == settings.pod_uid), None)
            attempt = read_attempt(settings)
            if not pods or attempt.job_uid != pods[0].job_uid:
                attempt = Attempt(job_uid=pods[0].job_uid if pods else "")
            if attempt.verdict:
                return attempt, -1
            if trainer is not None and not self.joined:
                self.own_up(trainer)
            if trainer == 0 and time.monotonic() >= settled and (ready or last):
                return self.decide(attempt, ready), 0
            if trainer and ready and attempt.number > self.joined and attempt.members == tuple(p.uid for p in ready):
                return attempt, trainer
            waiting = "all pods run; trainer 0 decides" if ready else describe_missing(gang)
            if pods and waiting != said:
                say(f"waiting: {waiting}")
                said = waiting
            # Rank 0 gives up first: a pod that failed before it would be the reason it sees.
            patience = settings.peer_timeout + (SETTLE_SECONDS if trainer else 0.0)
            if time.monotonic() - began > patience:
                missing = f"after {settings.peer_timeout:.0f} s: {waiting} {self.gang.trouble}".strip()
                if trainer != 0:
                    raise LaunchError(missing)
                return self.announce(replace(attempt, verdict="failed", reason=missing)), 0
            self.gang.wait()
        return Attempt(), -1

    def own_up(self, trainer: int) -> None:
        """If this container was started again in its pod, the attempt that its last life had joined has failed."""
        report = read_json(self.report_path(trainer))
        if report.get("uid") == self.settings.pod_uid:
            self.joined = report["attempt"]
            self.report(trainer, 1, "lost its launcher, which started again")

    def is_last(self, attempt: Attempt) -> bool:
        """Whether no further attempt may follow this one."""
        if attempt.tries < self.settings.max_attempts:
            return False
        return newest_pass(self.settings.output) == attempt.resume

    def decide(self, previous: Attempt, ready: list[Pod]) -> Attempt:
        """As rank 0: write the attempt that follows the previous one, or the verdict when there may be none."""
        reason = ""
        if previous.number:
            reason = describe_lost(previous.members, self.gang.pods()) or self.hear(previous)[1]
        if self.is_last(previous):
            reason = f"{previous.tries} attempts in a row brought no new pass; the last ended because {reason}"
            return self.announce(replace(previous, verdict="failed", reason=reason))
        resume = newest_pass(self.settings.output)
        return self.announce(
            Attempt(
                job_uid=ready[0].job_uid,
                number=previous.number + 1,
                tries=previous.tries + 1 if resume == previous.resume else 1,
                members=tuple(pod.uid for pod in ready),
                addresses=tuple(pod.ip for pod in ready),
                resume=resume,
                reason=reason,
            )
        )

    def announce(self, attempt: Attempt) -> Attempt:
        """Tell every launcher."""
        write_json(self.settings.launchers / contract.ATTEMPT_FILE, asdict(attempt))
        self.report_keeper.record(attempt)
        return attempt

    def report_path(self, trainer: int) -> Path:
        """Where the launcher of this trainer leaves word for rank 0's."""
        return contract.status_file(self.settings.root, trainer)

    def report(self, trainer: int, status: int | None, reason: str, when: float | None = None) -> None:
        """Tell rank 0 how this trainer fares in the attempt it joined; no status while it trains."""
        word = {"uid": self.settings.pod_uid, "attempt": self.joined, "status": status, "reason": reason}
        write_json(self.report_path(trainer), {**word, "time": when or time.time()})
        if status is not None:
            say(f"trainer {trainer} {reason}")

    def hear(self, attempt: Attempt) -> tuple[int, str]:
        """As rank 0: how many trainers ended well in this attempt, and the first failure, which explains the others."""
        well = 0
        failures = []
        for trainer, uid in enumerate(attempt.members):
            word = read_json(self.report_path(trainer))
            if word.get("attempt") != attempt.number or word.get("uid") != uid or word["status"] is None:
                continue
            if word["status"] == 0:
                well += 1
            else:
                failures.append((word["time"], f"trainer {trainer} {word['reason']}"))
        return well, min(failures)[1] if failures else ""

    def take_part(self, attempt: Attempt, trainer: int) -> None:
        """Train until the attempt is over, for whatever reason."""
        settings = self.settings
        resumed = f"from {attempt.resume}" if attempt.resume else "from the beginning"
        because = f" because {attempt.reason}" if attempt.reason else ""
        say(f"attempt {attempt.number}: trainer {trainer} of {settings.trainers} starts {resumed}{because}")
        self.joined, self.status = attempt.number, 0
        self.report(trainer, None, "")
        training: Training | None = None
        try:
            if self.copied != trainer:
                copy_in(settings, trainer, self.work)
                self.copied = trainer
            training = Training(settings, attempt, trainer, self.work)
        except (LaunchError, OSError, shutil.Error) as error:
            self.report(trainer, 1, f"could not start: {error}")
        try:
            self.watch_over(training, attempt, trainer)
        finally:
            if training:
                training.stop()

    def watch_over(self, training: Training | None, attempt: Attempt, trainer: int) -> None:
        """Return when the attempt is over; on the way tell how the training ended, and as rank 0 hear the others."""
        status = None
        heard = 0.0
        while not self.terminated:
            self.gang.wait()
            if training and status is None and (status := training.status()) is not None:
                self.status = status
                words, when = training.last_words() if status else ("", None)
                saying = f", saying: {words}" if words else ""
                # Paddle's launcher ends seconds after its worker: when that spoke last tells cause from effect.
                self.report(trainer, status, describe_status(status) + saying, when)
            latest = read_attempt(self.settings)
            if latest.job_uid == attempt.job_uid and (latest.number > attempt.number or latest.verdict):
                return
            lost = describe_lost(attempt.members, self.gang.pods())
            well, failure = self.hear(attempt) if trainer == 0 else (0, "")
            heard = heard or (time.monotonic() if failure else 0.0)
            # Rank 0's own training may be what the others failed of, and about to end with the reason.
            may_tell = training and status is None and time.monotonic() < heard + SETTLE_SECONDS
            if lost or (failure and not may_tell):
                say(f"attempt {attempt.number} is over: {lost or failure}")
                return
            if well == self.settings.trainers:
                reason = f"all {well} trainers ended well; newest pass: {newest_pass(self.settings.output)}"
                self.announce(replace(attempt, verdict="finished", reason=reason))
        self.report(trainer, 128 + signal.SIGTERM, "was told to stop")


def main() -> int:
    """Launch, and turn what a person can mend into one line."""
    adopt_orphans()
    try:
        settings = read_settings(os.environ, sys.argv[1:])
        with tempfile.TemporaryDirectory() as work:
            return Launcher(settings, Path(work) / "trainer").run()
    except (LaunchError, OSError) as error:
        print(f"launch.py: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
