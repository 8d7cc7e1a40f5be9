"""Every decision of a launcher: what it observes, and what it does then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from decisions import EARLY_SECONDS, SETTLE_SECONDS, Action, Exit, Join, Publish, Snapshot, StopTraining, Wait, decide
from pods import Pod, newest_pods, read_note
from state_files import CurrentAttempt, Status

from tests.in_pod.samples import PEER_TIMEOUT, settings

NOW = 1_000_000.0


def pod(trainer: int, phase: str = "Running", terminating: bool = False, uid: str = "", created: str = "1") -> Pod:
    uid = uid or f"uid-{trainer}"
    return Pod(uid, f"job-{trainer}", f"10.0.0.{trainer}", trainer, phase, terminating, created, "note")


ALL = [pod(0), pod(1), pod(2)]


def snapshot(pods: list[Pod] = ALL, **fields: Any) -> Snapshot:
    """What a launcher observes, by default while all pods run."""
    seen = Snapshot(now=NOW, pods=newest_pods(pods, 3), pods_by_uid={each.uid: each for each in pods})
    return replace(seen, **fields)


RUNNING = CurrentAttempt(
    job="job-1",
    number=4,
    tries=1,
    members=("uid-0", "uid-1", "uid-2"),
    addresses=("10.0.0.0", "10.0.0.1", "10.0.0.2"),
    resume="pass-00002",
    started=NOW - 30,
    alive=NOW,
)
NONE = CurrentAttempt()
STATUS_3 = "trainer 1 ended with status 3, last output: oops"
ENDED = replace(RUNNING, ended=NOW - 15, reason=STATUS_3)
LONG = replace(RUNNING, started=NOW - 2000)
OTHERS = replace(RUNNING, members=("another-uid", "uid-1", "uid-2"))
FIRST = replace(RUNNING, number=1, resume="pass-00001", started=NOW, alive=0.0)
NEXT = replace(FIRST, number=5, tries=2, resume="pass-00002", previous=STATUS_3)
FAILED_STATUS = Status(
    "uid-1", 4, ended=True, exit_status=3, message="ended with status 3", output="oops", time=NOW - 20
)
THRICE = replace(ENDED, tries=3)
LATER = replace(FAILED_STATUS, uid="uid-0", time=NOW - 10)
DONE = [Status(f"uid-{i}", 4, ended=True) for i in range(3)]
BUSY = [Status(f"uid-{i}", 4, last_output=NOW, last_active=NOW) for i in range(3)]
QUIET = [Status(f"uid-{i}", 4, last_output=NOW - 1000 + i, last_active=NOW - 900 - i) for i in range(3)]
SUSPENDED = [QUIET[0], replace(QUIET[1], suspended=True), QUIET[2]]
STALL = "no trainer printed a line or wrote a checkpoint for 600 s; trainer"
LIMIT = PEER_TIMEOUT + SETTLE_SECONDS
SILENT = Exit(100, "failed: trainer 0's launcher was silent for 900 s")
REPLACED = Exit(143, "another launcher of trainer 0 decides now: Kubernetes has replaced this pod")
AWAIT = Wait("trainer 0's launcher decides when the training starts")
VERIFIES = Wait("trainer 0's launcher verifies the checkpoints")
IDLE = Wait("")
LOST_FILE = StopTraining("another attempt replaced it")
NO_NEW = "3 attempts in a row made no new checkpoint; the last ended because "
FINISH = "all 3 trainers ended with status 0; newest checkpoint: pass-0000"


def failed(attempt: CurrentAttempt, reason: str, ended: float = NOW) -> Publish:
    return Publish(replace(attempt, ended=ended, reason=reason, result="failed"))


def over(reason: str, attempt: CurrentAttempt = RUNNING, **fields: Any) -> Publish:
    return Publish(replace(attempt, ended=NOW, reason=reason, **fields))


# The trainers that decide so, what they observe, and the decision.
IN_ATTEMPT: dict[str, Any] = {"attempt": RUNNING, "joined": 4}
TRAINING = {**IN_ATTEMPT, "training": True}
AFTER = {"attempt": ENDED, "joined": 4}
AFTER_3 = {"attempt": THRICE, "joined": 4}
AT_END = {**IN_ATTEMPT, "statuses": DONE}
LOST = {**TRAINING, "statuses": [None, FAILED_STATUS, None]}
STALLED = {**TRAINING, "attempt": LONG, "statuses": QUIET}
DECISIONS: dict[str, tuple[str, dict[str, Any], Action]] = {
    "SIGTERM": ("1", {"terminated": True}, Exit(143, "stopped by SIGTERM")),
    "finished": ("01", {"attempt": replace(OTHERS, result="finished", reason="why")}, Exit(0, "finished: why")),
    "failed": ("01", {"attempt": replace(OTHERS, result="failed", reason="why")}, Exit(100, "failed: why")),
    "the attempt ended": ("01", {**TRAINING, "attempt": ENDED}, StopTraining(STATUS_3)),
    "next attempt": ("01", {**TRAINING, "attempt": replace(RUNNING, number=5, previous="why")}, StopTraining("why")),
    "no reason": ("01", {**TRAINING, "attempt": replace(RUNNING, number=5)}, LOST_FILE),
    "attempt.json is lost": ("01", {**TRAINING, "attempt": NONE}, LOST_FILE),
    "a member joins": ("01", {"attempt": RUNNING, "joined": 3}, Join(RUNNING)),
    "joined already": ("1", IN_ATTEMPT, AWAIT),
    "not a member": ("2", {"attempt": replace(RUNNING, members=("uid-0", "uid-1", "old"))}, AWAIT),
    "ended before": ("1", {"attempt": ENDED, "joined": 3}, AWAIT),
    "no attempt": ("1", {}, AWAIT),
    # A node that lost its network still writes to the volume. Its old list of pods must not end the new attempt.
    "replaced": ("0", {"joined": 3, "attempt": OTHERS}, REPLACED),
    "replaced, ended": ("0", {"joined": 3, "attempt": replace(OTHERS, ended=NOW - 1)}, REPLACED),
    "the new one decides": ("0", {"attempt": OTHERS}, over("trainer 0's pod was deleted", OTHERS)),
    "silent": ("1", {**IN_ATTEMPT, "attempt": replace(RUNNING, alive=0.0), "silence": LIMIT + 1}, SILENT),
    "silent while it trains": ("1", {**TRAINING, "silence": LIMIT + 1}, SILENT),
    "silent before the start": ("1", {"silence": LIMIT + 1}, SILENT),
    "not yet silent, whatever its clock": (
        "1",
        {**TRAINING, "attempt": replace(RUNNING, alive=0.0), "silence": LIMIT},
        IDLE,
    ),
    "first attempt": ("0", {"newest_checkpoint": "pass-00001"}, Publish(FIRST)),
    "a new checkpoint": (
        "0",
        {**AFTER_3, "newest_checkpoint": "pass-00003"},
        Publish(replace(NEXT, tries=1, resume="pass-00003")),
    ),
    "no new checkpoint": ("0", {**AFTER, "newest_checkpoint": "pass-00002"}, Publish(NEXT)),
    "the checkpoint is gone": ("0", AFTER, Publish(replace(NEXT, tries=1, resume=""))),
    "the last try": (
        "0",
        {"attempt": replace(ENDED, tries=2), "joined": 4, "newest_checkpoint": "pass-00002"},
        Publish(replace(NEXT, tries=3)),
    ),
    "no try is left": (
        "0",
        {**AFTER_3, "newest_checkpoint": "pass-00002"},
        failed(THRICE, NO_NEW + STATUS_3, ended=ENDED.ended),
    ),
    "numbers grow": ("0", {"joined": 7, "highest_number": 9}, Publish(replace(FIRST, number=10, resume=""))),
    "verification, start": ("0", {"newest_checkpoint": None}, VERIFIES),
    "verification, end": ("0", {**AT_END, "newest_checkpoint": None}, IDLE),
    "verification, failure": ("0", {**AFTER_3, "newest_checkpoint": None}, VERIFIES),
    "all ended well": ("0", {**AT_END, "newest_checkpoint": "pass-00004"}, over(FINISH + "4", result="finished")),
    # For example if only the arguments of the training have changed: all passes are complete already.
    "nothing was left to do": (
        "0",
        {**AT_END, "newest_checkpoint": "pass-00002"},
        over(FINISH + "2, which existed before this attempt: it made no new one", result="finished"),
    ),
    "an end without a checkpoint": (
        "0",
        AT_END,
        failed(RUNNING, "all trainers ended with status 0, but there is no complete checkpoint"),
    ),
    "a deleted pod": ("0", {**LOST, "pods": [pod(0), pod(2)]}, over("trainer 1's pod was deleted")),
    "a pod is being deleted": (
        "0",
        {**LOST, "pods": [pod(0), pod(1, terminating=True), pod(2)]},
        over("trainer 1's pod job-1 is being deleted"),
    ),
    "a failed pod": (
        "0",
        {**LOST, "pods": [pod(0), pod(1, "Failed"), pod(2)]},
        over("trainer 1's pod job-1 failed note"),
    ),
    "others may report": ("0", {**TRAINING, "statuses": [LATER, FAILED_STATUS, None], "failure_age": 2.9}, IDLE),
    "the first failure": (
        "0",
        {**TRAINING, "statuses": [LATER, FAILED_STATUS, None], "failure_age": SETTLE_SECONDS},
        over(STATUS_3),
    ),
    "the last trainer failed": (
        "0",
        {**IN_ATTEMPT, "statuses": [DONE[0], FAILED_STATUS, DONE[2]], "failure_age": SETTLE_SECONDS},
        over(STATUS_3),
    ),
    "a stall": ("0", STALLED, over(f"{STALL} 2 stopped first", LONG, stalled=4)),
    "a suspended trainer": ("0", {**STALLED, "statuses": SUSPENDED}, over(f"{STALL} 1 is suspended", LONG, stalled=4)),
    "a checkpoint at the limit": (
        "0",
        {**STALLED, "checkpoint_time": NOW - 600},
        over(f"{STALL} 2 stopped first", LONG, stalled=4),
    ),
    "a trainer prints": ("0", {**STALLED, "statuses": [*QUIET[:2], BUSY[2]]}, IDLE),
    "a checkpoint": ("0", {**STALLED, "checkpoint_time": NOW - 599}, IDLE),
    "a new attempt": ("0", {**STALLED, "attempt": replace(RUNNING, started=NOW - 1)}, IDLE),
    "no status yet": ("0", {**STALLED, "statuses": [None] * 3}, IDLE),
    "a silent API server": ("0", {**TRAINING, "statuses": BUSY, "pods_by_uid": None}, IDLE),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions(name: str) -> None:
    trainers, seen, expected = DECISIONS[name]
    for trainer in map(int, trainers):
        assert decide(snapshot(**seen), settings(trainer)) == expected


def test_a_stall_timeout_of_zero_disables_the_check() -> None:
    assert decide(snapshot(**STALLED), replace(settings(0), stall_timeout=0.0)) == IDLE


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        (None, "the API server has not listed the pods"),
        ([], "0 of 3 pods run; trainer 0: no pod; trainer 1: no pod; trainer 2: no pod"),
        ([pod(0), pod(1)], "2 of 3 pods run; trainer 2: no pod"),
        ([pod(0), pod(1), pod(2, "Pending")], "2 of 3 pods run; trainer 2: job-2 Pending note"),
        ([pod(0), pod(1), pod(2, terminating=True)], "2 of 3 pods run; trainer 2: job-2 Running note"),
        ([pod(0), pod(1), pod(2, "Failed")], "2 of 3 pods run; trainer 2: job-2 Failed note"),
    ],
)
def test_trainer_0_waits_for_all_pods_and_then_gives_up(pods: list[Pod] | None, reason: str) -> None:
    seen = replace(snapshot(pods or []), idle=PEER_TIMEOUT)
    if pods is None:
        seen = replace(seen, pods_by_uid=None)
    assert decide(seen, settings(0)) == Wait(reason)
    late = replace(seen, idle=PEER_TIMEOUT + 1, api_problem="(no answer)")
    assert decide(late, settings(0)) == failed(NONE, f"after 900 s: {reason} (no answer)")


@pytest.mark.parametrize(
    ("extra", "uids"),
    [
        (pod(3, uid="fourth"), ("uid-0", "uid-1", "uid-2")),
        (pod(1, uid="newer", created="2"), ("uid-0", "newer", "uid-2")),
        (pod(1, uid="dead", created="2", phase="Failed"), ("uid-0", "uid-1", "uid-2")),
    ],
)
def test_an_attempt_has_the_newest_pod_of_each_trainer(extra: Pod, uids: tuple[str, ...]) -> None:
    assert decide(snapshot([*ALL, extra]), settings(0)) == Publish(replace(FIRST, members=uids, resume=""))


@pytest.mark.parametrize(
    ("status", "newest", "early"),
    [
        (FAILED_STATUS, "", "ended with status 3: oops"),
        (replace(FAILED_STATUS, time=RUNNING.started + EARLY_SECONDS), "", "ended with status 3: oops"),
        (replace(FAILED_STATUS, time=RUNNING.started + EARLY_SECONDS + 1), "", ""),
        (FAILED_STATUS, "pass-00000", ""),
        (replace(FAILED_STATUS, output=""), "", ""),
    ],
    ids=["early", "just early", "late", "after a checkpoint", "without a message"],
)
def test_the_same_early_failure_twice_is_final(status: Status, newest: str, early: str) -> None:
    ended = replace(ENDED, resume="", reason=STATUS_3 if status.output else "trainer 1 ended with status 3")
    for before, result in (("", ""), ("ended with status 3: oops", "failed" if early else ""), ("another", "")):
        attempt = replace(ended, early_failure=before)
        seen = snapshot(attempt=attempt, joined=4, statuses=[None, status, None], newest_checkpoint=newest)
        action = decide(seen, settings(0))
        assert isinstance(action, Publish)
        assert (action.attempt.early_failure, action.attempt.result) == (before if result else early, result)


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (
            {"terminated": {"reason": "Error", "message": "Traceback:\n  File x\nValueError: the cause\n"}},
            "Error ValueError: the cause",
        ),
        ({"waiting": {"reason": "PodInitializing"}}, "PodInitializing"),
    ],
)
def test_the_note_of_a_failed_container_is_the_last_line_of_its_log(state: dict[str, object], note: str) -> None:
    assert read_note({"containerStatuses": [{"state": state}]}) == note
