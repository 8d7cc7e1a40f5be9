"""Stands in for paddle's launcher where a test is about ours.

As paddle does: train.py runs in a session of its own and writes to a log, which is shown late, and its end twice.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("--nproc_per_node", "--ips", "--start_port", "--host", "--job_id", "--log_dir", "--log_level"):
    parser.add_argument(name, required=True)
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
given = parser.parse_args()
addresses = given.ips.split(",")
environment = {
    **os.environ,
    "PADDLE_TRAINER_ID": str(addresses.index(given.host)),
    "PADDLE_TRAINERS_NUM": str(len(addresses)),
    "PADDLE_MASTER": f"{addresses[0]}:{given.start_port}",
    "STUB_ATTEMPT": given.job_id,
}
Path(os.environ["OUTPUT_DIR"], f"../started-{environment['PADDLE_TRAINER_ID']}").write_text(str(time.time()))
command = [sys.executable, "-u", given.script, *given.arguments]
log = Path(given.log_dir, "workerlog.0")
log.parent.mkdir(parents=True, exist_ok=True)
with log.open("wb") as output:
    worker = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
with log.open() as output:
    while worker.poll() is None:
        shutil.copyfileobj(output, sys.stdout)
        sys.stdout.flush()
        time.sleep(0.05)
    if worker.returncode:
        late, _, seconds = os.environ.get("STUB_LATE", "").partition(":")
        time.sleep(float(seconds) if late == environment["PADDLE_TRAINER_ID"] else 0)
        shutil.copyfileobj(output, sys.stdout)
        print("LAUNCH ERROR Container failed !!!")
        output.seek(0)
    shutil.copyfileobj(output, sys.stdout)
sys.exit(worker.returncode)
