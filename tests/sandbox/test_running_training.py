"""`preview` and `up` never touch a running training, also after Ctrl-C and after a lost engine."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.sandbox.checkout import Checkout, eventually
from tools.kubernetes_client import POD

TRAINING = "paddle-cluster-job"
# The training waits until the test creates a file on the volume, so it still runs during the commands of the test.
HELD_TRAINING = """
import os, sys, time
from pathlib import Path

folder = Path(os.environ["JOB_PATH"], os.environ["JOB_NAME"])
while not (folder / "go").exists():
    if (folder / "fail").exists():
        sys.exit("told to fail")
    time.sleep(0.1)
"""
START_SECONDS, END_SECONDS = 300, 600


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = Checkout.make(tmp_path_factory.mktemp("running"))
    checkout.stub_training(HELD_TRAINING)
    yield checkout
    checkout.stop()


def volume(checkout: Checkout) -> Iterator[Path]:
    return checkout.sandbox.glob(f"stacks/local/workers/volumes/fs-*/{TRAINING}")


def hold_next_training(checkout: Checkout, wait: bool) -> None:
    """Change a setting so that the next `up` trains again, and hold that training."""
    for folder in volume(checkout):
        (folder / "go").unlink(missing_ok=True)
    settings = yaml.safe_load((checkout.project / "Pulumi.local.yaml").read_text())["config"]
    checkout.set(job={"wait": wait, "passes": settings["paddle-on-aws:job"]["passes"] + 1})


def release(checkout: Checkout) -> None:
    (folder,) = volume(checkout)
    (folder / "go").touch()


def pods(checkout: Checkout) -> dict[str, str]:
    """The UID and the phase of each trainer."""
    if not (checkout.sandbox / "stacks/local/kubernetes/kubeconfig").exists():
        return {}
    found = checkout.api.list(POD, "default", labelSelector=f"job-name={TRAINING}")
    return {pod["metadata"]["uid"]: pod["status"].get("phase", "") for pod in found}


def running(checkout: Checkout, before: dict[str, str]) -> dict[str, str]:
    """The trainers of the new training, when all run."""

    def look() -> dict[str, str]:
        now = pods(checkout)
        new = list(now.values()) == ["Running"] * 3 and now.keys().isdisjoint(before)
        return now if new else {}

    return dict(eventually(lambda: look(), START_SECONDS, "training did not start"))


def planned(checkout: Checkout) -> dict[str, str]:
    """The operations on Jobs that a preview shows, by the name of the Job."""
    config = checkout.sandbox / "stacks/local/Pulumi.local.yaml"
    done = checkout.engine(config, "preview", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(done.stdout)["steps"]
    jobs = {step["urn"].rpartition("::")[2]: step["op"] for step in steps if "batch/v1:Job::" in step["urn"]}
    return {name: operation for name, operation in jobs.items() if operation != "same"}


def test_a_training_that_nobody_waits_for_is_left_alone(checkout: Checkout) -> None:
    before = pods(checkout)
    hold_next_training(checkout, wait=False)
    checkout.up()
    trainers = running(checkout, before)
    assert planned(checkout) == {}
    assert "nothing changed" in checkout.up()
    assert checkout.run("pulumi", "refresh", "--yes", "--skip-preview").returncode == 0
    checkout.up()
    assert pods(checkout) == trainers
    release(checkout)
    eventually(lambda: checkout.job("paddle-export")["status"].get("succeeded"), END_SECONDS, "no end of the export")
    assert pods(checkout).keys() == trainers.keys()


def test_up_continues_to_wait_for_the_same_training_after_ctrl_c(checkout: Checkout) -> None:
    before = pods(checkout)
    hold_next_training(checkout, wait=True)
    with checkout.running("up") as up:
        trainers = running(checkout, before)
        planned(checkout)
        second = checkout.run("up")
        assert second.returncode == 1
        assert "another sandbox command is running" in second.stdout
        assert pods(checkout) == trainers
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=180)
    assert up.returncode == 130
    assert pods(checkout) == trainers
    # `update` changes nothing in the cluster: the next `up` waits for this Job. Only the export is still to come.
    assert {name: done for name, done in planned(checkout).items() if name != "paddle-export"} == {TRAINING: "update"}
    finish(checkout, trainers)


def test_up_continues_to_wait_for_the_same_training_after_a_lost_engine(checkout: Checkout) -> None:
    before = pods(checkout)
    hold_next_training(checkout, wait=True)
    with checkout.running("up") as up:
        trainers = running(checkout, before)
        os.kill(checkout.pid("engine"), signal.SIGKILL)
        up.communicate(timeout=300)
    assert pods(checkout) == trainers
    finish(checkout, trainers)


def test_a_failed_training_names_the_command_that_repeats_it(checkout: Checkout) -> None:
    before = pods(checkout)
    hold_next_training(checkout, wait=True)
    with checkout.running("up") as up:
        trainers = running(checkout, before)
        (folder,) = volume(checkout)
        (folder / "fail").touch()
        output, _ = up.communicate(timeout=END_SECONDS)
    assert up.returncode == 1
    assert "told to fail" in output
    repeat = f"pulumi up --replace '**Job::{TRAINING}'"
    assert f"To run this Job again: {repeat}" in output
    again = checkout.run("up")
    assert again.returncode == 1
    assert repeat in again.stdout
    assert pods(checkout).keys() == trainers.keys(), "up alone does not repeat it"
    (folder / "fail").unlink()
    release(checkout)
    repeated = checkout.run(*shlex.split(repeat), "--yes", "--skip-preview")
    assert repeated.returncode == 0, repeated.stdout
    assert list(pods(checkout).values()) == ["Succeeded"] * 3
    assert pods(checkout).keys().isdisjoint(trainers)
    assert planned(checkout) == {}


def finish(checkout: Checkout, trainers: dict[str, str]) -> None:
    """The next `up` waits until these trainers have trained."""
    with checkout.running("up") as up:
        eventually(lambda: waiting(checkout), START_SECONDS, "up does not wait")
        assert pods(checkout) == trainers
        release(checkout)
        output, _ = up.communicate(timeout=END_SECONDS)
    assert up.returncode == 0, output
    assert pods(checkout) == dict.fromkeys(trainers, "Succeeded")
    assert checkout.job("paddle-export")["status"]["succeeded"] == 1
    assert planned(checkout) == {}


def waiting(checkout: Checkout) -> bool:
    """Whether the engine works on the Job."""
    (file,) = checkout.sandbox.glob("state/.pulumi/stacks/*/local.json")
    try:
        operations = json.loads(file.read_text())["checkpoint"]["latest"].get("pending_operations") or []
    except ValueError:
        return False
    return any(each["resource"]["urn"].endswith(f"::{TRAINING}") for each in operations)
