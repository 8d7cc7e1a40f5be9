"""The patches of moto: boto clients and the official provider get the answers that AWS gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.emulator.cloud.conftest import Aws, make_groups, make_vpc, refusal

REGION = "eu-west-1"


def test_a_hosted_zone_with_a_vpc_is_private(aws: Aws, name: str, vpc: str) -> None:
    """The official provider does not send PrivateZone, which moto requires."""
    route53 = aws("route53")
    places = [{"VPCRegion": REGION, "VPCId": each} for each in (vpc, make_vpc(aws("ec2")))]
    config = {"Comment": "Managed by Pulumi"}
    created = route53.create_hosted_zone(Name=name, CallerReference=name, HostedZoneConfig=config, VPC=places[0])
    zone = created["HostedZone"]
    assert zone["Config"]["PrivateZone"] is True
    route53.associate_vpc_with_hosted_zone(HostedZoneId=zone["Id"], VPC=places[1])
    answer = route53.get_hosted_zone(Id=zone["Id"])
    assert answer["HostedZone"]["Config"] == {"Comment": "Managed by Pulumi", "PrivateZone": True}
    assert answer["VPCs"] == places
    public = route53.create_hosted_zone(Name="example.org", CallerReference=f"{name}-public")["HostedZone"]
    assert public["Config"]["PrivateZone"] is False


def test_a_rule_for_all_protocols_has_no_user_id_and_changes_without_ports(aws: Aws, vpc: str) -> None:
    ec2 = aws("ec2")
    group, source, other = make_groups(ec2, vpc, 3)
    filters = [{"Name": "group-id", "Values": [group]}]
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": source}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])

    def rule() -> Any:
        rules = ec2.describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
        (found,) = [each for each in rules if not each["IsEgress"]]
        return found

    # The source is of the same account.
    assert rule()["ReferencedGroupInfo"] == {"GroupId": source}
    change = {"IpProtocol": "-1", "ReferencedGroupId": other}
    changes = [{"SecurityGroupRuleId": rule()["SecurityGroupRuleId"], "SecurityGroupRule": change}]
    ec2.modify_security_group_rules(GroupId=group, SecurityGroupRules=changes)
    assert (rule()["ReferencedGroupInfo"], rule()["IpProtocol"]) == ({"GroupId": other}, "-1")


def test_a_key_returns_its_rotation_period(aws: Aws) -> None:
    kms = aws("kms")
    key = {"KeyId": kms.create_key()["KeyMetadata"]["KeyId"]}
    assert "RotationPeriodInDays" not in kms.get_key_rotation_status(**key)
    for given, days in (({}, 365), ({"RotationPeriodInDays": 90}, 90)):
        kms.enable_key_rotation(**key, **given)
        assert kms.get_key_rotation_status(**key)["RotationPeriodInDays"] == days


@pytest.mark.parametrize("region", [REGION, "us-east-1"])
def test_tags_of_a_new_bucket_are_stored(aws: Aws, name: str, region: str) -> None:
    tags = [{"Key": "project", "Value": "paddle"}, {"Key": "stack", "Value": "dev"}]
    place = {} if region == "us-east-1" else {"LocationConstraint": region}
    s3 = aws("s3", region)
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={**place, "Tags": tags})
    assert sorted(s3.get_bucket_tagging(Bucket=name)["TagSet"], key=lambda tag: str(tag["Key"])) == tags


@pytest.fixture
def bucket(aws: Aws, name: str) -> str:
    aws("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


def test_a_bucket_policy_that_requires_tls_allows_requests_and_a_plain_deny_does_not(aws: Aws, bucket: str) -> None:
    s3, everything = aws("s3"), {"Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}

    def write_policy(**more: Any) -> None:
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", **everything, **more}]}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

    write_policy(Condition={"Bool": {"aws:SecureTransport": "false"}})
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    write_policy()
    assert refusal(s3.put_object, Bucket=bucket, Key="a", Body=b"x").startswith("403")


def test_a_bucket_with_suspended_versioning_deletes_the_named_version(aws: Aws, bucket: str) -> None:
    s3 = aws("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first, second = (s3.put_object(Bucket=bucket, Key="a", Body=b"x")["VersionId"] for _ in range(2))
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    s3.delete_object(Bucket=bucket, Key="a", VersionId=first)
    assert [each["VersionId"] for each in s3.list_object_versions(Bucket=bucket)["Versions"]] == [second]


def test_a_permissions_boundary_must_exist(aws: Aws, name: str, role: str) -> None:
    iam, missing = aws("iam"), {"PermissionsBoundary": "arn:aws:iam::123456789012:policy/missing"}
    new = {"RoleName": f"{name}-2", "AssumeRolePolicyDocument": "{}"}
    assert refusal(iam.create_role, **new, **missing).startswith("NoSuchEntity")
    assert refusal(iam.put_role_permissions_boundary, RoleName=name, **missing).startswith("NoSuchEntity")
