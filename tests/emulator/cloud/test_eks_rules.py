"""Requests that EKS rejects are rejected by the emulated AWS too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from infra.encryption import key_policy
from infra.iam import account_decides
from tests.emulator.cloud.conftest import ACCOUNT, Aws, addon, refusal

ROOT = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}


@pytest.mark.parametrize(
    ("statement", "accepted"),
    [
        (account_decides(ACCOUNT, "aws"), True),
        ({"Action": "kms:CreateGrant", "Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}}}, False),
        ({"Action": "kms:CreateGrant"}, True),
    ],
)
def test_a_cluster_with_encrypted_secrets_needs_a_grant_without_conditions(
    aws: Aws, subnets: list[str], role: str, statement: Mapping[str, Any], accepted: bool
) -> None:
    describe = {"Effect": "Allow", "Principal": ROOT, "Action": ["kms:DescribeKey"], "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [describe, {**describe, **statement}]}
    key = aws("kms").create_key(Policy=json.dumps(policy))["KeyMetadata"]["Arn"]
    cluster = {
        "name": "eks-rules",
        "roleArn": role,
        "resourcesVpcConfig": {"subnetIds": subnets},
        "encryptionConfig": [{"provider": {"keyArn": key}, "resources": ["secrets"]}],
    }
    if accepted:
        aws("eks").create_cluster(**cluster)
        aws("eks").delete_cluster(name="eks-rules")
    else:
        assert "is not authorized to perform: kms:CreateGrant" in refusal(aws("eks").create_cluster, **cluster)


def test_a_node_group_has_at_most_450_nodes(aws: Aws, subnets: list[str], role: str) -> None:
    aws("eks").create_cluster(name="eks-rules", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    group = {"clusterName": "eks-rules", "nodegroupName": "g", "nodeRole": role, "subnets": subnets}
    large, small = ({"minSize": size, "maxSize": size, "desiredSize": size} for size in (451, 450))
    assert "451" in refusal(aws("eks").create_nodegroup, **group, scalingConfig=large)
    aws("eks").create_nodegroup(**group, scalingConfig=small)
    named = {"clusterName": "eks-rules", "nodegroupName": "g"}
    assert "451" in refusal(aws("eks").update_nodegroup_config, **named, scalingConfig=large)
    aws("eks").delete_nodegroup(**named)
    aws("eks").delete_cluster(name="eks-rules")


def status_of(aws: Aws, name: str) -> str:
    return str(aws("eks").describe_addon(clusterName="eks-rules", addonName=name)["addon"]["status"])


def test_nodes_need_the_network_plugin_and_coredns_needs_nodes(aws: Aws, bare: dict[str, Any]) -> None:
    eks = aws("eks")
    assert eks.create_nodegroup(**bare)["nodegroup"]["status"] == "CREATE_FAILED"
    eks.delete_nodegroup(clusterName="eks-rules", nodegroupName="g")
    assert (addon(aws, "vpc-cni"), addon(aws, "kube-proxy"), addon(aws, "coredns")) == ("ACTIVE", "ACTIVE", "DEGRADED")
    assert eks.create_nodegroup(**bare)["nodegroup"]["status"] == "ACTIVE"
    assert status_of(aws, "coredns") == "ACTIVE"
    none = {"minSize": 0, "maxSize": 1, "desiredSize": 0}
    eks.update_nodegroup_config(clusterName="eks-rules", nodegroupName="g", scalingConfig=none)
    assert (status_of(aws, "coredns"), status_of(aws, "vpc-cni")) == ("DEGRADED", "ACTIVE")


def test_a_network_plugin_that_is_deleted_before_the_nodes_leaves_interfaces_behind(
    aws: Aws, bare: dict[str, Any]
) -> None:
    eks, ec2 = aws("eks"), aws("ec2")
    addon(aws, "vpc-cni")
    eks.create_nodegroup(**bare)
    eks.delete_addon(clusterName="eks-rules", addonName="vpc-cni")
    eks.delete_nodegroup(clusterName="eks-rules", nodegroupName="g")
    (subnet,) = bare["subnets"]
    (left,) = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["NetworkInterfaces"]
    assert "has dependencies" in refusal(ec2.delete_subnet, SubnetId=subnet)
    (group,) = left["Groups"]
    assert "has a dependent object" in refusal(ec2.delete_security_group, GroupId=group["GroupId"])


def test_an_add_on_does_not_overwrite_a_self_managed_copy_unless_told_to(
    aws: Aws, subnets: list[str], role: str
) -> None:
    aws("eks").create_cluster(name="eks-rules", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    assert addon(aws, "kube-proxy") == "CREATE_FAILED"
    assert addon(aws, "vpc-cni", resolveConflicts="OVERWRITE") == "ACTIVE"
    aws("eks").delete_cluster(name="eks-rules")


def test_versions_of_add_ons_fit_the_kubernetes_version(aws: Aws, bare: dict[str, Any]) -> None:
    def default(kubernetes: str) -> str:
        asked = {"addonName": "kube-proxy", "kubernetesVersion": kubernetes}
        (found,) = aws("eks").describe_addon_versions(**asked)["addons"]
        versions = [each for each in found["addonVersions"] if each["compatibilities"][0]["defaultVersion"]]
        return str(versions[0]["addonVersion"])

    eks = aws("eks")
    old, new = default("1.34"), default("1.35")
    assert old != new
    refused = refusal(eks.create_addon, clusterName="eks-rules", addonName="kube-proxy", addonVersion=new)
    assert refused == "Addon version specified is not supported"
    addon(aws, "kube-proxy", addonVersion=old)
    update = {"clusterName": "eks-rules", "addonName": "kube-proxy", "addonVersion": new}
    assert refusal(eks.update_addon, **update) == "Addon version specified is not supported"
    assert "minor version update" in refusal(eks.update_cluster_version, name="eks-rules", version="1.36")
    eks.update_cluster_version(name="eks-rules", version="1.35")
    eks.update_addon(**update)
    assert eks.describe_addon_versions(addonName="kube-proxy", kubernetesVersion="1.20")["addons"] == []


def in_zones(aws: Aws, region: str, zone_ids: list[str]) -> list[str]:
    """Subnets in these zones of another region."""
    ec2 = aws("ec2", region)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    return [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{i}.0/24", AvailabilityZoneId=zone)["Subnet"]["SubnetId"]
        for i, zone in enumerate(zone_ids)
    ]


def test_a_control_plane_is_not_placed_in_every_zone(aws: Aws, role: str) -> None:
    subnets = in_zones(aws, "us-east-1", ["use1-az1", "use1-az3"])
    cluster = {"name": "eks-rules", "roleArn": role, "resourcesVpcConfig": {"subnetIds": subnets}}
    assert "does not currently have sufficient capacity" in refusal(aws("eks", "us-east-1").create_cluster, **cluster)


@pytest.mark.parametrize("capacity", ["ON_DEMAND", "SPOT"])
def test_each_zone_of_a_node_group_must_offer_each_type(aws: Aws, role: str, capacity: str) -> None:
    eks = aws("eks", "us-west-2")
    with_all, without_m4 = ([f"usw2-az{i}" for i in zones] for zones in ((1, 2), (1, 4)))
    group = {"clusterName": "eks-rules", "nodegroupName": "g", "nodeRole": role, "capacityType": capacity}
    types = ["m6i.large", "m4.large"]
    for zones, accepted in ((with_all, True), (without_m4, False)):
        subnets = in_zones(aws, "us-west-2", zones)
        eks.create_cluster(name="eks-rules", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
        if accepted:
            eks.create_nodegroup(**group, subnets=subnets, instanceTypes=types)
            eks.delete_nodegroup(clusterName="eks-rules", nodegroupName="g")
        else:
            message = refusal(eks.create_nodegroup, **group, subnets=subnets, instanceTypes=types)
            assert message.startswith("Your requested instance type (m4.large) is not supported")
        eks.delete_cluster(name="eks-rules")


def test_the_key_of_a_log_group_can_change(aws: Aws) -> None:
    group = {"logGroupName": "/keys"}
    policy = key_policy(ACCOUNT, "aws", "amazonaws.com", "eu-west-1", "/keys")
    document = json.dumps({"Version": "2012-10-17", "Statement": policy})
    key = aws("kms").create_key(Policy=document)["KeyMetadata"]["Arn"]

    def key_of() -> str | None:
        return aws("logs").describe_log_groups(logGroupNamePrefix="/keys")["logGroups"][0].get("kmsKeyId")  # type: ignore[no-any-return]

    aws("logs").create_log_group(**group)
    aws("logs").associate_kms_key(**group, kmsKeyId=key)
    assert key_of() == key
    aws("logs").disassociate_kms_key(**group)
    assert key_of() is None
    aws("logs").delete_log_group(**group)
