"""Keys that AWS services reject are rejected by the emulated AWS too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from infra.encryption import key_policy
from tests.emulator.cloud.conftest import ACCOUNT, Aws, addon, refusal

REGION, GROUP = "eu-west-1", "/aws/eks/key-rules/cluster"
POLICY = {each["Sid"]: each for each in key_policy(ACCOUNT, "aws", "amazonaws.com", REGION, GROUP)}


def make_key(aws: Aws, *sids: str, **given: Any) -> str:
    """A key whose policy has only these statements, or all of them."""
    policy = {"Version": "2012-10-17", "Statement": [POLICY[sid] for sid in sids or POLICY]}
    return str(aws("kms").create_key(Policy=json.dumps(policy), **given)["KeyMetadata"]["Arn"])


def disabled(aws: Aws) -> str:
    key = make_key(aws)
    aws("kms").disable_key(KeyId=key.rpartition("/")[2])
    return key


def pending_deletion(aws: Aws) -> str:
    key = make_key(aws)
    aws("kms").schedule_key_deletion(KeyId=key.rpartition("/")[2])
    return key


def asymmetric(aws: Aws) -> str:
    return make_key(aws, KeySpec="RSA_2048", KeyUsage="ENCRYPT_DECRYPT")


def missing(_: Aws) -> str:
    return f"arn:aws:kms:{REGION}:{ACCOUNT}:key/none"


UNUSABLE: Mapping[str, Callable[[Aws], str]] = {
    "state Disabled": disabled,
    "state PendingDeletion": pending_deletion,
    "not a symmetric": asymmetric,
    "does not exist": missing,
}


@pytest.mark.parametrize("why", UNUSABLE)
def test_a_file_system_and_a_cluster_need_a_usable_key(aws: Aws, subnets: list[str], role: str, why: str) -> None:
    key = UNUSABLE[why](aws)
    efs = {"CreationToken": why.replace(" ", "-"), "Encrypted": True, "KmsKeyId": key}
    assert why in refusal(aws("efs").create_file_system, **efs)
    secrets = [{"provider": {"keyArn": key}, "resources": ["secrets"]}]
    cluster = {"name": "key-rules", "roleArn": role, "resourcesVpcConfig": {"subnetIds": subnets}}
    assert why in refusal(aws("eks").create_cluster, **cluster, encryptionConfig=secrets)


@pytest.mark.parametrize("why", UNUSABLE)
def test_a_log_group_needs_a_usable_key(aws: Aws, why: str) -> None:
    refused = refusal(aws("logs").create_log_group, logGroupName=GROUP, kmsKeyId=UNUSABLE[why](aws))
    assert refused == "The specified KMS key does not exist or is disabled."


def test_the_key_policy_must_allow_the_log_group(aws: Aws) -> None:
    logs = aws("logs")
    without = make_key(aws, "EnableIamPolicies", "WorkerDisks", "WorkerDiskGrants")
    assert "is not allowed" in refusal(logs.create_log_group, logGroupName=GROUP, kmsKeyId=without)
    logs.create_log_group(logGroupName=GROUP, kmsKeyId=make_key(aws))
    logs.create_log_group(logGroupName="/other")
    assert "is not allowed" in refusal(logs.associate_kms_key, logGroupName="/other", kmsKeyId=make_key(aws))
    assert "is not allowed" in refusal(logs.associate_kms_key, logGroupName=GROUP, kmsKeyId=without)
    for name in (GROUP, "/other"):
        logs.delete_log_group(logGroupName=name)


def start(aws: Aws, bare: Mapping[str, Any], key: str, capacity: str) -> Mapping[str, Any]:
    """Create a node group whose disks are encrypted with this key, and delete it again."""
    template = bare["launchTemplate"]["id"]
    disks = [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "KmsKeyId": key}}]
    version = aws("ec2").create_launch_template_version(
        LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"BlockDeviceMappings": disks}
    )["LaunchTemplateVersion"]["VersionNumber"]
    given = {**bare, "launchTemplate": {"id": template, "version": str(version)}, "capacityType": capacity}
    found: Mapping[str, Any] = aws("eks").create_nodegroup(**given)["nodegroup"]
    aws("eks").delete_nodegroup(clusterName="eks-rules", nodegroupName="g")
    return found


@pytest.mark.parametrize("capacity", ["ON_DEMAND", "SPOT"])
def test_workers_start_only_with_a_key_that_their_launching_services_can_use(
    aws: Aws, bare: dict[str, Any], capacity: str
) -> None:
    addon(aws, "vpc-cni")
    assert start(aws, bare, make_key(aws), capacity)["status"] == "ACTIVE"
    for left_out in ("WorkerDisks", "WorkerDiskGrants"):
        sids = [sid for sid in POLICY if sid != left_out]
        failed = start(aws, bare, make_key(aws, *sids), capacity)
        assert failed["status"] == "CREATE_FAILED"
        (issue,) = failed["health"]["issues"]
        assert (issue["code"], "Client error on launch" in issue["message"]) == ("AsgInstanceLaunchFailures", True)
    (issue,) = start(aws, bare, disabled(aws), capacity)["health"]["issues"]
    assert issue["message"].startswith("Client.InvalidKMSKey.InvalidState")


def test_only_spot_workers_need_the_role_of_spot(aws: Aws, bare: dict[str, Any]) -> None:
    addon(aws, "vpc-cni")
    text = json.dumps({"Version": "2012-10-17", "Statement": list(POLICY.values())})
    without = text.replace("spot.amazonaws.com/AWSServiceRoleForEC2Spot", "other")
    key = aws("kms").create_key(Policy=without)["KeyMetadata"]["Arn"]
    assert start(aws, bare, key, "ON_DEMAND")["status"] == "ACTIVE"
    assert start(aws, bare, key, "SPOT")["status"] == "CREATE_FAILED"
