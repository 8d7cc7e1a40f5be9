"""The real paddle from start to end: data, launchers, training with gloo, and a model that predicts."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import contract
import prepare
import pytest

from tests.in_pod.api import FakeApi
from tests.in_pod.training_run import TRAINER, TrainingRun

PASSES = 3
PREDICT = """
import sys, json, paddle, train
lines = open(sys.argv[2])
records = train.read_records(("fresh", line) for line in lines)
weights = paddle.nn.Embedding(train.WORDS, 1)
weights.set_state_dict(paddle.load(sys.argv[1] + "/model.pdparams"))
accuracy, zebra = train.accuracy(weights, records), weights.weight[train.word_ids("zebra")[1]]
print(json.dumps([accuracy, zebra.item()]))
"""


def make_run(folder: Path, api: FakeApi, account: Path, trainers: int) -> TrainingRun:
    """A training Job with the real training, and with data and code from the real data Job."""
    run = TrainingRun(folder, api, account, trainers, job=f"job{trainers}", paddle=[])
    environment = {
        **os.environ,
        "OUT_DIR": str(run.root),
        "SPLIT_COUNT": str(trainers),
        "DATA_SOURCE": contract.DataSource.parse("synthetic").to_json(),
        "TRAIN_CONFIG_DIR": "quick_start",
        "DATA_RECORDS": "6000",
    }
    subprocess.run([sys.executable, TRAINER / "prepare.py"], env=environment, check=True, capture_output=True)
    # Paddle listens on every address of the machine, so each test has ports of its own.
    run.settings.update(PASSES=str(PASSES), PEER_TIMEOUT_SECONDS="300", CONF_PADDLE_PORT=str(free_ports()))
    return run


def free_ports() -> int:
    """The first of four free ports, below the range that the system assigns."""
    while True:
        first = random.randrange(20000, 30000)
        try:
            for port in range(first, first + 4):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


@pytest.fixture
def three(tmp_path: Path, api: FakeApi, account: Path) -> Iterator[TrainingRun]:
    """Three trainers, with enough passes to interrupt the training between two of them."""
    run = make_run(tmp_path, api, account, 3)
    run.settings["PASSES"] = "40"
    yield run
    run.close()


def start(run: TrainingRun) -> None:
    """Start all trainers."""
    for index in range(run.trainers):
        run.start(index)


def finish(run: TrainingRun) -> None:
    """The training succeeds with all checkpoints."""
    run.wait(run.ended, seconds=300)
    assert run.statuses() == [0] * run.trainers
    assert run.passes() == [f"pass-{number:05d}" for number in range(int(run.settings["PASSES"]))]


def training_process(run: TrainingRun, index: int) -> int:
    """The process that trains. It is a child of paddle's launcher."""
    mark = f"POD_UID={run.pods[index].pod['metadata']['uid']}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or not (entry / "cmdline").read_bytes().endswith(b"-u\0train.py\0"):
                continue
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"trainer {index} has no training process")


