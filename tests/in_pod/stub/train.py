"""A training for tests of the launcher. Each pass needs every trainer: it hangs when one is missing."""

import json
import os
import sys
import time
from pathlib import Path

trainer, world = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
output, passes = Path(os.environ["OUTPUT_DIR"]), int(os.environ["PASSES"])
resume = os.environ["RESUME_FROM"]
attempt = os.environ["STUB_ATTEMPT"]
meeting = output.parent / "meeting"
meeting.mkdir(exist_ok=True)
print(
    f"stub: {attempt} trainer {trainer} master {os.environ['PADDLE_MASTER']} resumes {Path(resume).name or 'nothing'}"
)
print(f"stub: {sorted(p.name for p in Path(os.environ['DATA_DIR']).iterdir())} arguments {sys.argv[1:]}")


def meet(what: str) -> None:
    """Wait until every trainer of this attempt is here."""
    (meeting / f"{attempt}-{what}-{trainer}").touch()
    while not all((meeting / f"{attempt}-{what}-{other}").exists() for other in range(world)):
        if (meeting / f"{attempt}-failed").exists():
            # A peer's connection closes only after its last line. File times have a resolution of some milliseconds.
            time.sleep(0.1)
            print("stub: lost a peer")
            sys.exit(1)
        time.sleep(0.02)


for number in range(int(Path(resume).name[5:]) + 1 if resume else 0, passes):
    (output.parent / f"stub-{trainer}.pid").write_text(str(os.getpid()))
    if os.environ.get("STUB_FAIL") == f"{trainer}:{number}":
        print(f"stub: no pass {number} today")
        if "STUB_LATE" in os.environ:
            (meeting / f"{attempt}-failed").touch()
        sys.exit(3)
    meet(f"pass{number}")
    time.sleep(float(os.environ.get("STUB_PASS_SECONDS", "0.1")))
    if trainer == 0:
        aside = output / f".pass-{number:05d}"
        aside.mkdir(exist_ok=True)
        (aside / "model").write_text(f"{attempt} {number}")
        (aside / "done").write_text(json.dumps({"files": {}}))
        aside.rename(output / f"pass-{number:05d}")
        print(f"stub: wrote pass {number}")
meet("end")
