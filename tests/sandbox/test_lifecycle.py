"""The AWS part of each stack: up, refresh without changes, update, and destroy. Only what is documented stays.

One more stack runs in China. The whole stack `local` is tested in test_mission.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part
from tests.sandbox.inventory import Client, inventory
from tests.unit.program import config_of

OURS = "paddle-on-aws:"
ECR = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"
CHINA = {
    **config_of("dev"),
    "aws:region": "cn-north-1",
    f"{OURS}job": {"image": f"{ECR}/paddle:3.3.1"},
    f"{OURS}export": {"image": f"{ECR}/aws-cli:2"},
    f"{OURS}data": {"source": "s3://datasets/words.tar"},
    f"{OURS}storage": {"driver": "efsCsi"},
}
# The name of the stack file, the settings, and what stays after destroy.
STACKS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, list[str]]]] = {
    "dev": ("dev", config_of("dev"), {}),
    "tutorial": ("tutorial", config_of("tutorial"), {}),
    "prod": ("prod", config_of("prod"), {"log groups": ["/aws/eks/paddle-prod/cluster"]}),
    "china": ("dev", CHINA, {}),
}


def clients(part: AwsPart, region: str) -> Client:
    keys = {"endpoint_url": part.endpoint, "aws_access_key_id": "stranger", "aws_secret_access_key": "x"}
    return lambda service: boto3.client(service, region_name=region, **keys)


def succeed(part: AwsPart, *arguments: str) -> str:
    done = part.pulumi(*arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("stack", STACKS)
def test_up_refresh_update_and_destroy(tmp_path: Path, stack: str) -> None:
    file, config, stays = STACKS[stack]
    with aws_part(tmp_path, file) as part:
        client = clients(part, config["aws:region"])
        before = inventory(client)
        part.set(config)
        shown = succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
        assert "usually cannot reach" not in shown
        if stack == "china":
            check_names_of_china(part, client)
        succeed(part, "preview", "--expect-no-changes", *AWS_PART)
        succeed(part, "refresh", "--yes", "--skip-preview", "--expect-no-changes", *AWS_PART)

        workers = config.get(f"{OURS}workers", {})
        count = workers.get("count", 3) + 1
        part.set({**config, f"{OURS}workers": {**workers, "count": count}, f"{OURS}retainData": False})
        succeed(part, "up", "--yes", "--skip-preview", *AWS_PART)
        (cluster,) = client("eks").list_clusters()["clusters"]
        (group,) = client("eks").list_nodegroups(clusterName=cluster)["nodegroups"]
        found = client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"]
        assert found["scalingConfig"]["desiredSize"] == count

        succeed(part, "destroy", "--yes", "--skip-preview")
        left = {kind: sorted(set(ids) - set(before[kind])) for kind, ids in inventory(client).items()}
        assert {kind: ids for kind, ids in left.items() if ids} == stays


def check_names_of_china(part: AwsPart, client: Client) -> None:
    """ARNs are of this partition, and names of AWS have its DNS suffix. test_security.py checks all ARNs."""
    (file,) = part.engine.folder.glob("state/.pulumi/stacks/*/dev.json")
    resources = json.loads(file.read_text())["checkpoint"]["latest"]["resources"]
    keys = [each["outputs"]["arn"] for each in resources if each["type"] in ("aws:kms/key:Key", "aws:iam/role:Role")]
    assert {re.split(":", arn)[1] for arn in keys} == {"aws-cn"}
    roles = {role["RoleName"]: role["AssumeRolePolicyDocument"] for role in client("iam").list_roles()["Roles"]}
    (worker,) = [trust for name, trust in roles.items() if name.startswith("worker-role")]
    assert worker["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}
    outputs = {each["urn"].rpartition("::")[2]: each.get("outputs", {}) for each in resources}
    assert outputs["efs"]["dnsName"].endswith(".efs.cn-north-1.amazonaws.com.cn")
    assert outputs["eks"]["endpoint"].endswith(".cn-north-1.eks.amazonaws.com.cn")
    assert outputs["s3-endpoint"]["serviceName"] == "com.amazonaws.cn-north-1.s3"
