"""Stands in for paddle's launcher where a test is about ours: runs train.py in a session of its own, as paddle does."""

import argparse
import os
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
sys.exit(subprocess.Popen(command, env=environment, start_new_session=True).wait())
