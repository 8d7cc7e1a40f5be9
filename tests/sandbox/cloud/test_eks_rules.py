"""Requests that EKS rejects are rejected by the emulated AWS too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.iam import account_decides

ACCOUNT = "123456789012"
ROOT = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
Aws = Callable[[str], Any]


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


def test_the_key_of_a_log_group_can_change(aws: Aws) -> None:
    group, key = {"logGroupName": "/keys"}, f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1"

    def key_of() -> str | None:
        return aws("logs").describe_log_groups(logGroupNamePrefix="/keys")["logGroups"][0].get("kmsKeyId")  # type: ignore[no-any-return]

    aws("logs").create_log_group(**group)
    aws("logs").associate_kms_key(**group, kmsKeyId=key)
    assert key_of() == key
    aws("logs").disassociate_kms_key(**group)
    assert key_of() is None
    aws("logs").delete_log_group(**group)
