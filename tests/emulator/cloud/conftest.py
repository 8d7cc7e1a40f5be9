"""A network, a role and clusters for the tests of the rules of AWS. Nothing is deleted: each test has its own names."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"
Aws = Callable[..., Any]


def make_subnets(ec2: Any, vpc: str, **zones: Sequence[str]) -> list[str]:
    """A subnet in each of these zones: AvailabilityZone=names or AvailabilityZoneId=ids."""
    ((kind, values),) = zones.items()
    used = len(ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Subnets"])
    return [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{used + i}.0/24", **{kind: zone})["Subnet"]["SubnetId"]
        for i, zone in enumerate(values)
    ]


def make_vpc(ec2: Any) -> str:
    return str(ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"])


def make_groups(ec2: Any, vpc: str, count: int) -> list[str]:
    return [
        ec2.create_security_group(GroupName=f"group-{uuid.uuid4()}", Description="test", VpcId=vpc)["GroupId"]
        for _ in range(count)
    ]


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def vpc(aws: Aws) -> str:
    return make_vpc(aws("ec2"))


@pytest.fixture
def subnets(aws: Aws, vpc: str) -> list[str]:
    return make_subnets(aws("ec2"), vpc, AvailabilityZone=["eu-west-1a", "eu-west-1b"])


@pytest.fixture
def role(aws: Aws, name: str) -> str:
    return str(aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"])


@pytest.fixture
def request_(name: str, role: str, subnets: list[str]) -> dict[str, Any]:
    """The parameters of a cluster."""
    return {"name": name, "roleArn": role, "resourcesVpcConfig": {"subnetIds": subnets}}


@pytest.fixture
def cluster(aws: Aws, request_: dict[str, Any]) -> dict[str, Any]:
    access = {"authenticationMode": "API"}
    created: dict[str, Any] = aws("eks").create_cluster(**request_, version="1.34", accessConfig=access)["cluster"]
    return created


@pytest.fixture
def bare(aws: Aws, request_: dict[str, Any], vpc: str) -> dict[str, Any]:
    """The parameters of a node group in a cluster without self-managed add-ons."""
    (group,) = make_groups(aws("ec2"), vpc, 1)
    name = request_["name"]
    template = aws("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"SecurityGroupIds": [group]}
    )["LaunchTemplate"]["LaunchTemplateId"]
    aws("eks").create_cluster(**request_, version="1.34", bootstrapSelfManagedAddons=False)
    return {
        "clusterName": name,
        "nodegroupName": "g",
        "nodeRole": request_["roleArn"],
        "subnets": request_["resourcesVpcConfig"]["subnetIds"][:1],
        "launchTemplate": {"id": template, "version": "1"},
        "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
    }


def refusal(call: Callable[..., Any], **parameters: Any) -> str:
    """The code and the message of the refusal."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return f"{error['Code']}: {error.get('Message')}"
