"""The real engine previews a stack with 1000 workers and 1000 trainers."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

from settings.schema import NODES_PER_GROUP
from settings.subnets import ADDRESSES_PER_WORKER, AWS_RESERVED
from tests.sandbox.aws_part import aws_part
from tests.unit.program import config_of, with_workers

WORKERS = 1000


def test_a_thousand_workers(tmp_path: Path) -> None:
    config = {**with_workers(config_of("dev"), WORKERS), "paddle-on-aws:data": {"records": WORKERS}}
    with aws_part(tmp_path, "dev") as part:
        part.set(config)
        shown = part.succeed("preview", "--json")
        check(json.loads(shown)["steps"])
        part.set({**config, "paddle-on-aws:vpcCidr": "10.0.0.0/17"})
        why = "and 1000 workers need 16 each. Write a larger range, more zones, or fewer workers"
        assert why in part.refused("preview")


def check(steps: list[dict[str, Any]]) -> None:
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
    assert len(planned["aws:ec2/launchTemplate:LaunchTemplate"]) == 1
    assert len(steps) < 120
