"""Bag-of-words logistic regression over labelled reviews (`0 or 1 <tab> words`), data parallel over every trainer."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import sys
import time
import zlib
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence

import numpy
import paddle
import paddle.distributed as dist

WORDS = 1 << 16  # words are hashed to this many weights
PADDING, BIAS = 0, 1
GLOBAL_BATCH = 512
LEARNING_RATE = 0.02
HELD_OUT = 10  # one record in so many is kept for measuring


class Records(NamedTuple):
    """Records as numbers: the word ids of all, where each record's begin, and the labels."""

    ids: numpy.ndarray
    starts: numpy.ndarray
    labels: numpy.ndarray

    def batch(self, chosen: Sequence[int]) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The chosen records as a padded table of word ids, and their labels."""
        rows = [self.ids[self.starts[i] : self.starts[i + 1]] for i in chosen]
        table = numpy.full((len(rows), max(map(len, rows))), PADDING, dtype="int64")
        for row, ids in enumerate(rows):
            table[row, : len(ids)] = ids
        return paddle.to_tensor(table), paddle.to_tensor(self.labels[list(chosen)])


def word_ids(text: str) -> list[int]:
    """The words of a review as ids, the bias first."""
    return [BIAS] + [2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in text.split()]


def read_records(lines: Iterator[str], where: str) -> Records:
    """Numbers from lines; a line that is no record is named."""
    ids: list[int] = []
    starts, labels = [0], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if label not in ("0", "1") or not tab:
            sys.exit(f"{where}, line {number}: {line[:40]!r} is not `0 or 1 <tab> words`")
        labels.append(float(label))
        ids.extend(word_ids(text))
        starts.append(len(ids))
    return Records(numpy.array(ids, "int64"), numpy.array(starts, "int64"), numpy.array(labels, "float32"))


def read_shard(folder: Path) -> tuple[Records, Records]:
    """This process's records, and those held out: chosen by content, so the same ones however the data is split."""
    mine, processes = int(os.environ.get("PADDLE_LOCAL_RANK", "0")), int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
    kept: list[str] = []
    held_out: list[str] = []
    for path in sorted(folder.rglob("*.txt")):
        # As prepare.py does: a byte order mark is not text, and only a newline ends a record.
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
            for line in itertools.islice(lines, mine, None, processes):
                (kept if zlib.crc32(line.strip().encode()) % HELD_OUT else held_out).append(line)
    if not kept:
        sys.exit(f"{folder}: no records to train on; each trainer needs some in *.txt")
    return read_records(iter(kept), str(folder)), read_records(iter(held_out), str(folder))


def total(values: Sequence[float]) -> list[float]:
    """The values added up over all trainers."""
    tensor = paddle.to_tensor(list(values), dtype="float64")
    if dist.get_world_size() > 1:
        dist.all_reduce(tensor)
    return [float(value) for value in tensor.numpy()]


def score(model: Any, ids: paddle.Tensor) -> paddle.Tensor:
    """The log-odds that each review is a good one."""
    return model(ids).sum(axis=[1, 2])


def accuracy(model: Any, records: Records) -> float:
    """The share of records told right, over all trainers."""
    right = 0
    with paddle.no_grad():
        for start in range(0, len(records.labels), GLOBAL_BATCH):
            ids, labels = records.batch(range(start, min(start + GLOBAL_BATCH, len(records.labels))))
            right += int(((score(model, ids) > 0) == (labels > 0.5)).sum())
    all_right, count = total([right, len(records.labels)])
    return all_right / max(count, 1.0)


