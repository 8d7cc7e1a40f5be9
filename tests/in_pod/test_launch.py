"""Real launcher processes: after every fault the training ends with a complete model or with a clear error."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from decisions import Join, Snapshot, decide
from launch import poll_seconds
from state_files import read_attempt
from trainer_settings import read_settings

from tests.in_pod.api import FakeApi, make_pod
from tests.in_pod.training_run import STUB, TRAINER, Trainer, TrainingRun, end_container


def start(run: TrainingRun, *arguments: str, owner: str = "job-1") -> None:
    for index in range(run.trainers):
        run.start(index, arguments, make_pod(run.job, index, run.address(index), owner=owner))


def training_process(run: TrainingRun, index: int) -> int:
    return int((run.root / f"stub-{index}.pid").read_text())


def is_alive(process: int) -> bool:
    """Whether the process still runs. A zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def finish(run: TrainingRun, passes: int = 3) -> str:
    """The training succeeds with all checkpoints. Returns the output of trainer 0."""
    run.wait(run.ended)
    assert run.statuses() == [0] * run.trainers
    assert run.passes() == [f"pass-{number:05d}" for number in range(passes)]
    return run.pods[0].text()


def fail(run: TrainingRun, reason: str, **settings: str) -> None:
    """The training fails: each trainer prints the reason."""
    run.settings.update(settings)
    start(run)
    run.wait(run.ended, replace=False)
    assert run.statuses() == [100, 100, 100]
    assert all(reason in trainer.text() for trainer in run.all)


def resume(run: TrainingRun) -> str:
    """As `finish`. Every checkpoint was written once: each attempt resumed from the newest one."""
    finish(run)
    printed = "".join(trainer.text() for trainer in run.all)
    assert max(printed.count(f"stub: wrote pass {number}\n") for number in range(3)) == 1
    assert "attempt 2: trainer 0 of 3 starts from checkpoint pass-0000" in printed
    return printed


def train(run: TrainingRun) -> None:
    """Start a training with long passes, and wait until the first is complete."""
    run.settings.setdefault("STUB_PASS_SECONDS", "0.6")
    start(run)
    run.wait(lambda: len(run.passes()) >= 1)


def test_three_trainers_find_each_other_and_finish(run: TrainingRun) -> None:
    start(run, "--rate=0.1")
    finish(run)
    for index in range(3):
        log = (run.root / "output" / f"node_{index}" / "train.log").read_text()
        assert f"stub: job-1 trainer {index} master {run.address(0)}:7165 resumes nothing" in log
        assert f"['shard-{index}.txt'] arguments ['--rate=0.1']" in log
    late = run.start(1)
    assert late.process.wait(60) == 0, "a pod that is replaced after the end"
    assert "stub:" not in late.text()

    # The next Job ignores the state files of this one.
    for name in list(run.api.objects):
        run.api.delete(name)
    run.settings["PASSES"] = "4"
    start(run, owner="job-2")
    assert "starts from checkpoint pass-00002" in finish(run, passes=4)


def test_1000_trainers_start_with_the_last_pod_by_one_list_and_one_watch(
    tmp_path: Path, api: FakeApi, account: Path
) -> None:
    run = TrainingRun(tmp_path, api, account, trainers=1000)
    run.prepare(STUB / "train.py")
    pods = [make_pod("job", index, f"10.0.{index // 250}.{index % 250 + 1}") for index in range(1000)]
    for index in (0, 1):
        pods[index]["status"]["podIP"] = run.address(index)
    for pod in pods[:-1]:
        api.put(pod)
    try:
        first, second = (run.launch(index, pods[index]) for index in (0, 1))
        run.wait(lambda: "999 of 1000 pods run; trainer 999: no pod" in first.text())
        api.put(pods[-1])
        started = [run.root / f"started-{index}" for index in (0, 1)]
        run.wait(lambda: all(path.exists() for path in started))
        assert "attempt 1: trainer 1 of 1000 starts" in second.text()
        attempt = read_attempt(run.root, "job-1")
    finally:
        run.close()
    assert attempt.members == tuple(pod["metadata"]["uid"] for pod in pods)
    assert attempt.addresses == tuple(pod["status"]["podIP"] for pod in pods)
    last = read_settings(run.environment(999, pods[999]), [])
    assert decide(Snapshot(now=time.time(), attempt=attempt), last) == Join(attempt)
    assert [query.get("limit", query.get("watch")) for query in api.requests] == ["500", "500", "true"]


