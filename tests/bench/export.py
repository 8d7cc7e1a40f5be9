"""export.sh against `aws s3 cp` with the same file, in turns in one run; and how long it takes for many checkpoints."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workloads.in_pod import contract

SCRIPT = Path(__file__).parents[2] / "workloads" / "in_pod" / "export.sh"
LARGEST_RATIO, ROUNDS = 1.5, 3
CHECKPOINTS, CHECKPOINT_BYTES, FIRST_SECONDS, REPEAT_SECONDS = 60, 200_000, 6.0, 3.0


def timed(command: list[str], environment: dict[str, str]) -> float:
    """How long the command takes when nothing is left to write to disk."""
    os.sync()
    began = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def add_checkpoint(output: Path, number: int, size: int) -> Path:
    folder = output / f"pass-{number:05d}"
    folder.mkdir(parents=True)
    with (folder / "model").open("wb") as model:
        for start in range(0, size, 1 << 24):
            model.write(os.urandom(min(1 << 24, size - start)))
    (folder / "done").write_text("{}")
    return folder


def measure(folder: Path, size: int, environment: dict[str, str]) -> bool:
    """Print the figures; whether all are within their limits."""

    def export(output: Path, name: str) -> float:
        more = {"OUTPUT_DIR": str(output), "DESTINATION": f"s3://bucket/{name}/output/", "JOB_NAME": name}
        # What await_job.py writes about a training that has succeeded.
        for file in ("subject", "message"):
            (folder / file).write_text("Model is ready")
        more.update({f"{file.upper()}_FILE": str(folder / file) for file in ("failure", "subject", "message")})
        return timed(["bash", str(SCRIPT)], {**environment, **more})

    for number in range(CHECKPOINTS):
        add_checkpoint(folder / "many", number, CHECKPOINT_BYTES)
    (folder / "many" / "made-from.json").write_text('{"id": "bench"}')
    first, repeat = export(folder / "many", "many"), export(folder / "many", "many")
    print(f"{CHECKPOINTS} checkpoints of {CHECKPOINT_BYTES / 1e3:.0f} KB: {first:.1f} s, again {repeat:.1f} s")
    model = add_checkpoint(folder / "one", 0, size) / "model"
    ours, theirs = [], []
    for number in range(ROUNDS):
        theirs.append(timed(["aws", "s3", "cp", "--no-progress", str(model), f"s3://bucket/{number}"], environment))
        ours.append(export(folder / "one", f"one-{number}"))
    ratio = statistics.median(mine / plain for mine, plain in zip(ours, theirs, strict=True))
    print(f"{size / 1e9:.1f} GB: {statistics.median(ours):.1f} s,", end=" ")
    print(f"aws s3 cp {statistics.median(theirs):.1f} s: {ratio:.2f} times as long")
    return first <= FIRST_SECONDS and repeat <= REPEAT_SECONDS and ratio <= LARGEST_RATIO


def main() -> int:
    """Run an emulated S3 and measure."""
    size = int(float(sys.argv[1]) * 1e9) if len(sys.argv) > 1 else 1_000_000_000
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
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
    try:
        subprocess.run(["aws", "s3", "mb", "s3://bucket"], env=environment, check=True, capture_output=True)
        with tempfile.TemporaryDirectory() as folder:
            return 0 if measure(Path(folder), size, environment) else 1
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
