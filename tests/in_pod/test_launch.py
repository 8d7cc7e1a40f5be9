"""The launchers' agreement, by real launcher processes: every fault ends in a complete model or a clear error."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.in_pod.api import make_pod
from tests.in_pod.job import Gang, Trainer, end_container

ALL = ["pass-00000", "pass-00001", "pass-00002"]


def start(gang: Gang) -> None:
    """All three, at once."""
    for index in range(gang.trainers):
        gang.start(index)


def slow(gang: Gang) -> None:
    """Passes long enough that a fault hits between the first and the last."""
    gang.settings["STUB_PASS_SECONDS"] = "0.6"


def wait_for_pass(gang: Gang, count: int = 1) -> None:
    """Until so many passes are complete."""
    gang.wait(lambda: len(gang.passes()) >= count)


def training_process(gang: Gang, index: int) -> int:
    """The process that trains for this trainer now."""
    return int((gang.root / f"stub-{index}.pid").read_text())


def is_alive(process: int) -> bool:
    """Whether it runs still; what has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def finish(gang: Gang) -> str:
    """The job ends well, no pass lost; returns what trainer 0 printed."""
    gang.wait(gang.ended)
    assert gang.statuses() == [0] * gang.trainers
    assert gang.passes() == ALL
    return gang.pods[0].text()


def assert_no_pass_done_twice(gang: Gang) -> None:
    """Every pass was written once: each restart resumed from the newest."""
    printed = "".join(trainer.text() for trainer in gang.all)
    assert max(printed.count(f"stub: wrote pass {number}\n") for number in range(3)) == 1


def test_three_trainers_find_each_other_and_finish(gang: Gang) -> None:
    for index in range(3):
        gang.start(index, arguments=("--rate=0.1",))
    finish(gang)
    for index in range(3):
        log = (gang.root / "output" / f"node_{index}" / "train.log").read_text()
        assert f"stub: job-1 rank {index} master 127.64.1.1:7165 resumes nothing" in log
        assert f"['shard-{index}.txt'] arguments ['--rate=0.1']" in log


def test_ids_are_sorted_addresses_without_a_completion_index(gang: Gang) -> None:
    gang.indexed = False
    for index in (2, 0, 1):
        gang.start(index)
    finish(gang)
    for index in range(3):
        assert f"rank {index} master 127.64.1.1" in gang.pods[index].text()


def test_a_killed_training_process_starts_all_again_from_the_newest_pass(gang: Gang) -> None:
    slow(gang)
    start(gang)
    wait_for_pass(gang)
    os.kill(training_process(gang, 1), signal.SIGKILL)
    printed = finish(gang)
    assert "attempt 1 is over: trainer 1 was killed by signal 9" in printed
    assert "attempt 2: trainer 0 of 3 starts from pass-0000" in printed
    assert_no_pass_done_twice(gang)
    assert len(gang.all) == 3, "no pod had to be replaced"


@pytest.mark.parametrize("index", [0, 2])
def test_a_killed_launcher_is_replaced_and_all_start_again(gang: Gang, index: int) -> None:
    slow(gang)
    start(gang)
    wait_for_pass(gang)
    gang.pods[index].process.kill()
    finish(gang)
    assert_no_pass_done_twice(gang)
    assert len(gang.all) == 4
    others = "".join(trainer.text() for trainer in gang.all[:3])
    assert f"attempt 1 is over: trainer {index}'s pod" in others
    assert "attempt 2: " in others
    assert "attempt 3: " not in others


def test_a_deleted_pod_is_replaced_and_all_start_again(gang: Gang) -> None:
    slow(gang)
    start(gang)
    wait_for_pass(gang)
    old = gang.pods[1]
    old.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gang.api.put(old.pod)
    gang.start(1)
    old.process.terminate()
    assert old.process.wait(30) == 128 + signal.SIGTERM
    end_container(old)
    gang.api.delete(old.pod["metadata"]["name"])
    printed = finish(gang)
    assert "is being deleted" in printed
    assert_no_pass_done_twice(gang)


def test_sigterm_reaches_the_training_and_leaves_nothing_behind(gang: Gang) -> None:
    gang.settings["STUB_PASS_SECONDS"] = "60"
    start(gang)
    gang.wait(lambda: (gang.root / "stub-2.pid").exists())
    training = training_process(gang, 2)
    began = time.monotonic()
    gang.pods[2].process.terminate()
    assert gang.pods[2].process.wait(30) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 15
    assert not is_alive(training)
    assert "told to stop (SIGTERM)" in gang.pods[2].text()


@pytest.mark.parametrize("index", [0, 1])
def test_a_container_started_again_in_its_pod_does_not_join_the_attempt_it_was_in(gang: Gang, index: int) -> None:
    slow(gang)
    start(gang)
    wait_for_pass(gang)
    old = gang.pods[index]
    old.process.kill()
    old.process.wait()
    end_container(old)
    gang.start(index, pod=old.pod)
    printed = finish(gang)
    assert "attempt 2: trainer 0 of 3 starts from pass-0000" in printed
    assert f"because trainer {index} lost its launcher, which started again" in printed
    assert_no_pass_done_twice(gang)


