"""Requests that EKS rejects are rejected by the emulated AWS too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from infra.encryption import key_policy
from infra.iam import account_decides
from tests.emulator.cloud.conftest import ACCOUNT, Aws, make_subnets, make_vpc, refusal

ROOT = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
FOR_AWS = {"Action": "kms:CreateGrant", "Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}}}


@pytest.mark.parametrize(
    ("statement", "accepted"),
    [(account_decides(ACCOUNT, "aws"), True), (FOR_AWS, False), ({"Action": "kms:CreateGrant"}, True)],
)
def test_a_cluster_with_encrypted_secrets_needs_a_grant_without_conditions(
    aws: Aws, request_: dict[str, Any], statement: Mapping[str, Any], accepted: bool
) -> None:
    describe = {"Effect": "Allow", "Principal": ROOT, "Action": ["kms:DescribeKey"], "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [describe, {**describe, **statement}]}
    key = aws("kms").create_key(Policy=json.dumps(policy))["KeyMetadata"]["Arn"]
    encrypted = {**request_, "encryptionConfig": [{"provider": {"keyArn": key}, "resources": ["secrets"]}]}
    if accepted:
        aws("eks").create_cluster(**encrypted)
    else:
        assert "is not authorized to perform: kms:CreateGrant" in refusal(aws("eks").create_cluster, **encrypted)


def test_a_node_group_has_at_most_450_nodes(aws: Aws, cluster: dict[str, Any], subnets: list[str], role: str) -> None:
    named = {"clusterName": cluster["name"], "nodegroupName": "g"}
    group = {**named, "nodeRole": role, "subnets": subnets}
    large, small = ({"minSize": size, "maxSize": size, "desiredSize": size} for size in (451, 450))
    assert "451" in refusal(aws("eks").create_nodegroup, **group, scalingConfig=large)
    aws("eks").create_nodegroup(**group, scalingConfig=small)
    assert "451" in refusal(aws("eks").update_nodegroup_config, **named, scalingConfig=large)


def addon(aws: Aws, group: Mapping[str, Any], name: str, **given: Any) -> str:
    """Create an add-on of the cluster and return its status."""
    return str(aws("eks").create_addon(clusterName=group["clusterName"], addonName=name, **given)["addon"]["status"])


def test_nodes_need_the_network_plugin_and_coredns_needs_nodes(aws: Aws, bare: dict[str, Any]) -> None:
    eks, named = aws("eks"), {"clusterName": bare["clusterName"], "nodegroupName": "g"}

    def status_of(name: str) -> str:
        return str(eks.describe_addon(clusterName=bare["clusterName"], addonName=name)["addon"]["status"])

    assert eks.create_nodegroup(**bare)["nodegroup"]["status"] == "CREATE_FAILED"
    eks.delete_nodegroup(**named)
    created = [addon(aws, bare, name) for name in ("vpc-cni", "kube-proxy", "coredns")]
    assert created == ["ACTIVE", "ACTIVE", "DEGRADED"]
    assert eks.create_nodegroup(**bare)["nodegroup"]["status"] == "ACTIVE"
    assert status_of("coredns") == "ACTIVE"
    eks.update_nodegroup_config(**named, scalingConfig={"minSize": 0, "maxSize": 1, "desiredSize": 0})
    assert (status_of("coredns"), status_of("vpc-cni")) == ("DEGRADED", "ACTIVE")


def test_a_network_plugin_that_is_deleted_before_the_nodes_leaves_interfaces_behind(
    aws: Aws, bare: dict[str, Any]
) -> None:
    eks, ec2, (subnet,) = aws("eks"), aws("ec2"), bare["subnets"]
    addon(aws, bare, "vpc-cni")
    eks.create_nodegroup(**bare)
    eks.delete_addon(clusterName=bare["clusterName"], addonName="vpc-cni")
    eks.delete_nodegroup(clusterName=bare["clusterName"], nodegroupName="g")
    (left,) = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["NetworkInterfaces"]
    eks.delete_cluster(name=bare["clusterName"])
    assert "has dependencies" in refusal(ec2.delete_subnet, SubnetId=subnet)
    (group,) = left["Groups"]
    assert "has a dependent object" in refusal(ec2.delete_security_group, GroupId=group["GroupId"])


def test_add_ons_are_checked(aws: Aws, cluster: dict[str, Any]) -> None:
    """An add-on does not overwrite a self-managed copy unless told to."""
    eks, here = aws("eks"), {"clusterName": cluster["name"]}
    assert addon(aws, here, "kube-proxy") == "CREATE_FAILED"
    assert addon(aws, here, "vpc-cni", resolveConflicts="OVERWRITE") == "ACTIVE"
    assert refusal(eks.create_addon, **here, addonName="none-such").startswith("InvalidParameterException")
    assert refusal(eks.create_addon, **here, addonName="vpc-cni").startswith("ResourceInUseException")


def test_versions_of_add_ons_fit_the_kubernetes_version(aws: Aws, bare: dict[str, Any]) -> None:
    eks, cluster = aws("eks"), bare["clusterName"]

    def default(kubernetes: str) -> str:
        (found,) = eks.describe_addon_versions(addonName="kube-proxy", kubernetesVersion=kubernetes)["addons"]
        versions = [each for each in found["addonVersions"] if each["compatibilities"][0]["defaultVersion"]]
        return str(versions[0]["addonVersion"])

    old, new = default("1.34"), default("1.35")
    assert old != new
    update = {"clusterName": cluster, "addonName": "kube-proxy", "addonVersion": new}
    assert refusal(eks.create_addon, **update).endswith("Addon version specified is not supported")
    addon(aws, bare, "kube-proxy", addonVersion=old)
    assert refusal(eks.update_addon, **update).endswith("Addon version specified is not supported")
    assert "minor version update" in refusal(eks.update_cluster_version, name=cluster, version="1.36")
    eks.update_cluster_version(name=cluster, version="1.35")
    eks.update_addon(**update)
    assert eks.describe_addon_versions(addonName="kube-proxy", kubernetesVersion="1.20")["addons"] == []


def test_a_control_plane_needs_two_zones_with_capacity(aws: Aws, name: str, role: str) -> None:
    ec2, create = aws("ec2", "us-east-1"), aws("eks", "us-east-1").create_cluster
    subnets = make_subnets(ec2, make_vpc(ec2), AvailabilityZoneId=["use1-az1", "use1-az3"])
    for ids, message in ((subnets, "does not currently have sufficient capacity"), (subnets[:1], "two")):
        assert message in refusal(create, name=name, roleArn=role, resourcesVpcConfig={"subnetIds": ids})


@pytest.mark.parametrize("capacity", ["ON_DEMAND", "SPOT"])
def test_each_zone_of_a_node_group_must_offer_each_type(aws: Aws, name: str, role: str, capacity: str) -> None:
    eks, ec2 = aws("eks", "us-west-2"), aws("ec2", "us-west-2")
    first, second, without_m4 = make_subnets(
        ec2, make_vpc(ec2), AvailabilityZoneId=["usw2-az1", "usw2-az2", "usw2-az4"]
    )
    eks.create_cluster(name=name, roleArn=role, resourcesVpcConfig={"subnetIds": [first, second, without_m4]})
    group = {"clusterName": name, "nodegroupName": "g", "nodeRole": role, "capacityType": capacity}
    types = {"instanceTypes": ["m6i.large", "m4.large"]}
    assert "Your requested instance type (m4.large) is not supported" in refusal(
        eks.create_nodegroup, **group, **types, subnets=[first, without_m4]
    )
    eks.create_nodegroup(**group, **types, subnets=[first, second])


def test_each_cluster_has_its_own_issuer_and_a_security_group_in_its_vpc(
    aws: Aws, cluster: dict[str, Any], request_: dict[str, Any], vpc: str
) -> None:
    place = cluster["resourcesVpcConfig"]
    (group,) = aws("ec2").describe_security_groups(GroupIds=[place["clusterSecurityGroupId"]])["SecurityGroups"]
    assert (place["vpcId"], group["VpcId"]) == (vpc, vpc)
    assert cluster["identity"]["oidc"]["issuer"].startswith("https://oidc.eks.eu-west-1.amazonaws.com/id/")
    other = aws("eks").create_cluster(**{**request_, "name": f"{cluster['name']}-2"})["cluster"]
    assert other["identity"] != cluster["identity"]


def test_creator_and_nodes_of_a_cluster_get_access_entries(
    aws: Aws, cluster: dict[str, Any], subnets: list[str], role: str
) -> None:
    eks, here = aws("eks"), {"clusterName": cluster["name"]}
    (creator,) = eks.list_access_entries(**here)["accessEntries"]
    (policy,) = eks.list_associated_access_policies(**here, principalArn=creator)["associatedAccessPolicies"]
    assert policy["policyArn"].endswith("/AmazonEKSClusterAdminPolicy")
    eks.create_nodegroup(**here, nodegroupName="g", nodeRole=role, subnets=subnets)
    assert eks.describe_access_entry(**here, principalArn=role)["accessEntry"]["type"] == "EC2_LINUX"
    eks.delete_nodegroup(**here, nodegroupName="g")
    assert eks.list_access_entries(**here)["accessEntries"] == [creator]


def test_access_entries_are_checked(aws: Aws, cluster: dict[str, Any], role: str) -> None:
    eks, entry = aws("eks"), {"clusterName": cluster["name"], "principalArn": role}
    nobody = {**entry, "principalArn": f"arn:aws:iam::{ACCOUNT}:role/nobody"}
    assert refusal(eks.create_access_entry, **nobody).startswith("InvalidParameterException")
    eks.create_access_entry(**entry)
    assert refusal(eks.create_access_entry, **entry).startswith("ResourceInUseException")
    wrong = {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess", "accessScope": {"type": "cluster"}}
    assert refusal(eks.associate_access_policy, **entry, **wrong).startswith("InvalidParameterException")


def test_an_update_changes_only_the_given_fields_and_can_be_described(aws: Aws, cluster: dict[str, Any]) -> None:
    eks, name = aws("eks"), cluster["name"]
    change = {"endpointPrivateAccess": True}
    update = eks.update_cluster_config(name=name, resourcesVpcConfig=change)["update"]
    assert eks.describe_update(name=name, updateId=update["id"])["update"]["status"] == "Successful"
    assert eks.describe_cluster(name=name)["cluster"]["resourcesVpcConfig"] == cluster["resourcesVpcConfig"] | change
    for types, enabled in ((["api", "audit"], True), (["audit"], False)):
        eks.update_cluster_config(name=name, logging={"clusterLogging": [{"types": types, "enabled": enabled}]})
    setups = eks.describe_cluster(name=name)["cluster"]["logging"]["clusterLogging"]
    assert [each["types"] for each in setups if each["enabled"]] == [["api"]]


def test_the_key_of_a_log_group_can_change(aws: Aws) -> None:
    logs, group = aws("logs"), {"logGroupName": "/keys"}
    policy = key_policy(ACCOUNT, "aws", "amazonaws.com", "eu-west-1", "/keys")
    document = json.dumps({"Version": "2012-10-17", "Statement": policy})
    key = aws("kms").create_key(Policy=document)["KeyMetadata"]["Arn"]
    logs.create_log_group(**group)
    for change, expected in (({"kmsKeyId": key}, key), ({}, None)):
        (logs.associate_kms_key if change else logs.disassociate_kms_key)(**group, **change)
        (found,) = logs.describe_log_groups(logGroupNamePrefix="/keys")["logGroups"]
        assert found.get("kmsKeyId") == expected