def save(output: Path, number: int, model: Any, optimizer: Any, metrics: dict[str, float]) -> None:
    """Write pass-0000N whole: aside, `done` last with each file's size and checksum, on disk, then renamed."""
    target = output / f"pass-{number:05d}"
    aside = output / f".{target.name}"
    for left in (aside, target):
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)
    paddle.save(model.state_dict(), str(aside / "model.pdparams"))
    paddle.save(optimizer.state_dict(), str(aside / "optimizer.pdopt"))
    files = {}
    for path in sorted(aside.iterdir()):
        content = path.read_bytes()
        files[path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        sync(path)
    (aside / "done").write_text(json.dumps({"pass": number, **metrics, "files": files}, indent=1))
    sync(aside / "done")
    sync(aside)
    aside.rename(target)
    sync(output)


def sync(path: Path) -> None:
    """Have the file or folder on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def train_pass(number: int, passes: int, model: Any, optimizer: Any, records: Records) -> float:
    """One pass over the data, the same number of steps on every trainer; returns the mean loss."""
    world = dist.get_world_size()
    batch = max(1, GLOBAL_BATCH // world)
    sizes = paddle.to_tensor([len(records.labels)])
    if world > 1:
        dist.all_reduce(sizes, op=dist.ReduceOp.MAX)
    steps = -(-int(sizes.item()) // batch)
    # A trainer with fewer records begins again with its first, so that no other waits for it for ever.
    order = numpy.resize(numpy.random.RandomState(number).permutation(len(records.labels)), steps * batch)
    loss_sum, started = 0.0, time.monotonic()
    printed = started
    for step in range(steps):
        ids, labels = records.batch(order[step * batch : (step + 1) * batch].tolist())
        loss = paddle.nn.functional.binary_cross_entropy_with_logits(score(model, ids), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        loss_sum += float(loss)
        now = time.monotonic()
        if dist.get_rank() == 0 and now - printed > 5:
            printed = now
            left = (now - started) / (step + 1) * (steps - step - 1 + steps * (passes - number - 1))
            print(f"pass {number + 1}/{passes}: {100 * (step + 1) // steps}%  ETA {clock(left)}", flush=True)
    (mean_loss,) = total([loss_sum / steps / world])
    return mean_loss


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def main() -> None:
    """Train from the newest complete pass to the last."""
    output, passes = Path(os.environ["OUTPUT_DIR"]), int(os.environ["PASSES"])
    resume = os.environ.get("RESUME_FROM", "")
    if dist.ParallelEnv().world_size > 1:
        dist.init_parallel_env()
    records, held_out = read_shard(Path(os.environ["DATA_DIR"]))
    paddle.seed(1)
    weights = paddle.nn.Embedding(WORDS, 1, padding_idx=PADDING)
    optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=weights.parameters())
    first = 0
    if resume:
        first = int(Path(resume).name[len("pass-") :]) + 1
        weights.set_state_dict(paddle.load(f"{resume}/model.pdparams"))
        optimizer.set_state_dict(paddle.load(f"{resume}/optimizer.pdopt"))
    model = paddle.DataParallel(weights) if dist.get_world_size() > 1 else weights
    leader = dist.get_rank() == 0
    count = int(total([len(records.labels)])[0])
    if leader:
        print(f"{dist.get_world_size()} trainers, {count} records, passes {first + 1} to {passes}", flush=True)
    started = time.monotonic()
    for number in range(first, passes):
        begun = time.monotonic()
        loss = train_pass(number, passes, model, optimizer, records)
        right = accuracy(model, held_out)
        if not leader:
            continue
        try:
            speed = count / (time.monotonic() - begun)
            numbers = {"loss": round(loss, 5), "accuracy": round(right, 5), "records per second": round(speed)}
            save(output, number, weights, optimizer, numbers)
        except OSError as error:
            sys.exit(f"pass-{number:05d} cannot be written to {output}: {error}")
        now = time.monotonic()
        left = (now - started) / (number - first + 1) * (passes - number - 1)
        print(
            f"pass {number + 1}/{passes}: loss {loss:.4f}  accuracy {right:.4f}  "
            f"{speed:.0f} records/s  ETA {clock(left)}",
            flush=True,
        )
    total([0])  # nobody leaves before trainer 0 has written the last pass


if __name__ == "__main__":
    main()