def test_an_api_server_that_is_away_during_rendezvous_delays_it(gang: Gang) -> None:
    gang.start(0)
    gang.wait(lambda: "1 of 3 pods run" in gang.pods[0].text())
    gang.api.stop()
    gang.start(1)
    gang.start(2)
    gang.wait(lambda: "the API server does not answer" in gang.pods[2].text())
    time.sleep(3)
    assert not gang.passes()
    gang.api.start()
    finish(gang)


def test_an_api_server_that_is_away_during_training_does_not_matter(gang: Gang) -> None:
    slow(gang)
    start(gang)
    wait_for_pass(gang)
    gang.api.stop()
    printed = finish(gang)
    assert "attempt 2" not in printed


def test_a_peer_that_never_comes_is_a_clear_error(gang: Gang) -> None:
    gang.settings["PEER_TIMEOUT_SECONDS"] = "3"
    gang.start(0)
    gang.start(1)
    pod = make_pod("job", 2, "", phase="Pending")
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    ]
    gang.api.put(pod)
    gang.wait(gang.ended, seconds=60, replace=False)
    assert gang.statuses() == [1, 1]
    for index in (0, 1):
        assert "after 3 s: 2 of 3 pods run; trainer 2: job-2-" in gang.pods[index].text()
        assert "Pending Unschedulable 0/2 nodes are available" in gang.pods[index].text()


def test_a_failed_job_fails_the_pods_that_come_after_it_at_once(gang: Gang) -> None:
    gang.settings.update(STUB_FAIL="1:0", MAX_ATTEMPTS="1")
    start(gang)
    gang.wait(gang.ended, replace=False)
    late = gang.start(1)
    assert late.process.wait(30) == 1
    assert "failed: 1 attempts in a row brought no new pass" in late.text()


def test_attempts_are_bounded_and_the_trainings_status_is_the_launchers(gang: Gang) -> None:
    gang.settings.update(STUB_FAIL="1:1", MAX_ATTEMPTS="2")
    start(gang)
    gang.wait(gang.ended, replace=False)
    assert gang.statuses() == [1, 3, 1]
    reason = (
        "failed: 2 attempts in a row brought no new pass; the last ended because trainer 1 ended with status 3,"
        " saying: stub: no pass 1 today"
    )
    assert all(reason in trainer.text() for trainer in gang.all)
    assert "attempt 3: " in gang.pods[0].text(), "the first attempt brought pass 0 and does not count"
    assert gang.passes() == ["pass-00000"]


@pytest.mark.parametrize("index", [0, 1])
def test_the_reason_is_the_failure_that_came_first_even_if_it_is_shown_last(gang: Gang, index: int) -> None:
    gang.settings.update(STUB_FAIL=f"{index}:0", STUB_LATE=f"{index}:2", MAX_ATTEMPTS="1")
    start(gang)
    gang.wait(gang.ended, replace=False)
    lost = [other for other, trainer in enumerate(gang.all) if "stub: lost a peer" in trainer.text().splitlines()]
    assert lost == [other for other in range(3) if other != index]
    reason = f"the last ended because trainer {index} ended with status 3, saying: stub: no pass 0 today"
    assert all(reason in trainer.text() for trainer in gang.all)


def test_one_trainer_that_fails_after_the_others_succeeded_is_no_success(gang: Gang) -> None:
    gang.settings.update(STUB_LAST_STATUS="4", MAX_ATTEMPTS="2")
    start(gang)
    gang.wait(gang.ended, replace=False)
    assert gang.statuses() == [1, 4, 1]
    assert gang.passes() == ALL


def test_a_pod_replaced_after_the_end_ends_well(gang: Gang) -> None:
    start(gang)
    finish(gang)
    late = gang.start(1)
    assert late.process.wait(30) == 0
    assert "stub:" not in late.text()


def test_word_of_an_earlier_job_on_the_volume_is_not_heeded(gang: Gang) -> None:
    start(gang)
    finish(gang)
    for name in list(gang.api.objects):
        gang.api.delete(name)
    gang.settings["PASSES"] = "4"
    for index in range(3):
        gang.start(index, pod=make_pod("job", index, gang.address(index), owner="job-2"))
    gang.wait(gang.ended)
    assert gang.statuses() == [0, 0, 0]
    assert gang.passes() == [*ALL, "pass-00003"]
    assert "starts from pass-00002" in gang.pods[0].text()


def test_a_corrupt_newest_pass_is_skipped(gang: Gang) -> None:
    output = gang.root / "output"
    for number, content in ((0, b"good"), (1, b"bad!")):
        folder = output / f"pass-{number:05d}"
        folder.mkdir(parents=True)
        (folder / "model").write_bytes(content)
        digest = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
        (folder / "done").write_text(json.dumps({"files": {"model": {"bytes": 4, "sha256": digest}}}))
    (output / "pass-00002").mkdir()
    (output / "pass-00002" / "model").write_text("half")
    gang.settings["PASSES"] = "1"
    start(gang)
    gang.wait(gang.ended)
    printed = gang.pods[0].text()
    assert "pass-00002 is skipped: it has no done marker" in printed
    assert "pass-00001 is skipped: model does not have its checksum" in printed
    assert "starts from pass-00000" in printed


