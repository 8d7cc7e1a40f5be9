"""prepare.py against `split` and `sha256sum`, and export.sh against `aws s3 cp`: the same file, in turns in one run."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from sandbox import processes
from workloads.in_pod import contract

SCRIPTS = Path(__file__).parents[2] / "workloads/in_pod"
ROUNDS, SHARDS, CHECKPOINTS, CHECKPOINT_BYTES = 3, 8, 60, 200_000
# prepare.py: part of the speed of the others. export.sh: times as long, and seconds for many checkpoints, then again.
PREPARE_SPEED, EXPORT_RATIO, FIRST_SECONDS, REPEAT_SECONDS = 0.7, 1.5, 6.0, 3.0


def timed(command: list[str], folder: Path, environment: Mapping[str, str]) -> float:
    """How long the command takes when nothing is left to write to disk."""
    os.sync()
    began = time.monotonic()
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def prepare(folder: Path, size: int) -> bool:
    line = b"1\tan ordinary review of usual length\n"
    with (folder / "big").open("wb") as out:
        while out.tell() < size:
            out.write(line * 20_000)
    environment = {
        "PYTHONPATH": str(SCRIPTS),
        "OUT_DIR": str(folder / "out"),
        "SPLIT_COUNT": str(SHARDS),
        "TRAIN_CONFIG_DIR": "quick_start",
        "DATA_SOURCE": contract.DataSource(contract.S3, ("s3://bucket/big",)).to_json(),
        "POD_UID": "bench",
    }
    ratios = []
    for _ in range(ROUNDS):
        shutil.rmtree(folder / "out", ignore_errors=True)
        # As fetch.sh leaves it.
        objects = contract.fetched_folder(folder / "out", "bench") / contract.FETCH_OBJECTS
        objects.mkdir(parents=True)
        os.link(folder / "big", objects / "big")
        (objects.parent / contract.FETCH_DONE).touch()
        ours = timed([sys.executable, "-c", "import prepare; prepare.main()"], folder, environment)
        same = f"rm -f split-*; split -n l/{SHARDS} big split- && sha256sum split-*"
        ratios.append(timed(["bash", "-c", same], folder, environment) / ours)
    ratio = statistics.median(ratios)
    print(f"prepare.py: {ratio:.2f} of the speed of split and sha256sum (at least {PREPARE_SPEED})")
    return ratio >= PREPARE_SPEED


def add_checkpoint(output: Path, number: int, size: int) -> Path:
    folder = output / f"pass-{number:05d}"
    folder.mkdir(parents=True)
    with (folder / "model").open("wb") as model:
        for start in range(0, size, 1 << 24):
            model.write(os.urandom(min(1 << 24, size - start)))
    (folder / "done").write_text("{}")
    return folder


def export(folder: Path, size: int, endpoint: str) -> bool:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "CHECKPOINT": contract.CHECKPOINT.pattern,
        "DONE_FILE": contract.DONE_FILE,
        "MADE_FROM_FILE": contract.MADE_FROM_FILE,
        "NEWEST_FILE": contract.NEWEST_FILE,
        "EXPORT_AGAIN": contract.run_again(contract.EXPORT_JOB),
        "TRAINING_AGAIN": contract.run_again("bench"),
    }
    # What await_job.py writes about a training that has succeeded.
    for name in ("failure", "subject", "message"):
        environment[f"{name.upper()}_FILE"] = str(folder / name)
    for name in ("subject", "message"):
        (folder / name).write_text("Model is ready")

    def seconds(output: str, name: str) -> float:
        more = {"OUTPUT_DIR": str(folder / output), "DESTINATION": f"s3://bucket/{name}/output/", "JOB_NAME": name}
        return timed(["bash", str(SCRIPTS / "export.sh")], folder, {**environment, **more})

    timed(["aws", "s3", "mb", "s3://bucket"], folder, environment)
    for number in range(CHECKPOINTS):
        add_checkpoint(folder / "many", number, CHECKPOINT_BYTES)
    (folder / "many/made-from.json").write_text('{"id": "bench"}')
    first, repeat = seconds("many", "many"), seconds("many", "many")
    print(f"export.sh: {CHECKPOINTS} checkpoints in {first:.1f} s, again {repeat:.1f} s", end=" ")
    print(f"(limits {FIRST_SECONDS} and {REPEAT_SECONDS})")
    copy = ["aws", "s3", "cp", "--no-progress", str(add_checkpoint(folder / "one", 0, size) / "model")]
    ratios = []
    for number in range(ROUNDS):
        plain = timed([*copy, f"s3://bucket/{number}"], folder, environment)
        ratios.append(seconds("one", f"one-{number}") / plain)
    ratio = statistics.median(ratios)
    print(f"export.sh: {ratio:.2f} times as long as aws s3 cp (at most {EXPORT_RATIO})")
    return first <= FIRST_SECONDS and repeat <= REPEAT_SECONDS and ratio <= EXPORT_RATIO


def main() -> int:
    size = int(float(sys.argv[1]) * 1e9)
    (port,) = processes.free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server,
    ):
        try:
            good = [prepare(Path(name), size), export(Path(name), size, f"http://127.0.0.1:{port}")]
        finally:
            server.terminate()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
