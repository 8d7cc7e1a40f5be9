"""prepare.py against `split -n l/N` and `sha256sum` with the same file, in turns in one run; and its memory."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workloads.in_pod import contract

SCRIPTS = Path(__file__).parents[2] / "workloads" / "in_pod"
BAR, LIMIT, ROUNDS, SHARDS = 0.7, 200e6, 5, 8
RUN = "import prepare, re; print(prepare.main(), re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, str]:
    """How long the command takes with nothing else to write, and what it prints."""
    os.sync()
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return time.monotonic() - began, done.stdout


def main() -> int:
    """Print the median of the rounds' ratios, and fail below the bar."""
    size = float(sys.argv[1]) * 1e9 if len(sys.argv) > 1 else 4e9
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        block = b"".join(
            b"%d\tan ordinary review, the %dth of its kind, of usual length\n" % (n % 2, n) for n in range(20000)
        )
        with (folder / "big").open("wb") as out:
            while out.tell() < size:
                out.write(block)
        environment = {
            **os.environ,
            "PYTHONPATH": str(SCRIPTS),
            "OUT_DIR": str(folder / "out"),
            "SPLIT_COUNT": str(SHARDS),
            "TRAIN_CONFIG_DIR": "quick_start",
            "DATA_SOURCE": contract.DataSource(contract.S3, ("s3://bucket/big",)).to_json(),
            "POD_UID": "bench",
        }
        ours, theirs, memory = [], [], 0
        for _ in range(ROUNDS):
            shutil.rmtree(folder / "out", ignore_errors=True)
            # As fetch.sh leaves it.
            objects = contract.fetched_folder(folder / "out", "bench") / contract.FETCH_OBJECTS
            objects.mkdir(parents=True)
            os.link(folder / "big", objects / "big")
            (objects.parent / contract.FETCH_DONE).touch()
            for path in folder.glob("split-*"):
                path.unlink()
            seconds, printed = timed([sys.executable, "-c", RUN], folder, environment)
            ours.append(seconds)
            memory = max(memory, int(printed.split()[-1]) * 1024)
            same = ["bash", "-c", f"split -n l/{SHARDS} big split- && sha256sum split-*"]
            theirs.append(timed(same, folder, environment)[0])
    ratio = statistics.median(split / prepare for split, prepare in zip(theirs, ours, strict=True))
    print(f"{size / 1e9:.1f} GB in {SHARDS} shards: prepare.py {statistics.median(ours):.2f} s, with fsync;", end=" ")
    print(f"split and sha256sum {statistics.median(theirs):.2f} s, without: {ratio:.2f} of their speed;", end=" ")
    print(f"{memory / 1e6:.0f} MB of memory")
    return 0 if ratio >= BAR and memory < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
