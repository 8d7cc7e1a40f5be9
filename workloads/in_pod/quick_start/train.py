"""Trains a classifier of reviews (`0 or 1 <tab> words`): logistic regression on bags of words, on all trainers."""

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
from typing import Any, Iterable, NamedTuple, Sequence

import numpy
import paddle
import paddle.distributed as dist

WORDS = 1 << 16  # words are hashed to this many weights
PADDING, BIAS = 0, 1
GLOBAL_BATCH = 512
LEARNING_RATE = 0.02
HELD_OUT = 10  # one record of so many measures the accuracy and is not trained on


class Records(NamedTuple):
    """Records as numbers: the word ids of all records, the position where each record starts, and the labels."""

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
    """The ids of the words in a review; the first id is the bias."""
    return [BIAS] + [2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in text.split()]


def read_records(lines: Iterable[tuple[str, str]]) -> Records:
    """The records in the lines. Each line comes with its place, which is named if the line is not a record."""
    ids: list[int] = []
    starts, labels = [0], []
    for place, line in lines:
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if label not in ("0", "1") or not tab:
            sys.exit(f"{place}: {line[:40]!r} is not `0 or 1 <tab> words`")
        labels.append(float(label))
        ids.extend(word_ids(text))
        starts.append(len(ids))
    return Records(numpy.array(ids, "int64"), numpy.array(starts, "int64"), numpy.array(labels, "float32"))


def read_shard(folder: Path) -> tuple[Records, Records]:
    """This process's records: those to train on, and those that measure the accuracy. The content decides which."""
    mine, processes = int(os.environ.get("PADDLE_LOCAL_RANK", "0")), int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
    kept: list[tuple[str, str]] = []
    held_out: list[tuple[str, str]] = []
    for path in sorted(folder.rglob("*.txt")):
        # Only "\n" ends a line, as in the data Job. utf-8-sig ignores a byte order mark.
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
            for number, line in itertools.islice(enumerate(lines, 1), mine, None, processes):
                chosen = kept if zlib.crc32(line.strip().encode()) % HELD_OUT else held_out
                chosen.append((f"{path}, line {number}", line))
    if not kept:
        sys.exit(f"{folder}: no records to train on; each trainer needs some in *.txt")
    return read_records(kept), read_records(held_out)


def total(values: Sequence[float]) -> list[float]:
    """The sum of each value over all trainers."""
    tensor = paddle.to_tensor(list(values), dtype="float64")
    if dist.get_world_size() > 1:
        dist.all_reduce(tensor)
    return [float(value) for value in tensor.numpy()]


def score(model: Any, ids: paddle.Tensor) -> paddle.Tensor:
    """The log-odds that each review is positive."""
    return model(ids).sum(axis=[1, 2])


def accuracy(model: Any, records: Records) -> float | None:
    """The share of correct predictions on all trainers; None without any records."""
    right = 0
    with paddle.no_grad():
        for start in range(0, len(records.labels), GLOBAL_BATCH):
            ids, labels = records.batch(range(start, min(start + GLOBAL_BATCH, len(records.labels))))
            right += int(((score(model, ids) > 0) == (labels > 0.5)).sum())
    all_right, count = total([right, len(records.labels)])
    return all_right / count if count else None


def save(output: Path, number: int, model: Any, optimizer: Any, metrics: dict[str, float]) -> None:
    """Write the checkpoint pass-0000N into a temporary folder, the file `done` last, and rename the folder."""
    target = output / f"pass-{number:05d}"
    temporary = output / f".{target.name}"
    for old in (temporary, target):
        shutil.rmtree(old, ignore_errors=True)
    temporary.mkdir(parents=True)
    paddle.save(model.state_dict(), str(temporary / "model.pdparams"))
    paddle.save(optimizer.state_dict(), str(temporary / "optimizer.pdopt"))
    files = {}
    for path in sorted(temporary.iterdir()):
        content = path.read_bytes()
        files[path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        sync(path)
    (temporary / "done").write_text(json.dumps({"pass": number, **metrics, "files": files}, indent=1))
    sync(temporary / "done")
    sync(temporary)
    temporary.rename(target)
    sync(output)


def sync(path: Path) -> None:
    """Flush the file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def train_pass(number: int, passes: int, model: Any, optimizer: Any, records: Records) -> float:
    """One pass over the data, with the same number of steps on every trainer. Returns the mean loss."""
    world = dist.get_world_size()
    batch = max(1, GLOBAL_BATCH // world)
    sizes = paddle.to_tensor([len(records.labels)])
    if world > 1:
        dist.all_reduce(sizes, op=dist.ReduceOp.MAX)
    steps = -(-int(sizes.item()) // batch)
    # A trainer with fewer records uses its first ones again: with fewer steps, the others would wait for it forever.
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
    """Train from the newest checkpoint to the last pass."""
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
            numbers = {"loss": round(loss, 5), "records per second": round(speed)}
            if right is not None:
                numbers["accuracy"] = round(right, 5)
            save(output, number, weights, optimizer, numbers)
        except OSError as error:
            sys.exit(f"pass-{number:05d} cannot be written to {output}: {error}")
        now = time.monotonic()
        left = (now - started) / (number - first + 1) * (passes - number - 1)
        measured = "unknown (no records to measure it)" if right is None else f"{right:.4f}"
        print(
            f"pass {number + 1}/{passes}: loss {loss:.4f}  accuracy {measured}  "
            f"{speed:.0f} records/s  ETA {clock(left)}",
            flush=True,
        )
    total([0])  # wait until trainer 0 has written the last checkpoint


if __name__ == "__main__":
    main()
