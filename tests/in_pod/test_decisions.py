"""Every decision of a launcher: one row for each way out of its loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decisions import EARLY_SECONDS, SETTLE_SECONDS, Exit, Join, Publish, Snapshot, StopTraining, Wait, decide
from pods import Pod, newest_pods, read_note
from state_files import CurrentAttempt, Status

from tests.in_pod.samples import PEER_TIMEOUT, settings

NOW = 1_000_000.0


def pod(trainer: int, phase: str = "Running", terminating: bool = False, uid: str = "", created: str = "1") -> Pod:
    """A pod of the Job."""
    uid = uid or f"uid-{trainer}"
    return Pod(uid, f"job-{trainer}", f"10.0.0.{trainer}", trainer, phase, terminating, created, "note")


def snapshot(pods: list[Pod] | None = None, **fields: object) -> Snapshot:
    """What a launcher observes while all pods run."""
    pods = [pod(0), pod(1), pod(2)] if pods is None else pods
    seen = Snapshot(now=NOW, pods=newest_pods(pods, 3), pods_by_uid={each.uid: each for each in pods})
    return replace(seen, **fields)  # type: ignore[arg-type]


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
FAILED_STATUS = Status(
    "uid-1", 4, ended=True, exit_status=3, message="ended with status 3", output="oops", time=NOW - 20
)
LATER = replace(FAILED_STATUS, uid="uid-0", time=NOW - 10)
DONE = [Status(f"uid-{i}", 4, ended=True) for i in range(3)]
BUSY = [Status(f"uid-{i}", 4, last_output=NOW, last_active=NOW) for i in range(3)]
QUIET = [Status(f"uid-{i}", 4, last_output=NOW - 1000 + i, last_active=NOW - 900 - i) for i in range(3)]
ENDED = replace(RUNNING, ended=NOW - 15, reason="trainer 1 ended with status 3, last output: oops")
FIRST = replace(ENDED, resume="")


def test_sigterm_ends_the_launcher() -> None:
    assert decide(snapshot(terminated=True), settings(1)) == Exit(143, "stopped by SIGTERM")


@pytest.mark.parametrize(("result", "status"), [("finished", 0), ("failed", 100)])
@pytest.mark.parametrize("trainer", [0, 1])
def test_the_result_ends_every_launcher(result: str, status: int, trainer: int) -> None:
    attempt = replace(RUNNING, result=result, reason="why", members=("other",) * 3)
    assert decide(snapshot(attempt=attempt), settings(trainer)) == Exit(status, f"{result}: why")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (ENDED, ENDED.reason),
        (replace(RUNNING, number=5, previous="why"), "why"),
        (replace(RUNNING, number=5), "another attempt replaced it"),
        (CurrentAttempt(), "another attempt replaced it"),
    ],
    ids=["ended", "next attempt", "next attempt without a reason", "attempt.json is lost"],
)
@pytest.mark.parametrize("trainer", [0, 1])
def test_a_training_stops_with_its_attempt(attempt: CurrentAttempt, reason: str, trainer: int) -> None:
    assert decide(snapshot(attempt=attempt, joined=4, training=True), settings(trainer)) == StopTraining(reason)


@pytest.mark.parametrize("trainer", [0, 1])
def test_a_member_joins_a_new_attempt(trainer: int) -> None:
    assert decide(snapshot(attempt=RUNNING, joined=3), settings(trainer)) == Join(RUNNING)


@pytest.mark.parametrize(
    ("attempt", "joined", "uid"),
    [(RUNNING, 4, ""), (RUNNING, 0, "a new pod"), (ENDED, 3, ""), (CurrentAttempt(), 0, "")],
    ids=["joined already", "not a member", "ended", "no attempt"],
)
def test_a_trainer_waits_for_the_decision_of_trainer_0(attempt: CurrentAttempt, joined: int, uid: str) -> None:
    seen = snapshot(attempt=attempt, joined=joined)
    assert isinstance(decide(seen, settings(1, uid)), Wait)


@pytest.mark.parametrize("ended", [0.0, NOW - 1])
def test_of_two_launchers_of_trainer_0_the_older_one_ends(ended: float) -> None:
    """A node that lost its network still writes to the volume. Its old list of pods must not end the new attempt."""
    replaced = replace(RUNNING, members=("another-uid", "uid-1", "uid-2"), ended=ended)
    action = decide(snapshot(joined=3, attempt=replaced), settings(0))
    assert isinstance(action, Exit)
    assert action.status == 143
    assert not isinstance(decide(snapshot(joined=0, attempt=replaced), settings(0)), Exit), "the new one decides"


@pytest.mark.parametrize("training", [False, True])
def test_a_trainer_gives_up_when_trainer_0_is_silent(training: bool) -> None:
    limit = PEER_TIMEOUT + SETTLE_SECONDS
    seen = snapshot(attempt=replace(RUNNING, alive=0.0), joined=4, training=training, silence=limit + 1)
    gone = Exit(100, "failed: trainer 0's launcher was silent for 900 s")
    assert decide(seen, settings(1)) == gone
    assert decide(replace(seen, attempt=CurrentAttempt(), joined=0, training=False), settings(1)) == gone
    assert isinstance(decide(replace(seen, silence=limit - 1), settings(1)), Wait), "whatever the clock of trainer 0"


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
    seen = snapshot(pods or [])
    if pods is None:
        seen = replace(seen, pods_by_uid=None)
    assert decide(seen, settings(0)) == Wait(reason)
    action = decide(replace(seen, idle=PEER_TIMEOUT + 1, api_problem="(no answer)"), settings(0))
    assert isinstance(action, Publish)
    assert (action.attempt.result, action.attempt.reason) == ("failed", f"after 900 s: {reason} (no answer)")


def test_the_first_attempt_starts_when_all_pods_run() -> None:
    action = decide(snapshot(newest_checkpoint="pass-00001"), settings(0))
    assert action == Publish(
        CurrentAttempt(
            job="job-1",
            number=1,
            tries=1,
            members=RUNNING.members,
            addresses=RUNNING.addresses,
            resume="pass-00001",
            started=NOW,
        )
    )


@pytest.mark.parametrize(
    ("extra", "uids"),
    [
        ([pod(3, uid="fourth")], ("uid-0", "uid-1", "uid-2")),
        ([pod(1, uid="newer", created="2")], ("uid-0", "newer", "uid-2")),
        ([pod(1, uid="dead", created="2", phase="Failed")], ("uid-0", "uid-1", "uid-2")),
    ],
    ids=["a pod too many", "a replaced pod", "a newer pod that failed"],
)
def test_an_attempt_has_one_pod_for_each_trainer(extra: list[Pod], uids: tuple[str, ...]) -> None:
    action = decide(snapshot([pod(0), pod(1), pod(2), *extra]), settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.members == uids


@pytest.mark.parametrize(
    ("tries", "newest", "expected"),
    [(1, "pass-00002", 2), (3, "pass-00003", 1), (1, "", 1)],
    ids=["no new checkpoint", "a new checkpoint", "the checkpoint is gone"],
)
def test_after_a_failure_the_next_attempt_starts(tries: int, newest: str, expected: int) -> None:
    seen = snapshot(attempt=replace(ENDED, tries=tries), joined=4, newest_checkpoint=newest)
    action = decide(seen, settings(0))
    assert isinstance(action, Publish)
    attempt = action.attempt
    assert (attempt.number, attempt.tries, attempt.resume) == (5, expected, newest)
    assert (attempt.previous, attempt.reason, attempt.ended) == (ENDED.reason, "", 0.0)


def test_a_number_is_not_used_twice_when_attempt_json_is_lost() -> None:
    action = decide(snapshot(joined=7, highest_number=9), settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.number == 10


def test_too_many_attempts_without_a_new_checkpoint_are_a_failure() -> None:
    seen = snapshot(attempt=replace(ENDED, tries=3), joined=4, newest_checkpoint="pass-00002")
    action = decide(seen, settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.result == "failed"
    assert action.attempt.ended == ENDED.ended, "the attempt had ended before"
    assert action.attempt.reason == f"3 attempts in a row made no new checkpoint; the last ended because {ENDED.reason}"


@pytest.mark.parametrize(
    ("status", "newest", "early"),
    [
        (FAILED_STATUS, "", "ended with status 3: oops"),
        (FAILED_STATUS, "pass-00000", ""),
        (replace(FAILED_STATUS, time=RUNNING.started + EARLY_SECONDS + 1), "", ""),
        (replace(FAILED_STATUS, output=""), "", ""),
    ],
    ids=["early", "after a checkpoint", "late", "without a message"],
)
def test_the_same_early_failure_twice_is_final(status: Status, newest: str, early: str) -> None:
    ended = replace(FIRST, reason="trainer 1 ended with status 3" + (", last output: oops" if status.output else ""))
    seen = snapshot(attempt=ended, joined=4, statuses=[None, status, None], newest_checkpoint=newest)
    action = decide(seen, settings(0))
    assert isinstance(action, Publish)
    assert (action.attempt.early_failure, action.attempt.result) == (early, "")
    again = decide(replace(seen, attempt=replace(ended, early_failure="ended with status 3: oops")), settings(0))
    assert isinstance(again, Publish)
    assert again.attempt.result == ("failed" if early else "")
    other = decide(replace(seen, attempt=replace(ended, early_failure="something else")), settings(0))
    assert isinstance(other, Publish)
    assert other.attempt.result == ""


def test_while_the_checkpoints_are_verified_nothing_is_decided() -> None:
    failed = replace(ENDED, tries=3)
    for attempt, statuses in ((CurrentAttempt(), []), (RUNNING, DONE), (failed, [])):
        seen = snapshot(attempt=attempt, joined=attempt.number, statuses=statuses, newest_checkpoint=None)
        assert isinstance(decide(seen, settings(0)), Wait)


def test_all_trainers_ended_well() -> None:
    seen = snapshot(attempt=RUNNING, joined=4, statuses=DONE, newest_checkpoint="pass-00004")
    action = decide(seen, settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.result == "finished"
    assert action.attempt.reason == "all 3 trainers ended with status 0; newest checkpoint: pass-00004"


def test_an_end_without_a_new_checkpoint_is_reported() -> None:
    """For example if only the arguments of the training have changed: all passes are complete already."""
    action = decide(snapshot(attempt=RUNNING, joined=4, statuses=DONE, newest_checkpoint=RUNNING.resume), settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.result == "finished"
    assert action.attempt.reason.endswith("which existed before this attempt: it made no new one")


def test_an_end_without_any_checkpoint_is_a_failure() -> None:
    action = decide(snapshot(attempt=RUNNING, joined=4, statuses=DONE), settings(0))
    assert isinstance(action, Publish)
    assert action.attempt.result == "failed"
    assert "there is no complete checkpoint" in action.attempt.reason


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([pod(0), pod(2)], "trainer 1's pod was deleted"),
        ([pod(0), pod(1, terminating=True), pod(2)], "trainer 1's pod job-1 is being deleted"),
        ([pod(0), pod(1, "Failed"), pod(2)], "trainer 1's pod job-1 failed note"),
    ],
)
def test_a_lost_pod_ends_the_attempt(pods: list[Pod], reason: str) -> None:
    seen = snapshot(pods, attempt=RUNNING, joined=4, training=True, statuses=[None, FAILED_STATUS, None])
    assert decide(seen, settings(0)) == Publish(replace(RUNNING, ended=NOW, reason=reason))


def test_the_first_failure_ends_the_attempt_when_the_others_have_reported() -> None:
    seen = snapshot(attempt=RUNNING, joined=4, training=True, statuses=[LATER, FAILED_STATUS, None], failure_age=1.0)
    assert decide(seen, settings(0)) == Wait("")
    action = decide(replace(seen, failure_age=SETTLE_SECONDS), settings(0))
    assert action == Publish(replace(RUNNING, ended=NOW, reason="trainer 1 ended with status 3, last output: oops"))


def test_a_trainer_that_fails_after_the_others_succeeded_is_a_failure() -> None:
    statuses = [DONE[0], FAILED_STATUS, DONE[2]]
    seen = snapshot(attempt=RUNNING, joined=4, statuses=statuses, failure_age=SETTLE_SECONDS, newest_checkpoint="")
    assert decide(seen, settings(0)) == Publish(replace(RUNNING, ended=NOW, reason=ENDED.reason))


def test_a_stalled_training_ends_the_attempt_and_names_the_trainer_that_stopped_first() -> None:
    attempt = replace(RUNNING, started=NOW - 2000)
    seen = snapshot(attempt=attempt, joined=4, training=True, statuses=QUIET)
    what = "no trainer printed a line or wrote a checkpoint for 600 s; trainer"
    assert decide(seen, settings(0)) == Publish(
        replace(attempt, ended=NOW, reason=f"{what} 2 stopped first", stalled=4)
    )
    suspended = [QUIET[0], replace(QUIET[1], suspended=True), QUIET[2]]
    action = decide(replace(seen, statuses=suspended), settings(0))
    assert action == Publish(replace(attempt, ended=NOW, reason=f"{what} 1 is suspended", stalled=4))


@pytest.mark.parametrize(
    "fields",
    [
        {"statuses": [*QUIET[:2], BUSY[2]]},
        {"checkpoint_time": NOW - 1},
        {"attempt": replace(RUNNING, started=NOW - 1)},
        {"statuses": [None, None, None]},
    ],
    ids=["a trainer prints", "a new checkpoint", "a new attempt", "no status yet"],
)
def test_progress_of_any_kind_is_not_a_stall(fields: dict[str, object]) -> None:
    attempt = replace(RUNNING, started=NOW - 2000)
    seen = snapshot(attempt=attempt, joined=4, training=True, statuses=QUIET)
    assert decide(replace(seen, **fields), settings(0)) == Wait("")  # type: ignore[arg-type]


def test_a_stall_timeout_of_zero_disables_the_check() -> None:
    seen = snapshot(attempt=replace(RUNNING, started=NOW - 2000), joined=4, training=True, statuses=QUIET)
    assert decide(seen, replace(settings(0), stall_timeout=0.0)) == Wait("")


def test_a_silent_api_server_does_not_end_an_attempt() -> None:
    seen = snapshot(attempt=RUNNING, joined=4, training=True, statuses=BUSY)
    assert decide(replace(seen, pods_by_uid=None), settings(0)) == Wait("")


def test_the_note_of_a_failed_container_is_the_last_line_of_its_log() -> None:
    log = "Traceback (most recent call last):\n  File x\nValueError: the cause\n"
    ended = {"containerStatuses": [{"state": {"terminated": {"reason": "Error", "message": log}}}]}
    assert read_note(ended) == "Error ValueError: the cause"
    assert (
        read_note({"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}) == "PodInitializing"
    )