def test_a_missing_shard_is_a_clear_error(gang: Gang) -> None:
    gang.settings["MAX_ATTEMPTS"] = "1"
    for path in (gang.root / "data" / "2").iterdir():
        path.unlink()
    (gang.root / "data" / "2").rmdir()
    start(gang)
    gang.wait(gang.ended, replace=False)
    assert gang.statuses() == [1, 1, 1]
    for trainer in gang.all:
        assert "data/2 is missing: the data must be split for 3 trainers; run the data Job again" in trainer.text()


def test_a_full_disk_costs_the_log_not_the_training(gang: Gang) -> None:
    logs = gang.root / "output" / "node_1"
    logs.mkdir(parents=True)
    (logs / "train.log").symlink_to("/dev/full")
    start(gang)
    finish(gang)
    assert "train.log cannot be written: [Errno 28] No space left on device" in gang.pods[1].text()
    assert "stub: job-1 rank 1" in gang.pods[1].text()


def test_a_shard_that_does_not_fit_on_the_disk_is_a_clear_error(gang: Gang) -> None:
    gang.settings["MAX_ATTEMPTS"] = "1"
    (gang.root / "data" / "1" / "shard-1.txt").write_text("1\tgood\n" * 10000)
    for index in range(3):
        gang.start(index, under=("prlimit", "--fsize=30000") if index == 1 else ())
    gang.wait(gang.ended, replace=False)
    assert gang.statuses() == [1, 1, 1]
    for trainer in gang.all:
        assert "trainer 1 could not start" in trainer.text()
        assert "File too large" in trainer.text()


OLD_PADDLE = """#!/bin/bash
echo "$1 runs: paddle $*"
[[ $1 == pserver ]] && exec sleep ${PSERVER_SECONDS:-100}
sleep ${TRAIN_SECONDS:-1}
pass=$(ls -d {output}/pass-* 2>/dev/null | wc -l)
mkdir -p {output}/pass-0000$pass && touch {output}/pass-0000$pass/done
exit 0
"""


@pytest.fixture
def old_gang(gang: Gang) -> Gang:
    """The training Job in an image of the old line: a `paddle` command, a package without paddle.distributed."""
    image = gang.folder / "image"
    (image / "paddle").mkdir(parents=True)
    (image / "paddle" / "__init__.py").touch()
    (image / "bin").mkdir()
    (image / "bin" / "paddle").write_text(OLD_PADDLE.replace("{output}", str(gang.root / "output")))
    (image / "bin" / "paddle").chmod(0o755)
    gang.paddle = [image]
    gang.settings["PATH"] = f"{image / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (gang.root / "quick_start" / "trainer_config.lr.py").touch()
    return gang


def test_the_old_paddle_gets_its_command_lines(old_gang: Gang) -> None:
    complete = old_gang.root / "output" / "pass-00006"
    complete.mkdir(parents=True)
    (complete / "done").touch()
    start(old_gang)
    old_gang.wait(old_gang.ended)
    assert old_gang.statuses() == [0, 0, 0]
    logs = old_gang.root / "output" / "node_2"
    network = "--nics=lo --port=7164 --ports_num=2 --ports_num_for_sparse=2 --comment=paddle_process_by_paddle"
    pserver = f"pserver runs: paddle pserver {network} --num_gradient_servers=3\n"
    assert pserver in (logs / "server.log").read_text()
    trainee = (
        f"train runs: paddle train {network} --pservers=127.64.1.1,127.64.2.1,127.64.3.1 --trainer_id=2"
        f" --trainer_count=1 --num_passes=3 --local=0 --use_gpu=0 --save_dir={old_gang.root}/output"
        f" --config=trainer_config.lr.py --init_model_path={complete} --start_pass=7\n"
    )
    assert trainee in (logs / "train.log").read_text()


def test_a_parameter_server_that_ends_is_a_failure(old_gang: Gang) -> None:
    old_gang.settings.update(PSERVER_SECONDS="0.2", TRAIN_SECONDS="60", MAX_ATTEMPTS="1")
    start(old_gang)
    old_gang.wait(old_gang.ended, seconds=60, replace=False)
    assert old_gang.statuses() == [1, 1, 1]
    assert "brought no new pass; the last ended because trainer" in old_gang.pods[1].text()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CONF_PADDLE_NIC", "eth9", "CONF_PADDLE_NIC is 'eth9', but this pod has only"),
        ("PASSES", "many", "PASSES is 'many': it must be a whole number of at least 1"),
        ("POD_UID", "", "POD_UID is not set: the training Job must give it"),
    ],
)
def test_a_wrong_setting_is_named(gang: Gang, name: str, value: str, message: str) -> None:
    gang.settings[name] = value
    trainer: Trainer = gang.start(0)
    assert trainer.process.wait(30) == 1
    assert trainer.text().startswith(f"launch.py: {message}")
    assert trainer.text().count("\n") == 1