@pytest.mark.parametrize("index", [0, 2])
def test_after_a_killed_launcher_all_resume(run: TrainingRun, index: int) -> None:
    train(run)
    run.pods[index].process.kill()
    printed = resume(run)
    assert f"attempt 1 is over: trainer {index}'s pod" in printed
    assert "attempt 3: " not in printed
    assert len(run.all) == 4


def test_an_older_launcher_of_trainer_0_ends_when_a_newer_one_decides(run: TrainingRun) -> None:
    train(run)
    old = run.pods[0]
    run.api.delete(old.pod["metadata"]["name"])
    run.start(0)
    assert "attempt 3: " not in resume(run)
    assert old.process.wait(30) == 128 + signal.SIGTERM
    assert "another launcher of trainer 0 decides now" in old.text()


def test_sigterm_ends_the_training_and_all_its_processes(run: TrainingRun) -> None:
    run.settings["STUB_PASS_SECONDS"] = "600"
    start(run)
    run.wait(lambda: (run.root / "stub-2.pid").exists())
    training = training_process(run, 2)
    run.pods[2].process.terminate()
    assert run.pods[2].process.wait(120) == 128 + signal.SIGTERM
    assert not is_alive(training)
    assert "stopped by SIGTERM" in run.pods[2].text()
    assert "at its time limit (job.timeoutMinutes)" in run.pods[2].text()
    assert "To run this Job again: pulumi up --replace '**Job::job'" in run.pods[2].text().splitlines()[-1]


@pytest.mark.parametrize("index", [0, 1])
def test_a_restarted_container_joins_only_the_next_attempt(run: TrainingRun, index: int) -> None:
    train(run)
    old = run.pods[index]
    old.process.kill()
    old.process.wait()
    end_container(old)
    run.start(index, pod=old.pod)
    assert f"because trainer {index} lost its launcher, which was started again" in resume(run)


def test_a_pod_that_never_starts_is_a_clear_error(run: TrainingRun) -> None:
    run.settings["PEER_TIMEOUT_SECONDS"] = "3"
    run.start(0)
    run.start(1)
    pod = make_pod("job", 2, "", phase="Pending")
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    ]
    run.api.put(pod)
    run.wait(run.ended, seconds=60, replace=False)
    assert run.statuses() == [100, 100]
    for index in (0, 1):
        assert "after 3 s: 2 of 3 pods run; trainer 2: job-2-" in run.pods[index].text()
        assert "Pending Unschedulable 0/2 nodes are available" in run.pods[index].text()


def test_attempts_without_a_new_checkpoint_are_limited(run: TrainingRun) -> None:
    reason = (
        "failed: 2 attempts in a row made no new checkpoint; the last ended because trainer 1 ended with status 3,"
        " last output: stub: no pass 1 today"
    )
    fail(run, reason, STUB_FAIL="1:1", MAX_ATTEMPTS="2")
    assert "attempt 3: " in run.pods[0].text(), "the first attempt brought pass 0 and does not count"
    assert run.passes() == ["pass-00000"]
    late = run.start(1)
    assert late.process.wait(60) == 100, "a pod that starts after the failure"
    assert reason in late.text()


