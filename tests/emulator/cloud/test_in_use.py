"""What another resource uses cannot be deleted or moved, as on AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

Aws = Callable[[str], Any]
REGION = "eu-west-1"


@dataclass(frozen=True)
class Used:
    """A VPC with a cluster, its workers and a file system."""

    vpc: str
    gateway: str
    subnets: list[str]
    group: str
    workers_group: str
    file_system: str


@pytest.fixture(scope="module")
def used(aws: Aws) -> Iterator[Used]:
    ec2, eks, efs, iam = aws("ec2"), aws("eks"), aws("efs"), aws("iam")
    role = iam.create_role(RoleName="in-use", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    subnets = [subnet(aws, vpc, f"10.9.{i}.0/24", zone) for i, zone in enumerate("ab")]
    for each in subnets:
        ec2.modify_subnet_attribute(SubnetId=each, MapPublicIpOnLaunch={"Value": True})
    group, workers = (
        ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"] for name in ("a", "b")
    )
    network = {"subnetIds": subnets, "securityGroupIds": [group]}
    eks.create_cluster(name="in-use", roleArn=role, resourcesVpcConfig=network)
    template = ec2.create_launch_template(
        LaunchTemplateName="in-use", LaunchTemplateData={"SecurityGroupIds": [workers]}
    )["LaunchTemplate"]["LaunchTemplateId"]
    nodes = {"clusterName": "in-use", "nodegroupName": "in-use"}
    eks.create_nodegroup(**nodes, nodeRole=role, subnets=subnets, launchTemplate={"id": template, "version": "1"})
    system = efs.create_file_system(CreationToken="in-use")["FileSystemId"]
    yield Used(vpc, gateway, subnets, group, workers, system)
    for mount in efs.describe_mount_targets(FileSystemId=system)["MountTargets"]:
        efs.delete_mount_target(MountTargetId=mount["MountTargetId"])
    efs.delete_file_system(FileSystemId=system)
    eks.delete_nodegroup(**nodes)
    eks.delete_cluster(name="in-use")
    ec2.delete_launch_template(LaunchTemplateId=template)
    for each in (group, workers):
        ec2.delete_security_group(GroupId=each)
    for each in subnets:
        ec2.delete_subnet(SubnetId=each)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)
    iam.delete_role(RoleName="in-use")


def subnet(aws: Aws, vpc: str, cidr: str, zone: str) -> str:
    made = aws("ec2").create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=f"{REGION}{zone}")
    return str(made["Subnet"]["SubnetId"])


def refused(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def test_security_groups_of_a_cluster_and_its_workers_stay(aws: Aws, used: Used) -> None:
    for group in (used.group, used.workers_group):
        assert refused(aws("ec2").delete_security_group, GroupId=group) == "DependencyViolation"


def test_a_security_group_that_a_rule_names_stays(aws: Aws, used: Used) -> None:
    named, naming = (
        aws("ec2").create_security_group(GroupName=name, Description=name, VpcId=used.vpc)["GroupId"]
        for name in ("named", "naming")
    )
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "UserIdGroupPairs": [{"GroupId": named}]}
    aws("ec2").authorize_security_group_ingress(GroupId=naming, IpPermissions=[rule])
    assert refused(aws("ec2").delete_security_group, GroupId=named) == "DependencyViolation"
    for group in (naming, named):
        aws("ec2").delete_security_group(GroupId=group)


def test_the_subnets_of_a_cluster_stay(aws: Aws, used: Used) -> None:
    assert refused(aws("ec2").delete_subnet, SubnetId=used.subnets[0]) == "DependencyViolation"


def test_the_gateway_of_workers_with_public_addresses_stays(aws: Aws, used: Used) -> None:
    detach = aws("ec2").detach_internet_gateway
    assert refused(detach, InternetGatewayId=used.gateway, VpcId=used.vpc) == "DependencyViolation"


def test_a_cluster_keeps_its_vpc_and_its_zones(aws: Aws, used: Used) -> None:
    update = aws("eks").update_cluster_config
    third = subnet(aws, used.vpc, "10.9.8.0/24", "c")
    other = aws("ec2").create_vpc(CidrBlock="10.10.0.0/16")["Vpc"]["VpcId"]
    moved = [subnet(aws, other, f"10.10.{i}.0/24", zone) for i, zone in enumerate("ab")]
    for subnets in ([used.subnets[0], third], moved):
        assert refused(update, name="in-use", resourcesVpcConfig={"subnetIds": subnets}) == "InvalidParameterException"
    same_zone = subnet(aws, used.vpc, "10.9.9.0/24", "b")
    update(name="in-use", resourcesVpcConfig={"subnetIds": [used.subnets[0], same_zone]})
    update(name="in-use", resourcesVpcConfig={"subnetIds": used.subnets})
    for each in (third, same_zone, *moved):
        aws("ec2").delete_subnet(SubnetId=each)
    aws("ec2").delete_vpc(VpcId=other)


def test_a_file_system_has_mount_targets_in_one_vpc(aws: Aws, used: Used) -> None:
    efs, group = aws("efs"), used.group
    efs.create_mount_target(FileSystemId=used.file_system, SubnetId=used.subnets[0], SecurityGroups=[group])
    other = aws("ec2").create_vpc(CidrBlock="10.11.0.0/16")["Vpc"]["VpcId"]
    elsewhere = subnet(aws, other, "10.11.0.0/24", "b")
    create = {"FileSystemId": used.file_system, "SubnetId": elsewhere}
    assert refused(efs.create_mount_target, **create) == "MountTargetConflict"
    aws("ec2").delete_subnet(SubnetId=elsewhere)
    aws("ec2").delete_vpc(VpcId=other)
