"""The real paddle from start to end: data, launchers, training with gloo, and a model that predicts."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import contract
import prepare

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


def examine(run: TrainingRun, folder: Path) -> tuple[float, float]:
    """The accuracy of the newest model on 2000 reviews that were not trained on, and its weight of the word `zebra`."""
    prepare.synthesize(folder / "all", 9000)
    fresh = (folder / "all").read_text().splitlines(keepends=True)[7000:]
    (folder / "fresh").write_text("".join(fresh))
    newest = str(run.root / "output" / f"pass-{PASSES - 1:05d}")
    command = [sys.executable, "-c", PREDICT, newest, str(folder / "fresh")]
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
            for index in range(trainers):
                run.start(index)
            run.wait(run.ended, seconds=300)
            assert run.statuses() == [0] * trainers
            assert run.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
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


def train(folder: Path, output: Path, passes: int, *under: str, resume: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATA_DIR": str(folder), "OUTPUT_DIR": str(output), "PASSES": str(passes)}
    environment["RESUME_FROM"] = str(output / resume) if resume else ""
    command = [*under, sys.executable, str(TRAINER / "quick_start/train.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def model(output: Path, name: str) -> bytes:
    return (output / name / "model.pdparams").read_bytes()


def test_a_training_that_resumes_makes_the_same_model(tmp_path: Path) -> None:
    prepare.synthesize(tmp_path / "records.txt", 600)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(tmp_path, whole, 2).check_returncode()
    train(tmp_path, resumed, 1).check_returncode()
    assert not (resumed / "pass-00001").exists()
    inode = (resumed / "pass-00000").stat().st_ino
    assert "passes 2 to 2" in train(tmp_path, resumed, 2, resume="pass-00000").stdout
    assert model(resumed, "pass-00001") == model(whole, "pass-00001") != model(whole, "pass-00000")
    assert (resumed / "pass-00000").stat().st_ino == inode, "a complete checkpoint was written again"


def test_a_pass_that_does_not_fit_on_the_disk_is_a_clear_error(tmp_path: Path) -> None:
    prepare.synthesize(tmp_path / "records.txt", 100)
    result = train(tmp_path, tmp_path / "output", 1, "prlimit", "--fsize=400000")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"pass-00000 cannot be written to {tmp_path}/output: ")
    assert not (tmp_path / "output/pass-00000").exists()


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
    accuracy = "train.accuracy(paddle.nn.Embedding(train.WORDS, 1), train.read_records([]))"
    result = read_shard(tmp_path, f"import paddle; print(len(kept.labels) + len(held_out.labels), {accuracy})")
    assert result.stdout.splitlines()[-1:] == ["100 None"], "the accuracy without records is unknown: " + result.stderr