def test_two_early_failures_with_the_same_message_are_final_even_if_it_arrives_last(run: TrainingRun) -> None:
    reason = (
        "failed: two attempts failed at once in the same way; the last ended because trainer 1 ended with status 3,"
        " last output: stub: no pass 0 today"
    )
    fail(run, reason, STUB_FAIL="1:0", STUB_LATE="1:0.5", MAX_ATTEMPTS="5")
    assert ["stub: lost a peer" in trainer.text().splitlines() for trainer in run.all] == [True, False, True]
    assert "attempt 2: " in run.pods[0].text()
    assert "attempt 3: " not in run.pods[0].text()
    again = "To run this Job again: pulumi up --replace '**Job::"
    assert all(again in trainer.text().splitlines()[-1] for trainer in run.all)


def test_a_corrupt_newest_pass_is_skipped_and_a_full_disk_ends_only_the_log(run: TrainingRun) -> None:
    output = run.root / "output"
    digest = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
    for number, content in enumerate(("good", "bad!", "half")):
        folder = output / f"pass-{number:05d}"
        folder.mkdir(parents=True)
        (folder / "model").write_text(content)
        if content != "half":
            (folder / "done").write_text(json.dumps({"files": {"model": {"bytes": 4, "sha256": digest}}}))
    (output / "node_1").mkdir()
    (output / "node_1" / "train.log").symlink_to("/dev/full")
    run.settings["PASSES"] = "1"
    start(run)
    printed = finish(run)
    assert "checkpoint pass-00002 is skipped: it has no file done" in printed
    assert "checkpoint pass-00001 is skipped: model does not have its checksum" in printed
    assert "starts from checkpoint pass-00000" in printed
    assert "train.log cannot be written: [Errno 28] No space left on device" in run.pods[1].text()
    assert "stub: job-1 trainer 1" in run.pods[1].text()


def test_errors_of_the_volume_that_pass_cost_no_attempt(run: TrainingRun) -> None:
    unreliable = Path(__file__).parent / "unreliable"
    run.settings.update(
        UNRELIABLE_VOLUME=str(run.folder / "volume"),
        PYTHONPATH=os.pathsep.join(map(str, [unreliable, TRAINER, *run.paddle])),
        MAX_ATTEMPTS="1",
    )
    start(run)
    finish(run)
    assert len(run.all) == 3, "no pod had to be replaced"


def test_a_shard_that_does_not_fit_on_the_disk_is_a_clear_error(run: TrainingRun) -> None:
    run.settings["MAX_ATTEMPTS"] = "1"
    (run.root / "data" / "1" / "shard-1.txt").write_text("1\tgood\n" * 10000)
    for index in range(3):
        run.start(index, under=("prlimit", "--fsize=30000") if index == 1 else ())
    run.wait(run.ended, replace=False)
    assert run.statuses() == [100, 100, 100]
    for trainer in run.all:
        assert "trainer 1 could not start: " in trainer.text()
        assert "data/1/shard-1.txt cannot be copied: [Errno 27]" in trainer.text()
        assert "File too large" in trainer.text()


def test_a_suspended_training_is_ended_and_resumed(run: TrainingRun) -> None:
    run.settings.update(STALL_SECONDS="5", STUB_PASS_SECONDS="1")
    train(run)
    os.kill(training_process(run, 1), signal.SIGSTOP)
    reason = "no trainer printed a line or wrote a checkpoint for 5 s; trainer 1 is suspended"
    assert f"attempt 1 is over: {reason}" in resume(run)
    for index in range(3):
        log = (run.root / "output" / f"node_{index}" / "train.log").read_text()
        _, _, stack = log.partition("=== Python stack of process")
        assert 'train.py", line' in stack


def test_launchers_of_large_trainings_read_the_volume_less_often() -> None:
    assert [poll_seconds(trainers) for trainers in (3, 1000, 5000)] == [0.3, 0.5, 1.0]


def test_a_wrong_setting_is_one_line_and_no_retry(run: TrainingRun) -> None:
    run.settings["POD_UID"] = ""
    trainer: Trainer = run.start(0)
    assert trainer.process.wait(60) == 100
    assert trainer.text() == "launch.py: POD_UID is not set: the training Job must set it\n"
