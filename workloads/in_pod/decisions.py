"""What a launcher does next: a function of what it observed, without side effects.

The launcher of trainer 0 decides for all trainers and writes each decision to attempt.json:

1. All pods run: start the first attempt. Each launcher that finds its pod among the members starts its training.
2. A training fails, a pod is lost or all trainings hang: end the attempt. Each launcher stops its training.
3. All pods run again: start the next attempt, from the newest checkpoint.
4. All trainings end with status 0: the result is `finished`. Too many attempts bring no new checkpoint, or a pod does
   not start in time: the result is `failed`. Each launcher exits.

Attempt numbers only grow, and a pod's UID is never used twice. So a launcher that reads an old file only waits.

Each node has its own clock. So a launcher measures how long another one is silent with its own clock, between changes
of a file. Only the order of failures and the check for stalls compare the clocks of several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Mapping, NamedTuple, Sequence, Union

from contract import FAILED, FINAL_FAILURE, FINISHED
from pods import Pod, describe_lost, describe_missing
from state_files import CurrentAttempt, Status
from trainer_settings import TrainerSettings

# After a failure: time for other launchers to report an earlier failure, and for the API server to report a lost pod.
SETTLE_SECONDS = 3.0
# A training that fails this soon, twice, with the same message and without any checkpoint, will fail again.
EARLY_SECONDS = 60.0
TERMINATED = 143


@dataclass(frozen=True)
class Snapshot:
    """What a launcher observed. The fields after `attempt` are known to the launcher of trainer 0 only."""

    now: float  # seconds since the epoch, by this launcher's clock
    idle: float = 0.0  # seconds since this launcher last took part in an attempt
    silence: float = 0.0  # seconds since this launcher started or last saw another attempt.json
    terminated: bool = False  # SIGTERM arrived
    joined: int = 0  # the number of the attempt that this launcher joined last
    training: bool = False
    attempt: CurrentAttempt = field(default_factory=CurrentAttempt)
    pods: tuple[Pod | None, ...] = ()  # the current pod of each trainer
    pods_by_uid: Mapping[str, Pod] | None = None  # None before the first answer of the API server
    api_problem: str = ""
    statuses: Sequence[Status | None] = ()  # of the members of the attempt
    highest_number: int = 0  # of all attempts in the files trainer-N.json
    failure_age: float = 0.0  # seconds since a failure in the attempt was first seen
    newest_checkpoint: str | None = ""  # None while the checkpoints are verified
    checkpoint_time: float = 0.0


class Wait(NamedTuple):
    """Do nothing. The reason is logged when it changes."""

    reason: str


class Join(NamedTuple):
    """Start the training of this attempt."""

    attempt: CurrentAttempt


class StopTraining(NamedTuple):
    """Stop this pod's training: its attempt is over."""

    reason: str


class Publish(NamedTuple):
    """Write attempt.json."""

    attempt: CurrentAttempt


class Exit(NamedTuple):
    """Stop the training and end the launcher."""

    status: int
    message: str


Action = Union[Wait, Join, StopTraining, Publish, Exit]


def decide(s: Snapshot, settings: TrainerSettings) -> Action:
    """The next action of this launcher."""
    attempt, trainer = s.attempt, settings.trainer
    if s.terminated:
        return Exit(TERMINATED, "stopped by SIGTERM")
    if attempt.has_result:
        status = 0 if attempt.result == FINISHED else FINAL_FAILURE
        return Exit(status, f"{attempt.result}: {attempt.reason}")
    if s.training and (attempt.is_over or attempt.number != s.joined):
        return StopTraining(attempt.reason or attempt.previous or "another attempt replaced it")
    is_member = attempt.members[trainer : trainer + 1] == (settings.pod_uid,)
    if is_member and attempt.number > s.joined and attempt.is_running:
        return Join(attempt)
    if trainer == 0 and 0 < s.joined < attempt.number and not is_member:
        return Exit(TERMINATED, "another launcher of trainer 0 decides now: Kubernetes has replaced this pod")
    if trainer == 0:
        return decide_for_all(s, settings)
    # Trainer 0's launcher gives up first, because it knows the reason.
    if s.silence > settings.peer_timeout + SETTLE_SECONDS:
        return Exit(FINAL_FAILURE, f"failed: trainer 0's launcher was silent for {settings.peer_timeout:.0f} s")
    return Wait("trainer 0's launcher decides when the training starts" if not s.training else "")


