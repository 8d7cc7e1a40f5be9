"""Failures and kills in the middle of `up`. The next `up` must continue. Each test can run alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.sandbox.checkout import JOB, Checkout, eventually
from tests.sandbox.inventory import inventory
from tools.kubernetes_client import NODE, POD, ApiError

# The training waits while the volume has this file, so that it runs when it is interrupted.
HOLD = "hold"
HELD_TRAINING = f"""
import os, time
from pathlib import Path

while Path(os.environ["JOB_PATH"], os.environ["JOB_NAME"], "{HOLD}").exists():
    time.sleep(0.1)
"""
# The download of this file fails at once, without the retries that an unreachable server gets.
IMPOSSIBLE = f"https://{'a' * 64}/data.tar"
ONE_OF_EACH = ("clusters", "node groups", "file systems", "keys", "aliases", "buckets", "zones", "launch templates")


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = Checkout.make(tmp_path_factory.mktemp("recovery"))
    checkout.stub_training(HELD_TRAINING)
    yield checkout
    checkout.stop()


@pytest.fixture(scope="module")
def other(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Another checkout. An invalid setting stops its program after the start of all processes."""
    other = Checkout.make(tmp_path_factory.mktemp("other"))
    other.set(trainers=0)
    assert "starting over" not in other.run("up").stdout
    yield other
    assert other.run("down").returncode == 0


@pytest.fixture
def up(checkout: Checkout) -> Checkout:
    """The checkout with a stack that is up."""
    if not checkout.is_up:
        checkout.up()
    return checkout


def assert_created_once(checkout: Checkout) -> None:
    """Every resource exists once and is in the engine's state."""
    held = inventory(checkout.client)
    assert {kind: len(held[kind]) for kind in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH, 1)
    (vpc,) = checkout.ids("aws:ec2/vpc:").values()
    vpcs = checkout.client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    assert [each["VpcId"] for each in vpcs] == [vpc]
    roles = checkout.client("iam").list_roles()["Roles"]
    assert sorted(each["RoleName"] for each in roles) == sorted(checkout.ids("aws:iam/role:").values())
    jobs = {job["metadata"]["name"]: job["status"].get("succeeded") for job in checkout.api.list(JOB, "default")}
    (pull,) = [name for name in jobs if name.startswith("paddle-image-pull-")]
    del jobs[pull]
    assert jobs == {"paddle-data": 1, "paddle-cluster-job": 3, "paddle-export": 1}


def creating_aws_resources(checkout: Checkout) -> bool:
    """Whether the engine has recorded some AWS resources."""
    try:
        return len(checkout.ids("aws:")) >= 12
    except (ValueError, FileNotFoundError):
        return False


def hold_next_training(checkout: Checkout) -> None:
    """Change a setting so that the next `up` trains again, and hold that training."""
    for volume in volumes(checkout):
        (volume / HOLD).touch()
    settings = yaml.safe_load((checkout.project / "Pulumi.local.yaml").read_text())["config"]
    checkout.set(job={"passes": settings["paddle-on-aws:job"]["passes"] + 1})


def release(checkout: Checkout) -> None:
    for volume in volumes(checkout):
        (volume / HOLD).unlink(missing_ok=True)


def volumes(checkout: Checkout) -> Iterator[Path]:
    """The folder of the training Job on the file system of this stack, and of those that were destroyed."""
    return checkout.sandbox.glob("stacks/local/workers/volumes/fs-*/paddle-cluster-job")


def training(checkout: Checkout) -> bool:
    """Whether the trainers are running."""
    if not (checkout.sandbox / "stacks/local/kubernetes/kubeconfig").exists():
        return False
    pods = checkout.api.list(POD, "default", labelSelector="job-name=paddle-cluster-job")
    return len([pod for pod in pods if pod["status"].get("phase") == "Running"]) == 3


