"""The patches of moto: boto clients get the answers that AWS gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

Aws = Callable[[str], Any]
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})


@pytest.fixture
def network(aws: Aws) -> Iterator[dict[str, Any]]:
    """A VPC with two subnets."""
    ec2 = aws("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    zones = ("eu-west-1a", "eu-west-1b")
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{i}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for i, zone in enumerate(zones)
    ]
    yield {"vpc": vpc, "subnets": subnets}
    for each in subnets:
        ec2.delete_subnet(SubnetId=each)
    ec2.delete_vpc(VpcId=vpc)


@pytest.fixture
def role(aws: Aws) -> Iterator[str]:
    created = aws("iam").create_role(RoleName="patched", AssumeRolePolicyDocument=TRUST)["Role"]
    yield created["Arn"]
    aws("iam").delete_role(RoleName="patched")


@pytest.fixture
def cluster(aws: Aws, network: dict[str, Any], role: str) -> Iterator[dict[str, Any]]:
    created = aws("eks").create_cluster(
        name="patched",
        roleArn=role,
        version="1.34",
        resourcesVpcConfig={"subnetIds": network["subnets"]},
        accessConfig={"authenticationMode": "API"},
    )
    yield created["cluster"]
    for group in aws("eks").list_nodegroups(clusterName="patched")["nodegroups"]:
        aws("eks").delete_nodegroup(clusterName="patched", nodegroupName=group)
    aws("eks").delete_cluster(name="patched")


def code(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_each_cluster_has_its_own_security_group_and_issuer(
    aws: Aws, cluster: dict[str, Any], network: dict[str, Any]
) -> None:
    place = cluster["resourcesVpcConfig"]
    assert place["vpcId"] == network["vpc"]
    groups = aws("ec2").describe_security_groups(GroupIds=[place["clusterSecurityGroupId"]])["SecurityGroups"]
    assert groups[0]["VpcId"] == network["vpc"]
    assert cluster["identity"]["oidc"]["issuer"].startswith("https://oidc.eks.eu-west-1.amazonaws.com/id/")
    other = aws("eks").create_cluster(
        name="other", roleArn=cluster["roleArn"], resourcesVpcConfig={"subnetIds": network["subnets"]}
    )["cluster"]
    assert other["identity"] != cluster["identity"]
    aws("eks").delete_cluster(name="other")
    left = [each["GroupId"] for each in aws("ec2").describe_security_groups()["SecurityGroups"]]
    assert other["resourcesVpcConfig"]["clusterSecurityGroupId"] not in left


def test_a_cluster_needs_two_zones(aws: Aws, network: dict[str, Any], role: str) -> None:
    one = {"subnetIds": network["subnets"][:1]}
    create = aws("eks").create_cluster
    assert code(lambda: create(name="x", roleArn=role, resourcesVpcConfig=one)) == "InvalidParameterException"


def test_creator_and_nodes_of_a_cluster_get_access_entries(
    aws: Aws, cluster: dict[str, Any], network: dict[str, Any], role: str
) -> None:
    eks = aws("eks")
    entries = eks.list_access_entries(clusterName="patched")["accessEntries"]
    assert len(entries) == 1
    admin = {"clusterName": "patched", "principalArn": entries[0]}
    policies = eks.list_associated_access_policies(**admin)["associatedAccessPolicies"]
    assert [each["policyArn"].rpartition("/")[2] for each in policies] == ["AmazonEKSClusterAdminPolicy"]
    group = {"clusterName": "patched", "nodegroupName": "g"}
    eks.create_nodegroup(**group, nodeRole=role, subnets=network["subnets"])
    assert eks.describe_access_entry(clusterName="patched", principalArn=role)["accessEntry"]["type"] == "EC2_LINUX"
    eks.delete_nodegroup(**group)
    assert eks.list_access_entries(clusterName="patched")["accessEntries"] == entries


def test_access_entries_are_checked(aws: Aws, cluster: dict[str, Any], role: str) -> None:
    eks, here = aws("eks"), {"clusterName": "patched"}
    nobody = "arn:aws:iam::123456789012:role/nobody"
    assert code(lambda: eks.create_access_entry(**here, principalArn=nobody)) == "InvalidParameterException"
    eks.create_access_entry(**here, principalArn=role)
    assert code(lambda: eks.create_access_entry(**here, principalArn=role)) == "ResourceInUseException"
    entry = here | {"principalArn": role}
    wrong = {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess", "accessScope": {"type": "cluster"}}
    assert code(lambda: eks.associate_access_policy(**entry, **wrong)) == "InvalidParameterException"
    eks.delete_access_entry(**entry)
    assert code(lambda: eks.describe_access_entry(**entry)) == "ResourceNotFoundException"


def test_a_node_group_returns_its_creation_parameters(
    aws: Aws, cluster: dict[str, Any], network: dict[str, Any], role: str
) -> None:
    update = {"maxUnavailable": 2}
    created = aws("eks").create_nodegroup(
        clusterName="patched", nodegroupName="g", nodeRole=role, subnets=network["subnets"], updateConfig=update
    )["nodegroup"]
    assert "remoteAccess" not in created
    assert created["version"] == "1.34"
    assert created["updateConfig"] == update


def test_an_update_changes_only_the_given_fields_and_can_be_described(aws: Aws, cluster: dict[str, Any]) -> None:
    eks = aws("eks")
    change = {"endpointPrivateAccess": True}
    update = eks.update_cluster_config(name="patched", resourcesVpcConfig=change)["update"]
    assert eks.describe_update(name="patched", updateId=update["id"])["update"]["status"] == "Successful"
    now = eks.describe_cluster(name="patched")["cluster"]["resourcesVpcConfig"]
    assert now == cluster["resourcesVpcConfig"] | change
    on = {"clusterLogging": [{"types": ["api", "audit"], "enabled": True}]}
    off = {"clusterLogging": [{"types": ["audit"], "enabled": False}]}
    for logging in (on, off):
        eks.update_cluster_config(name="patched", logging=logging)
    setups = eks.describe_cluster(name="patched")["cluster"]["logging"]["clusterLogging"]
    assert [each["types"] for each in setups if each["enabled"]] == [["api"]]


def test_add_ons_are_created_tagged_and_deleted(aws: Aws, cluster: dict[str, Any]) -> None:
    eks, addon = aws("eks"), {"clusterName": "patched", "addonName": "eks-pod-identity-agent"}
    assert code(lambda: eks.create_addon(**addon | {"addonName": "none-such"})) == "InvalidParameterException"
    assert eks.create_addon(**addon, tags={"a": "b"})["addon"]["status"] == "ACTIVE"
    assert code(lambda: eks.create_addon(**addon)) == "ResourceInUseException"
    eks.tag_resource(resourceArn=eks.describe_addon(**addon)["addon"]["addonArn"], tags={"c": "d"})
    assert eks.describe_addon(**addon)["addon"]["tags"] == {"a": "b", "c": "d"}
    assert eks.list_addons(clusterName="patched")["addons"] == ["eks-pod-identity-agent"]
    eks.delete_addon(**addon)
    assert code(lambda: eks.describe_addon(**addon)) == "ResourceNotFoundException"


def test_a_private_zone_returns_its_vpcs(aws: Aws, network: dict[str, Any]) -> None:
    vpc = {"VPCId": network["vpc"], "VPCRegion": "eu-west-1"}
    private = {"HostedZoneConfig": {"PrivateZone": True}, "VPC": vpc}
    zone = aws("route53").create_hosted_zone(Name="private", CallerReference="1", **private)["HostedZone"]["Id"]
    assert aws("route53").get_hosted_zone(Id=zone)["VPCs"] == [vpc]
    aws("route53").delete_hosted_zone(Id=zone)


def test_only_an_empty_vpc_is_deleted_and_its_network_acl_with_it(aws: Aws) -> None:
    ec2 = aws("ec2")
    before = ec2.describe_network_acls()["NetworkAcls"]
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc)["GroupId"]
    assert code(lambda: ec2.delete_vpc(VpcId=vpc)) == "DependencyViolation"
    ec2.delete_security_group(GroupId=group)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    assert code(lambda: ec2.delete_vpc(VpcId=vpc)) == "DependencyViolation"
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)
    assert ec2.describe_network_acls()["NetworkAcls"] == before


def test_tags_of_a_launch_template_are_separate_from_tags_of_its_instances(aws: Aws) -> None:
    ec2 = aws("ec2")
    own = [{"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "b"}]}]
    started = [{"ResourceType": "instance", "Tags": [{"Key": "c", "Value": "d"}]}]
    created = ec2.create_launch_template(
        LaunchTemplateName="patched", LaunchTemplateData={"TagSpecifications": started}, TagSpecifications=own
    )["LaunchTemplate"]
    identity = created["LaunchTemplateId"]
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=identity)["LaunchTemplateVersions"]
    assert created["Tags"] == own[0]["Tags"]
    assert versions[0]["LaunchTemplateData"]["TagSpecifications"] == started
    ec2.delete_launch_template(LaunchTemplateId=identity)


def test_a_key_returns_its_rotation_period(aws: Aws) -> None:
    kms = aws("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    assert "RotationPeriodInDays" not in kms.get_key_rotation_status(KeyId=key)
    kms.enable_key_rotation(KeyId=key)
    assert kms.get_key_rotation_status(KeyId=key)["RotationPeriodInDays"] == 365
    kms.enable_key_rotation(KeyId=key, RotationPeriodInDays=90)
    assert kms.get_key_rotation_status(KeyId=key)["RotationPeriodInDays"] == 90
    kms.schedule_key_deletion(KeyId=key)


@pytest.fixture
def bucket(aws: Aws) -> Iterator[str]:
    where = {"LocationConstraint": "eu-west-1"}
    aws("s3").create_bucket(Bucket="patched", CreateBucketConfiguration=where)
    yield "patched"
    aws("s3").delete_bucket(Bucket="patched")


def test_a_bucket_policy_that_requires_tls_allows_requests_and_a_plain_deny_does_not(aws: Aws, bucket: str) -> None:
    s3, everything = aws("s3"), {"Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    tls = {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    for statement, allowed in ((everything | tls, True), (everything, False)):
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", **statement}]}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        if allowed:
            s3.put_object(Bucket=bucket, Key="a", Body=b"x")
        else:
            assert code(lambda: s3.put_object(Bucket=bucket, Key="a", Body=b"x")) == "403"
    s3.delete_bucket_policy(Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key="a")


def test_a_bucket_with_suspended_versioning_deletes_the_named_version(aws: Aws, bucket: str) -> None:
    s3 = aws("s3")
    for status in ("Enabled", "Suspended"):
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        if status == "Enabled":
            first, second = (s3.put_object(Bucket=bucket, Key="a", Body=b"x")["VersionId"] for _ in range(2))
    s3.delete_object(Bucket=bucket, Key="a", VersionId=first)
    assert [each["VersionId"] for each in s3.list_object_versions(Bucket=bucket)["Versions"]] == [second]
    s3.delete_object(Bucket=bucket, Key="a", VersionId=second)
    assert "Versions" not in s3.list_object_versions(Bucket=bucket)


def test_a_permissions_boundary_must_exist(aws: Aws, role: str) -> None:
    iam, named = aws("iam"), {"RoleName": "bounded", "AssumeRolePolicyDocument": TRUST}
    missing = "arn:aws:iam::123456789012:policy/missing"
    anything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    assert code(lambda: iam.create_role(**named, PermissionsBoundary=missing)) == "NoSuchEntity"
    put = lambda: iam.put_role_permissions_boundary(RoleName="patched", PermissionsBoundary=missing)  # noqa: E731
    assert code(put) == "NoSuchEntity"
    policy = iam.create_policy(PolicyName="limit", PolicyDocument=json.dumps(anything))["Policy"]["Arn"]
    iam.create_role(**named, PermissionsBoundary=policy)
    assert iam.get_role(RoleName="bounded")["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"] == policy
    iam.delete_role(RoleName="bounded")
    iam.delete_policy(PolicyArn=policy)
