"""`preview` and `up` continue after failures, kills and Ctrl-C, and they never touch a running training."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.sandbox.checkout import JOB, LIMIT_SECONDS, Checkout, eventually
from tests.sandbox.inventory import inventory
from tools.kubernetes_client import POD, ApiError, UnreachableError

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
# The download of this file fails at once, without the retries that an unreachable server gets.
IMPOSSIBLE = f"https://{'a' * 64}/data.tar"
ONE_OF_EACH = ("clusters", "node groups", "file systems", "keys", "aliases", "buckets", "zones", "launch templates")


@dataclass(frozen=True)
class Stack:
    """A checkout with a training that the test holds, and what can be seen of it."""

    checkout: Checkout

    def volumes(self) -> Iterator[Path]:
        return self.checkout.sandbox.glob(f"stacks/local/workers/volumes/fs-*/{TRAINING}")

    def file(self, name: str) -> Path:
        """A file that the training looks for."""
        (folder,) = self.volumes()
        return folder / name

    def train_again(self, wait: bool) -> None:
        """Change a setting so that the next `up` trains again, and hold that training."""
        for folder in self.volumes():
            (folder / "go").unlink(missing_ok=True)
        settings = yaml.safe_load((self.checkout.project / "Pulumi.local.yaml").read_text())["config"]
        self.checkout.set(job={"wait": wait, "passes": settings["paddle-on-aws:job"]["passes"] + 1})

    def release(self) -> None:
        self.file("go").touch()

    def pods(self) -> dict[str, str]:
        """The UID and the phase of each trainer."""
        if not (self.checkout.sandbox / "stacks/local/kubernetes/kubeconfig").exists():
            return {}
        found = self.checkout.api.list(POD, "default", labelSelector=f"job-name={TRAINING}")
        return {pod["metadata"]["uid"]: pod["status"].get("phase", "") for pod in found}

    def running(self, before: dict[str, str]) -> dict[str, str]:
        """The trainers of the new training, when all run."""

        def look() -> dict[str, str]:
            now = self.pods()
            new = list(now.values()) == ["Running"] * 3 and now.keys().isdisjoint(before)
            return now if new else {}

        return dict(eventually(look, "training did not start"))

    def planned(self) -> dict[str, str]:
        """The operations on Jobs that a preview shows, by the name of the Job."""
        config = self.checkout.sandbox / "stacks/local/Pulumi.local.yaml"
        done = self.checkout.engine(config, "preview", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        steps = json.loads(done.stdout)["steps"]
        jobs = {step["urn"].rpartition("::")[2]: step["op"] for step in steps if "batch/v1:Job::" in step["urn"]}
        return {name: operation for name, operation in jobs.items() if operation != "same"}

    def creates_aws_resources(self, before: Mapping[str, str]) -> bool:
        """Whether the engine has recorded some new AWS resources of the running `up`."""
        try:
            return len(self.checkout.ids("aws:").items() - before.items()) >= 12
        except (ValueError, FileNotFoundError):
            return False

    def waits(self) -> bool:
        """Whether the engine waits for the training Job."""
        (file,) = self.checkout.sandbox.glob("state/.pulumi/stacks/*/local.json")
        try:
            operations = json.loads(file.read_text())["checkpoint"]["latest"].get("pending_operations") or []
        except ValueError:
            return False
        return any(each["resource"]["urn"].endswith(f"::{TRAINING}") for each in operations)

    def kill(self, victim: str, when: Callable[[], object]) -> tuple[int, str]:
        """Run `up`, and kill a process as soon as `when` is true. The exit code of `up` and its output."""
        with self.checkout.running("up") as up:
            eventually(when, "the condition did not become true")
            os.kill(self.checkout.pid(victim), signal.SIGKILL)
            output, _ = up.communicate(timeout=LIMIT_SECONDS)
        return up.returncode, output

    def assert_created_once(self) -> None:
        """Every resource exists once and is in the engine's state, and each Job has succeeded."""
        checkout, held = self.checkout, inventory(self.checkout.client)
        assert {kind: len(held[kind]) for kind in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH, 1)
        (vpc,) = checkout.ids("aws:ec2/vpc:").values()
        vpcs = checkout.client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
        assert [each["VpcId"] for each in vpcs] == [vpc]
        roles = checkout.client("iam").list_roles()["Roles"]
        assert sorted(each["RoleName"] for each in roles) == sorted(checkout.ids("aws:iam/role:").values())
        jobs = {job["metadata"]["name"]: job["status"].get("succeeded") for job in checkout.api.list(JOB, "default")}
        (pull,) = [name for name in jobs if name.startswith("paddle-image-pull-")]
        del jobs[pull]
        assert jobs == {"paddle-data": 1, TRAINING: 3, "paddle-export": 1}


@pytest.fixture
def stack(cached: None, tmp_path: Path) -> Iterator[Stack]:
    checkout = Checkout.make(tmp_path)
    checkout.stub_training(HELD_TRAINING)
    checkout.set(data={"records": 300})
    yield Stack(checkout)
    checkout.stop()


def test_a_stack_continues_after_every_interruption(stack: Stack) -> None:
    emulated_aws_is_killed_while_resources_are_created(stack)
    engine_is_killed_while_it_creates_aws_resources(stack)
    before = stack.checkout.ids("aws:")
    training_is_not_created_if_the_data_job_fails(stack)
    assert before.items() <= stack.checkout.ids("aws:").items(), "the stack was created from the start"
    trainers = ctrl_c_leaves_the_training_alone(stack)
    lost_engine_leaves_the_training_alone(stack, trainers)
    up_waits_for_the_same_training(stack, trainers)
    control_plane_is_killed_during_training(stack)
    training_that_nobody_waits_for_is_left_alone(stack)
    failed_training_names_the_command_that_repeats_it(stack)