def decide_for_all(s: Snapshot, settings: TrainerSettings) -> Action:
    """The next action of trainer 0's launcher, which decides for all."""
    attempt = s.attempt
    if attempt.is_running:
        return decide_during_attempt(s, settings)
    if s.newest_checkpoint is None:
        return Wait("trainer 0's launcher verifies the checkpoints")
    reason, early = attempt.reason, early_failure(s)
    if early and early == attempt.early_failure:
        return fail(s, f"two attempts failed at once in the same way; the last ended because {reason}")
    tries = attempt.tries if attempt.number and s.newest_checkpoint == attempt.resume else 0
    if tries >= settings.max_attempts:
        return fail(s, f"{tries} attempts in a row made no new checkpoint; the last ended because {reason}")
    missing = describe_missing(s.pods) if s.pods_by_uid is not None else "the API server has not listed the pods"
    if missing and s.idle > settings.peer_timeout:
        return fail(s, f"after {settings.peer_timeout:.0f} s: {missing} {s.api_problem}".strip())
    if missing:
        return Wait(missing)
    members = [pod for pod in s.pods if pod]
    return Publish(
        CurrentAttempt(
            job=settings.job_uid,
            number=max(attempt.number, s.joined, s.highest_number) + 1,
            tries=tries + 1,
            members=tuple(pod.uid for pod in members),
            addresses=tuple(pod.ip for pod in members),
            resume=s.newest_checkpoint,
            started=s.now,
            previous=reason,
            early_failure=early,
            stalled=attempt.stalled,
        )
    )


def decide_during_attempt(s: Snapshot, settings: TrainerSettings) -> Action:
    """The next action while an attempt runs: end the attempt, end the training, or wait."""
    attempt = s.attempt
    if sum(1 for status in s.statuses if status and status.ended and status.exit_status == 0) == settings.trainers:
        if s.newest_checkpoint is None:
            return Wait("")
        if not s.newest_checkpoint:
            return fail(s, "all trainers ended with status 0, but there is no complete checkpoint")
        reason = f"all {settings.trainers} trainers ended with status 0; newest checkpoint: {s.newest_checkpoint}"
        if s.newest_checkpoint == attempt.resume:
            reason += ", which existed before this attempt: it made no new one"
        return Publish(replace(attempt, ended=s.now, reason=reason, result=FINISHED))
    lost = describe_lost(attempt.members, s.pods_by_uid) if s.pods_by_uid is not None else ""
    if lost:
        return end(s, lost)
    failed = first_failure(s.statuses)
    if failed and s.failure_age >= SETTLE_SECONDS:
        return end(s, describe_failure(*failed))
    stalled = describe_stall(s, settings)
    if stalled:
        return end(s, stalled, stalled=attempt.number)
    return Wait("")


def end(s: Snapshot, reason: str, stalled: int = 0) -> Publish:
    """The attempt has failed."""
    return Publish(replace(s.attempt, ended=s.now, reason=reason, stalled=stalled or s.attempt.stalled))


def fail(s: Snapshot, reason: str) -> Publish:
    """The training has failed for good."""
    return Publish(replace(s.attempt, ended=s.attempt.ended or s.now, reason=reason, result=FAILED))


def first_failure(statuses: Sequence[Status | None]) -> tuple[int, Status] | None:
    """The trainer that failed first. Its failure explains the others."""
    failed = [(i, s) for i, s in enumerate(statuses) if s and s.ended and s.exit_status != 0]
    return min(failed, key=lambda each: each[1].time) if failed else None


def describe_failure(trainer: int, status: Status) -> str:
    """The failure in words."""
    return f"trainer {trainer} {status.message}" + (f", last output: {status.output}" if status.output else "")


def early_failure(s: Snapshot) -> str:
    """How the attempt failed, if its own code failed at once and before any checkpoint; else empty."""
    failed = first_failure(s.statuses)
    if not failed or describe_failure(*failed) != s.attempt.reason or s.newest_checkpoint:
        return ""
    _, status = failed
    if not status.output or status.time - s.attempt.started > EARLY_SECONDS:
        return ""
    return f"{status.message}: {status.output}"


def describe_stall(s: Snapshot, settings: TrainerSettings) -> str:
    """Which trainer stopped first, if no trainer made progress for too long; else empty."""
    known = [(i, status) for i, status in enumerate(s.statuses) if status and not status.ended]
    progress = max([s.attempt.started, s.checkpoint_time, *(status.last_output for _, status in known)])
    if not settings.stall_timeout or not known or s.now - progress < settings.stall_timeout:
        return ""
    trainer, status = min(known, key=lambda each: (not each[1].suspended, each[1].last_active))
    what = f"no trainer printed a line or wrote a checkpoint for {settings.stall_timeout:.0f} s"
    how = "is suspended" if status.suspended else "stopped first"
    return f"{what}; trainer {trainer} {how}"