def test_training_is_not_created_if_the_data_job_fails(checkout: Checkout) -> None:
    checkout.set(data={"source": IMPOSSIBLE})
    failed = checkout.run("up")
    assert failed.returncode == 1
    assert "paddle-data" in failed.stdout
    assert IMPOSSIBLE in failed.stdout, "the end of the log is not in the error"
    with pytest.raises(ApiError):
        checkout.job("paddle-cluster-job")
    checkout.set(data={"source": "synthetic"})
    checkout.up()
    assert_created_once(checkout)


def kill(checkout: Checkout, victim: str, when: Callable[[Checkout], bool]) -> int:
    """Run `up`, kill a process as soon as `when` is true, and return the exit code of `up`."""
    with checkout.running("up") as process:
        eventually(lambda: when(checkout), 600, "the condition did not become true")
        os.kill(checkout.pid(victim), signal.SIGKILL)
        release(checkout)
        process.communicate(timeout=600)
    return process.returncode


def test_engine_killed_while_it_creates_aws_resources(checkout: Checkout) -> None:
    checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert kill(checkout, "engine", creating_aws_resources) == 1
    before = checkout.ids("aws:")
    checkout.up()
    assert_created_once(checkout)
    assert before.items() <= checkout.ids("aws:").items(), "the stack was created from the start"


def test_engine_killed_during_training(up: Checkout) -> None:
    hold_next_training(up)
    assert kill(up, "engine", training) == 1
    up.up()
    assert_created_once(up)


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_control_plane_killed_during_training(up: Checkout, component: str) -> None:
    hold_next_training(up)
    kill(up, component, training)
    up.up()
    assert_created_once(up)


def test_emulated_aws_killed_while_resources_are_created(checkout: Checkout) -> None:
    checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert kill(checkout, "aws", creating_aws_resources) == 1
    assert "starting over" in checkout.up()
    assert_created_once(checkout)


def test_an_emulated_aws_of_another_revision_is_replaced(other: Checkout) -> None:
    before = {name: other.pid(name) for name in ("aws", "workers-local")}
    assert "starting over" not in other.run("up").stdout
    assert {name: other.pid(name) for name in before} == before
    for folder in ("cloud", "node"):
        (other.project / f"sandbox/{folder}/new_code.py").touch()
    refused = other.run("pulumi", "preview")
    assert refused.returncode == 1
    assert "by another revision. Run `make sandbox` first." in refused.stdout
    assert "starting over" in other.run("up").stdout
    assert all(other.pid(name) != pid for name, pid in before.items())


def test_an_interrupted_up_continues(up: Checkout) -> None:
    hold_next_training(up)
    with up.running("up") as process:
        eventually(lambda: training(up), 600, "training did not start")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
    release(up)
    assert process.returncode == 130, output
    assert "To continue, run `" in output
    assert "Traceback" not in output
    up.up()
    assert_created_once(up)


def test_a_stale_lock_is_removed(up: Checkout) -> None:
    (stack,) = up.sandbox.glob("state/.pulumi/stacks/*/local.json")
    lock = up.sandbox / f"state/.pulumi/locks/organization/{stack.parent.name}/local/dead.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text('{"pid": 1, "username": "nobody", "hostname": "gone", "timestamp": "2020-01-01T00:00:00Z"}')
    assert "nothing changed" in up.up()
    assert not lock.exists()


def test_a_second_checkout_runs_independently(up: Checkout, other: Checkout) -> None:
    for name in ("aws", "workers-local", "kube-apiserver"):
        assert other.pid(name) != up.pid(name)
    assert up.api.config.server != other.api.config.server
    assert pod_networks(up).isdisjoint(pod_networks(other))
    assert other.api.list(JOB) == []
    assert other.run("down").returncode == 0
    assert_created_once(up)


def pod_networks(checkout: Checkout) -> set[str]:
    """The address ranges of the pods of a checkout. Different ranges allow the same port twice."""
    return {node["spec"]["podCIDR"] for node in checkout.api.list(NODE)}