def emulated_aws_is_killed_while_resources_are_created(stack: Stack) -> None:
    code, _ = stack.kill("aws", lambda: stack.creates_aws_resources({}))
    assert code == 1


def engine_is_killed_while_it_creates_aws_resources(stack: Stack) -> None:
    lost = stack.checkout.ids("aws:")
    code, output = stack.kill("engine", lambda: stack.creates_aws_resources(lost))
    assert code == 1
    assert "starting over" in output


def training_is_not_created_if_the_data_job_fails(stack: Stack) -> None:
    stack.checkout.set(data={"source": IMPOSSIBLE})
    failed = stack.checkout.refused("up")
    assert "paddle-data" in failed
    assert IMPOSSIBLE in failed, "the end of the log is not in the error"
    with pytest.raises(ApiError):
        stack.checkout.job(TRAINING)
    stack.checkout.set(data={"source": "synthetic"})


def ctrl_c_leaves_the_training_alone(stack: Stack) -> dict[str, str]:
    with stack.checkout.running("up") as up:
        trainers = stack.running({})
        stack.planned()
        assert "another sandbox command is running" in stack.checkout.refused("up")
        assert stack.pods() == trainers
        up.send_signal(signal.SIGINT)
        output, _ = up.communicate(timeout=LIMIT_SECONDS)
    assert up.returncode == 130, output
    assert "To continue, run `" in output
    assert "Traceback" not in output
    assert stack.pods() == trainers
    # `update` changes nothing in the cluster: the next `up` waits for this Job. Only the export is still to come.
    planned = {name: operation for name, operation in stack.planned().items() if name != "paddle-export"}
    assert planned == {TRAINING: "update"}
    return trainers


def lost_engine_leaves_the_training_alone(stack: Stack, trainers: dict[str, str]) -> None:
    code, _ = stack.kill("engine", stack.waits)
    assert code == 1
    assert stack.pods() == trainers


def up_waits_for_the_same_training(stack: Stack, trainers: dict[str, str]) -> None:
    with stack.checkout.running("up") as up:
        eventually(stack.waits, "up does not wait")
        assert stack.pods() == trainers
        stack.release()
        output, _ = up.communicate(timeout=LIMIT_SECONDS)
    assert up.returncode == 0, output
    assert stack.pods() == dict.fromkeys(trainers, "Succeeded")
    stack.assert_created_once()


def control_plane_is_killed_during_training(stack: Stack) -> None:
    before = stack.pods()
    stack.train_again(wait=True)
    with stack.checkout.running("up") as up:
        trainers = stack.running(before)

        def restarted() -> bool:
            try:
                return up.poll() is not None or stack.pods().keys() == trainers.keys()
            except (ApiError, UnreachableError):
                return False

        for component in ("kube-apiserver", "etcd"):
            os.kill(stack.checkout.pid(component), signal.SIGKILL)
            eventually(restarted, f"{component} is not started again")
        stack.release()
        up.communicate(timeout=LIMIT_SECONDS)
    stack.checkout.up()
    stack.assert_created_once()


def training_that_nobody_waits_for_is_left_alone(stack: Stack) -> None:
    before, export = stack.pods(), stack.checkout.job("paddle-export")["metadata"]["uid"]
    stack.train_again(wait=False)
    stack.checkout.up()
    trainers = stack.running(before)
    lock = stale_lock(stack.checkout)
    assert "nothing changed" in stack.checkout.up()
    assert not lock.exists()
    stack.checkout.succeed("pulumi", "refresh", "--yes", "--skip-preview")
    stack.checkout.up()
    assert stack.pods() == trainers
    stack.release()

    def exported() -> bool:
        job = stack.checkout.job("paddle-export")
        return bool(job["metadata"]["uid"] != export and job["status"].get("succeeded"))

    eventually(exported, "no end of the export")
    assert stack.pods().keys() == trainers.keys()


def stale_lock(checkout: Checkout) -> Path:
    """The lock of a process that does not exist any more."""
    (stack,) = checkout.sandbox.glob("state/.pulumi/stacks/*/local.json")
    lock = checkout.sandbox / f"state/.pulumi/locks/organization/{stack.parent.name}/local/dead.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text('{"pid": 1, "username": "nobody", "hostname": "gone", "timestamp": "2020-01-01T00:00:00Z"}')
    return lock


def failed_training_names_the_command_that_repeats_it(stack: Stack) -> None:
    before = stack.pods()
    stack.train_again(wait=True)
    with stack.checkout.running("up") as up:
        trainers = stack.running(before)
        stack.file("fail").touch()
        output, _ = up.communicate(timeout=LIMIT_SECONDS)
    assert up.returncode == 1
    assert "told to fail" in output
    repeat = f"pulumi up --replace '**Job::{TRAINING}'"
    assert f"To run this Job again: {repeat}" in output
    assert repeat in stack.checkout.refused("up")
    assert stack.pods().keys() == trainers.keys(), "up alone does not repeat it"
    stack.file("fail").unlink()
    stack.release()
    stack.checkout.succeed(*shlex.split(repeat), "--yes", "--skip-preview")
    assert list(stack.pods().values()) == ["Succeeded"] * 3
    assert stack.pods().keys().isdisjoint(trainers)
    assert stack.planned() == {}
