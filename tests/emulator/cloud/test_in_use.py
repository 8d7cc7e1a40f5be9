"""What another resource uses cannot be deleted or moved, as on AWS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.emulator.cloud.conftest import Aws, make_groups, make_subnets, make_vpc, refusal


@dataclass(frozen=True)
class Used:
    """A VPC with a cluster and its workers."""

    cluster: str
    vpc: str
    gateway: str
    subnets: list[str]
    group: str
    workers_group: str


@pytest.fixture
def used(aws: Aws, name: str, role: str, vpc: str, subnets: list[str]) -> Used:
    ec2, eks = aws("ec2"), aws("eks")
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    for each in subnets:
        ec2.modify_subnet_attribute(SubnetId=each, MapPublicIpOnLaunch={"Value": True})
    group, workers = make_groups(ec2, vpc, 2)
    network = {"subnetIds": subnets, "securityGroupIds": [group]}
    eks.create_cluster(name=name, roleArn=role, resourcesVpcConfig=network)
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"SecurityGroupIds": [workers]})
    started = {"id": template["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}
    eks.create_nodegroup(
        clusterName=name, nodegroupName="in-use", nodeRole=role, subnets=subnets, launchTemplate=started
    )
    return Used(name, vpc, gateway, subnets, group, workers)


def test_what_a_cluster_and_its_workers_use_stays(aws: Aws, used: Used) -> None:
    ec2 = aws("ec2")
    refused = [refusal(ec2.delete_security_group, GroupId=group) for group in (used.group, used.workers_group)]
    refused += [refusal(ec2.delete_subnet, SubnetId=subnet) for subnet in used.subnets]
    # The workers have public addresses.
    refused += [refusal(ec2.detach_internet_gateway, InternetGatewayId=used.gateway, VpcId=used.vpc)]
    assert {message.partition(":")[0] for message in refused} == {"DependencyViolation"}


def test_a_security_group_that_a_rule_names_stays(aws: Aws, vpc: str) -> None:
    named, naming = make_groups(aws("ec2"), vpc, 2)
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "UserIdGroupPairs": [{"GroupId": named}]}
    aws("ec2").authorize_security_group_ingress(GroupId=naming, IpPermissions=[rule])
    assert refusal(aws("ec2").delete_security_group, GroupId=named).startswith("DependencyViolation")
    for group in (naming, named):
        aws("ec2").delete_security_group(GroupId=group)


def test_only_an_empty_vpc_is_deleted_and_its_network_acl_with_it(aws: Aws, vpc: str) -> None:
    ec2 = aws("ec2")
    (group,) = make_groups(ec2, vpc, 1)
    assert refusal(ec2.delete_vpc, VpcId=vpc).startswith("DependencyViolation")
    ec2.delete_security_group(GroupId=group)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    assert refusal(ec2.delete_vpc, VpcId=vpc).startswith("DependencyViolation")
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_vpc(VpcId=vpc)
    assert vpc not in {each["VpcId"] for each in ec2.describe_network_acls()["NetworkAcls"]}


def test_a_cluster_keeps_its_vpc_and_its_zones(aws: Aws, used: Used) -> None:
    ec2, zones = aws("ec2"), ["eu-west-1a", "eu-west-1b"]
    third, same_zone = make_subnets(ec2, used.vpc, AvailabilityZone=["eu-west-1c", "eu-west-1b"])
    moved = make_subnets(ec2, make_vpc(ec2), AvailabilityZone=zones)

    def change(subnets: list[str]) -> dict[str, Any]:
        return {"name": used.cluster, "resourcesVpcConfig": {"subnetIds": subnets}}

    update = aws("eks").update_cluster_config
    for subnets in ([used.subnets[0], third], moved):
        assert refusal(update, **change(subnets)).startswith("InvalidParameterException")
    update(**change([used.subnets[0], same_zone]))


def test_a_file_system_has_mount_targets_in_one_vpc(aws: Aws, name: str, subnets: list[str]) -> None:
    efs, ec2 = aws("efs"), aws("ec2")
    system = {"FileSystemId": efs.create_file_system(CreationToken=name)["FileSystemId"]}
    efs.create_mount_target(**system, SubnetId=subnets[0])
    (elsewhere,) = make_subnets(ec2, make_vpc(ec2), AvailabilityZone=["eu-west-1b"])
    assert refusal(efs.create_mount_target, **system, SubnetId=elsewhere).startswith("MountTargetConflict")
    efs.create_mount_target(**system, SubnetId=subnets[1])
