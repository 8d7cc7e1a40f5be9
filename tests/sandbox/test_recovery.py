"""What goes wrong in the middle, and that the same command goes on from there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.cluster.api import NODE, POD, ApiError
from tests.sandbox.checkout import JOB, Checkout, eventually
from tests.sandbox.inventory import inventory

ONE_OF_EACH = ("clusters", "node groups", "file systems", "keys", "aliases", "buckets", "zones", "launch templates")


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path_factory.mktemp("recovery"))
    yield made
    made.run("down")


def assert_made_once(checkout: Checkout) -> None:
    """Every resource is there and recorded, and nothing is there twice."""
    held = inventory(checkout.client)
    assert {kind: len(held[kind]) for kind in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH, 1)
    (vpc,) = checkout.ids("aws:ec2/vpc:").values()
    vpcs = checkout.client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    assert [each["VpcId"] for each in vpcs] == [vpc]
    roles = checkout.client("iam").list_roles()["Roles"]
    assert sorted(each["RoleName"] for each in roles) == sorted(checkout.ids("aws:iam/role:").values())
    jobs = {job["metadata"]["name"]: job["status"].get("succeeded") for job in checkout.api.list(JOB, "default")}
    assert jobs == {"paddle-data": 1, "paddle-cluster-job": 3, "paddle-export": 1}


def filling_aws(checkout: Checkout) -> bool:
    """Whether the engine has recorded some of AWS; it has not before there is a stack."""
    try:
        return len(checkout.ids("aws:")) >= 12
    except (ValueError, FileNotFoundError):
        return False


def training(checkout: Checkout) -> bool:
    """Whether the trainers are running."""
    if not (checkout.sandbox / "stacks/local/kubernetes/kubeconfig").exists():
        return False
    pods = checkout.api.list(POD, "default", labelSelector="job-name=paddle-cluster-job")
    return len([pod for pod in pods if pod["status"].get("phase") == "Running"]) == 3


def test_failed_data_keep_training_from_being_made(checkout: Checkout) -> None:
    checkout.set(data={"source": "https://127.0.0.1:9/data.tar"})
    failed = checkout.run("up")
    assert failed.returncode == 1
    assert "paddle-data" in failed.stdout
    assert "https://127.0.0.1:9/data.tar" in failed.stdout, "the log's end is not in the error"
    with pytest.raises(ApiError):
        checkout.job("paddle-cluster-job")
    checkout.set(data={"source": "synthetic"})
    checkout.up()
    assert_made_once(checkout)


def kill(checkout: Checkout, victim: str, when: Callable[[Checkout], bool]) -> int:
    """The exit code of an `up` in whose middle a process is killed."""
    with checkout.running("up") as process:
        eventually(lambda: when(checkout), 600, "it was not under way")
        os.kill(checkout.pid(victim), signal.SIGKILL)
        process.communicate(timeout=300)
    return process.returncode


def test_engine_killed_while_it_makes_aws(checkout: Checkout) -> None:
    checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert kill(checkout, "engine", filling_aws) == 1
    checkout.up()
    assert_made_once(checkout)


def test_engine_killed_while_it_waits_for_training(checkout: Checkout) -> None:
    checkout.set(job={"passes": 3})
    assert kill(checkout, "engine", training) == 1
    checkout.up()
    assert_made_once(checkout)


@pytest.mark.parametrize(("component", "passes"), [("kube-apiserver", 4), ("etcd", 5)])
def test_control_plane_killed_while_training(checkout: Checkout, component: str, passes: int) -> None:
    checkout.set(job={"passes": passes})
    kill(checkout, component, training)
    checkout.up()
    assert_made_once(checkout)


def test_aws_killed_while_it_is_filled(checkout: Checkout) -> None:
    checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert kill(checkout, "aws", filling_aws) == 1
    assert "beginning anew" in checkout.up()
    assert_made_once(checkout)


def test_interrupted_up_goes_on(checkout: Checkout) -> None:
    checkout.set(job={"passes": 6})
    with checkout.running("up") as process:
        eventually(lambda: training(checkout), 600, "training was not under way")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=180)
    assert process.returncode == 130, output
    assert "-m sandbox up` goes on" in output
    assert "Traceback" not in output
    checkout.up()
    assert_made_once(checkout)


def test_stale_lock_is_removed(checkout: Checkout) -> None:
    (stack,) = checkout.sandbox.glob("state/.pulumi/stacks/*/local.json")
    lock = checkout.sandbox / f"state/.pulumi/locks/organization/{stack.parent.name}/local/dead.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text('{"pid": 1, "username": "nobody", "hostname": "gone", "timestamp": "2020-01-01T00:00:00Z"}')
    assert "nothing changed" in checkout.up()
    assert not lock.exists()


def test_second_checkout_runs_beside(checkout: Checkout, tmp_path: Path) -> None:
    other = Checkout.make(tmp_path)
    try:
        # The settings are refused once everything is started: enough to have two of each.
        other.set(trainers=0)
        other.run("up")
        for part in ("aws", "workers-local", "kube-apiserver"):
            assert other.pid(part) != checkout.pid(part)
        assert checkout.api.config.server != other.api.config.server
        assert pod_networks(checkout).isdisjoint(pod_networks(other))
        assert other.api.list(JOB) == []
    finally:
        assert other.run("down").returncode == 0
    assert_made_once(checkout)


def pod_networks(checkout: Checkout) -> set[str]:
    """The addresses that the pods of a checkout have; two may use one port on two of them."""
    return {node["spec"]["podCIDR"] for node in checkout.api.list(NODE)}
