"""The emulated AWS answers the calls of the official provider as AWS does, where moto does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

Aws = Callable[[str], Any]
REGION = "eu-west-1"


@pytest.fixture
def vpcs(aws: Aws) -> Iterator[list[str]]:
    created = [aws("ec2").create_vpc(CidrBlock=f"10.{i}.0.0/16")["Vpc"]["VpcId"] for i in (20, 21)]
    yield created
    for vpc in created:
        aws("ec2").delete_vpc(VpcId=vpc)


@pytest.fixture
def groups(aws: Aws, vpcs: list[str]) -> Iterator[list[str]]:
    """Three security groups in one VPC."""
    ec2 = aws("ec2")
    created = [
        ec2.create_security_group(GroupName=f"group-{i}", Description="test", VpcId=vpcs[0])["GroupId"]
        for i in range(3)
    ]
    yield created
    ec2.revoke_security_group_ingress(
        GroupId=created[0], SecurityGroupRuleIds=[each["SecurityGroupRuleId"] for each in rules(aws, created[0])]
    )
    for group in created:
        ec2.delete_security_group(GroupId=group)


def rules(aws: Aws, group: str) -> list[dict[str, Any]]:
    filters = [{"Name": "group-id", "Values": [group]}]
    found = aws("ec2").describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
    return [each for each in found if not each["IsEgress"]]


def test_hosted_zone_with_a_vpc_is_private(aws: Aws, vpcs: list[str]) -> None:
    first, second = ({"VPCRegion": REGION, "VPCId": vpc} for vpc in vpcs)
    config = {"Comment": "Managed by Pulumi"}
    created = aws("route53").create_hosted_zone(
        Name="paddle", CallerReference="official", HostedZoneConfig=config, VPC=first
    )
    zone = created["HostedZone"]["Id"]
    assert created["HostedZone"]["Config"]["PrivateZone"] is True
    aws("route53").associate_vpc_with_hosted_zone(HostedZoneId=zone, VPC=second)
    answer = aws("route53").get_hosted_zone(Id=zone)
    assert answer["HostedZone"]["Config"] == {"Comment": "Managed by Pulumi", "PrivateZone": True}
    assert answer["VPCs"] == [first, second]
    aws("route53").delete_hosted_zone(Id=zone)


def test_hosted_zone_without_a_vpc_is_public(aws: Aws) -> None:
    created = aws("route53").create_hosted_zone(Name="example.org", CallerReference="public")["HostedZone"]
    assert created["Config"]["PrivateZone"] is False
    aws("route53").delete_hosted_zone(Id=created["Id"])


def test_reference_to_a_group_of_the_same_account_has_no_user_id(aws: Aws, groups: list[str]) -> None:
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": groups[1]}]}
    aws("ec2").authorize_security_group_ingress(GroupId=groups[0], IpPermissions=[permission])
    (rule,) = rules(aws, groups[0])
    assert rule["ReferencedGroupInfo"] == {"GroupId": groups[1]}


def test_rule_for_all_protocols_changes_without_ports(aws: Aws, groups: list[str]) -> None:
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": groups[1]}]}
    answer = aws("ec2").authorize_security_group_ingress(GroupId=groups[0], IpPermissions=[permission])
    identity = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
    change = {"IpProtocol": "-1", "ReferencedGroupId": groups[2]}
    aws("ec2").modify_security_group_rules(
        GroupId=groups[0], SecurityGroupRules=[{"SecurityGroupRuleId": identity, "SecurityGroupRule": change}]
    )
    (rule,) = rules(aws, groups[0])
    assert (rule["ReferencedGroupInfo"], rule["IpProtocol"]) == ({"GroupId": groups[2]}, "-1")


def test_source_of_a_rule_changes(aws: Aws, groups: list[str]) -> None:
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    answer = aws("ec2").authorize_security_group_ingress(GroupId=groups[0], IpPermissions=[permission])
    identity = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
    change = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 23, "CidrIpv4": "10.0.0.0/16"}
    aws("ec2").modify_security_group_rules(
        GroupId=groups[0], SecurityGroupRules=[{"SecurityGroupRuleId": identity, "SecurityGroupRule": change}]
    )
    (rule,) = rules(aws, groups[0])
    assert (rule["CidrIpv4"], rule["FromPort"], rule["ToPort"]) == ("10.0.0.0/16", 22, 23)


@pytest.mark.parametrize("region", [REGION, "us-east-1"])
def test_tags_of_a_new_bucket_are_stored(aws: Callable[..., Any], region: str) -> None:
    tags = [{"Key": "project", "Value": "paddle"}, {"Key": "stack", "Value": "dev"}]
    place = {} if region == "us-east-1" else {"LocationConstraint": region}
    aws("s3", region).create_bucket(Bucket="tagged-bucket", CreateBucketConfiguration={**place, "Tags": tags})
    stored = aws("s3", region).get_bucket_tagging(Bucket="tagged-bucket")["TagSet"]
    assert sorted(stored, key=lambda tag: str(tag["Key"])) == tags
    aws("s3", region).delete_bucket(Bucket="tagged-bucket")
