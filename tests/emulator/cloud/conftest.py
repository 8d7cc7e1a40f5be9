"""A network, a role and a cluster for the tests of the rules of EKS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"
Aws = Callable[..., Any]


@pytest.fixture
def vpc(aws: Aws) -> Iterator[str]:
    made = aws("ec2").create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    yield made
    for subnet in aws("ec2").describe_subnets(Filters=[{"Name": "vpc-id", "Values": [made]}])["Subnets"]:
        aws("ec2").delete_subnet(SubnetId=subnet["SubnetId"])
    aws("ec2").delete_vpc(VpcId=made)


@pytest.fixture
def subnets(aws: Aws, vpc: str) -> list[str]:
    return [
        aws("ec2").create_subnet(VpcId=vpc, CidrBlock=f"10.8.{i}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for i, zone in enumerate(("eu-west-1a", "eu-west-1b"))
    ]


@pytest.fixture
def role(aws: Aws) -> Iterator[str]:
    yield aws("iam").create_role(RoleName="eks-rules", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    aws("iam").delete_role(RoleName="eks-rules")


def refusal(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Message"])


@pytest.fixture
def bare(aws: Aws, subnets: list[str], role: str) -> Iterator[dict[str, Any]]:
    """The parameters of a node group in a cluster without self-managed add-ons."""
    group = aws("ec2").create_security_group(GroupName="nodes", Description="nodes", VpcId=_vpc(aws, subnets[0]))
    template = aws("ec2").create_launch_template(
        LaunchTemplateName="eks-rules", LaunchTemplateData={"SecurityGroupIds": [group["GroupId"]]}
    )["LaunchTemplate"]["LaunchTemplateId"]
    network = {"subnetIds": subnets}
    aws("eks").create_cluster(
        name="eks-rules", version="1.34", roleArn=role, resourcesVpcConfig=network, bootstrapSelfManagedAddons=False
    )
    yield {
        "clusterName": "eks-rules",
        "nodegroupName": "g",
        "nodeRole": role,
        "subnets": subnets[:1],
        "launchTemplate": {"id": template},
        "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
    }
    for name in aws("eks").list_nodegroups(clusterName="eks-rules")["nodegroups"]:
        aws("eks").delete_nodegroup(clusterName="eks-rules", nodegroupName=name)
    aws("eks").delete_cluster(name="eks-rules")
    interfaces = aws("ec2").describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": subnets}])
    for interface in interfaces["NetworkInterfaces"]:
        aws("ec2").delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    aws("ec2").delete_launch_template(LaunchTemplateId=template)
    aws("ec2").delete_security_group(GroupId=group["GroupId"])


def _vpc(aws: Aws, subnet: str) -> str:
    return str(aws("ec2").describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"])


def addon(aws: Aws, name: str, **given: Any) -> str:
    """Create an add-on of the cluster and return its status."""
    return str(aws("eks").create_addon(clusterName="eks-rules", addonName=name, **given)["addon"]["status"])