def examine(run: TrainingRun, folder: Path) -> tuple[float, float]:
    """The accuracy of the newest model on 2000 reviews that were not trained on, and its weight of the word `zebra`."""
    prepare.synthesize(folder / "all", 9000)
    fresh = (folder / "all").read_text().splitlines(keepends=True)[7000:]
    (folder / "fresh").write_text("".join(fresh))
    command = [
        sys.executable,
        "-c",
        PREDICT,
        str(run.root / "output" / f"pass-{PASSES - 1:05d}"),
        str(folder / "fresh"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(TRAINER / "quick_start")}
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    accuracy, zebra = json.loads(result.stdout.splitlines()[-1])
    return accuracy, zebra


def test_one_and_three_trainers_make_equally_good_models(tmp_path: Path, api: FakeApi, account: Path) -> None:
    accuracies, reported = {}, {}
    for trainers in (1, 3):
        run = make_run(tmp_path, api, account, trainers)
        (run.root / "data" / "manifest.json").unlink()  # the shard changes below
        with (run.root / "data" / str(trainers - 1) / "records.txt").open("a") as last_shard:
            last_shard.writelines(f"1\tzebra {number}\n" for number in range(60))
        try:
            start(run)
            finish(run)
            printed = run.pods[0].text()
        finally:
            run.close()
        assert f"pass {PASSES}/{PASSES}: loss 0." in printed
        assert "ETA 0:00:00" in printed
        accuracies[trainers], zebra = examine(run, tmp_path)
        assert zebra > 0.2, "trainer 0 learned from the last trainer's shard"
        reported[trainers] = json.loads((run.root / "output" / "pass-00002" / "done").read_text())["accuracy"]
    noise = 3 * (0.05 * 0.95 / 2000) ** 0.5
    assert min(accuracies.values()) > 0.93, accuracies
    assert abs(accuracies[1] - accuracies[3]) < noise, accuracies
    assert abs(reported[3] - accuracies[3]) < 2 * noise, (reported, accuracies)


def inodes(run: TrainingRun) -> dict[str, int]:
    """The inode of each complete checkpoint's folder."""
    return {name: (run.root / "output" / name).stat().st_ino for name in run.passes()}


def test_a_killed_training_process_keeps_all_complete_checkpoints(three: TrainingRun) -> None:
    start(three)
    three.wait(lambda: len(three.passes()) >= 3, seconds=180)
    os.kill(training_process(three, 1), signal.SIGKILL)
    complete = inodes(three)
    finish(three)
    assert "attempt 2: trainer 0 of 3 starts from checkpoint pass-000" in three.pods[0].text()
    assert complete.items() <= inodes(three).items(), "a complete checkpoint was written again"
    assert len(three.all) == 3, "no pod had to be replaced"


def test_a_killed_launcher_is_replaced_and_the_training_goes_on(three: TrainingRun) -> None:
    start(three)
    three.wait(lambda: len(three.passes()) >= 3, seconds=180)
    three.pods[0].process.kill()
    complete = inodes(three)
    finish(three)
    assert "attempt 2: trainer 0 of 3 starts from checkpoint pass-000" in three.pods[0].text()
    assert complete.items() <= inodes(three).items(), "a complete checkpoint was written again"
    assert len(three.all) == 4


def test_a_pass_that_does_not_fit_on_the_disk_is_a_clear_error(three: TrainingRun) -> None:
    three.settings["MAX_ATTEMPTS"] = "1"
    for index in range(3):
        three.start(index, under=("prlimit", "--fsize=400000") if index == 0 else ())
    three.wait(three.ended, seconds=180, replace=False)
    assert three.statuses() == [100, 100, 100]
    assert f"pass-00000 cannot be written to {three.root}/output: " in three.pods[0].text()
    assert "trainer 0 ended with status 1, last output: pass-00000 cannot be written" in three.pods[2].text()
    assert not three.passes()


def read_shard(folder: Path, expression: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """train.py's view of a shard."""
    script = f"import sys, pathlib, train; kept, held_out = train.read_shard(pathlib.Path(sys.argv[1])); {expression}"
    environment = {**os.environ, "PYTHONPATH": str(TRAINER / "quick_start"), **environment}
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_wrong_line_is_named_by_its_file_and_number(tmp_path: Path) -> None:
    good = "".join(f"1\tgood review {number}\n" for number in range(25))
    (tmp_path / "a.txt").write_text(good)
    (tmp_path / "b.txt").write_text(good + "2\tbad\n" + good)
    result = read_shard(tmp_path, "", PADDLE_LOCAL_RANK="1", PADDLE_LOCAL_SIZE="2")
    assert result.stderr.splitlines()[-1] == f"{tmp_path}/b.txt, line 26: '2\\tbad\\n' is not `0 or 1 <tab> words`"


def test_a_byte_order_mark_and_lone_carriage_returns_do_not_make_records(tmp_path: Path) -> None:
    lines = [f"1\tgood\rreview {number}\r\n" for number in range(100)]
    (tmp_path / "a.txt").write_bytes("".join(["\ufeff", *lines]).encode())
    result = read_shard(tmp_path, "print(len(kept.labels) + len(held_out.labels))")
    assert result.stdout.splitlines()[-1:] == ["100"], result.stderr


def test_the_accuracy_without_records_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\tgood\n")
    expression = "import paddle; print(train.accuracy(paddle.nn.Embedding(train.WORDS, 1), train.read_records([])))"
    result = read_shard(tmp_path, expression)
    assert result.stdout.splitlines()[-1:] == ["None"], result.stderr
