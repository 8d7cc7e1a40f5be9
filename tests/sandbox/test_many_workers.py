"""The real engine previews a stack with 1000 workers and 1000 trainers."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings.schema import NODES_PER_GROUP
from settings.subnets import ADDRESSES_PER_WORKER, AWS_RESERVED
from tests.sandbox.checkout import WITHOUT_MOUNT_NAMESPACES, Checkout

WORKERS = 1000


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """An empty sandbox. An invalid setting stops the program after everything has started."""
    made = Checkout.make(tmp_path_factory.mktemp("many"))
    made.set(trainers=0)
    assert "trainers: 0" in made.run("up", under=WITHOUT_MOUNT_NAMESPACES).stdout
    yield made
    down = made.run("down", under=WITHOUT_MOUNT_NAMESPACES)
    assert down.returncode == 0, down.stdout


def preview(checkout: Checkout, **settings: object) -> subprocess.CompletedProcess[str]:
    """A preview with other settings in the engine's copy of the stack file: the sandbox starts only 254 nodes."""
    file = checkout.sandbox / "stacks/local/Pulumi.local.yaml"
    written = yaml.safe_load(file.read_text())
    workers = {"count": WORKERS, "zones": "all"}
    changes = {"trainers": WORKERS, "workers": workers, "data": {"records": WORKERS}, **settings}
    written["config"] |= {f"paddle-on-aws:{key}": value for key, value in changes.items()}
    many = Path(f"{file}.many.yaml")
    many.write_text(yaml.safe_dump(written))
    return checkout.engine(many, "preview", "--json")


def test_a_thousand_workers_are_previewed(checkout: Checkout) -> None:
    done = preview(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    # The other step is the provider of the questions to AWS, which the invalid run has created.
    steps = [step for step in json.loads(done.stdout)["steps"] if step["op"] != "same"]
    assert {step["op"] for step in steps} == {"create"}
    planned: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        planned.setdefault(step["newState"]["type"], []).append(step["newState"].get("inputs", {}))

    groups = [each["scalingConfig"] for each in planned["aws:eks/nodeGroup:NodeGroup"]]
    assert sorted(each["desiredSize"] for each in groups) == [333, 333, 334]
    assert max(each["maxSize"] for each in groups) <= NODES_PER_GROUP

    ranges = [ipaddress.IPv4Network(each["cidrBlock"]) for each in planned["aws:ec2/subnet:Subnet"]]
    vpc = ipaddress.IPv4Network(planned["aws:ec2/vpc:Vpc"][0]["cidrBlock"])
    assert all(each.subnet_of(vpc) for each in ranges)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)
    addresses = sum(each.num_addresses - AWS_RESERVED for each in ranges)
    assert addresses >= WORKERS * ADDRESSES_PER_WORKER

    jobs = {each["metadata"]["name"]: each["spec"] for each in planned["kubernetes:batch/v1:Job"]}
    training = jobs["paddle-cluster-job"]
    assert (training["completions"], training["parallelism"]) == (WORKERS, WORKERS)
    # The number of resources does not grow with the number of workers: only two more node groups.
    assert Counter({kind: len(each) for kind, each in planned.items()})["aws:ec2/launchTemplate:LaunchTemplate"] == 1
    assert len(steps) < 120


def test_a_network_without_enough_addresses_is_refused(checkout: Checkout) -> None:
    done = preview(checkout, vpcCidr="10.0.0.0/17")
    assert done.returncode != 0
    why = "and 1000 workers need 16 each. Write a larger range, more zones, or fewer workers"
    assert why in " ".join((done.stdout + done.stderr).split())
