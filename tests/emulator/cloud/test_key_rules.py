"""Keys that AWS services reject are rejected by the emulated AWS too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from infra.encryption import key_policy
from tests.emulator.cloud.conftest import ACCOUNT, Aws, refusal

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


UNUSABLE: Mapping[str, Callable[[Aws], str]] = {
    "state Disabled": disabled,
    "state PendingDeletion": pending_deletion,
    "not a symmetric": lambda aws: make_key(aws, KeySpec="RSA_2048", KeyUsage="ENCRYPT_DECRYPT"),
    "does not exist": lambda _: f"arn:aws:kms:{REGION}:{ACCOUNT}:key/none",
}


@pytest.mark.parametrize("why", UNUSABLE)
def test_file_systems_clusters_and_log_groups_need_a_usable_key(aws: Aws, request_: dict[str, Any], why: str) -> None:
    key = UNUSABLE[why](aws)
    efs = {"CreationToken": why.replace(" ", "-"), "Encrypted": True, "KmsKeyId": key}
    assert why in refusal(aws("efs").create_file_system, **efs)
    secrets = [{"provider": {"keyArn": key}, "resources": ["secrets"]}]
    assert why in refusal(aws("eks").create_cluster, **request_, encryptionConfig=secrets)
    refused = refusal(aws("logs").create_log_group, logGroupName=GROUP, kmsKeyId=key)
    assert refused.endswith("The specified KMS key does not exist or is disabled.")


def test_the_key_policy_must_allow_the_log_group(aws: Aws) -> None:
    logs = aws("logs")
    without = make_key(aws, "EnableIamPolicies", "WorkerDisks", "WorkerDiskGrants")
    assert "is not allowed" in refusal(logs.create_log_group, logGroupName=GROUP, kmsKeyId=without)
    logs.create_log_group(logGroupName=GROUP, kmsKeyId=make_key(aws))
    logs.create_log_group(logGroupName="/other")
    assert "is not allowed" in refusal(logs.associate_kms_key, logGroupName="/other", kmsKeyId=make_key(aws))
    assert "is not allowed" in refusal(logs.associate_kms_key, logGroupName=GROUP, kmsKeyId=without)


def start(aws: Aws, bare: Mapping[str, Any], key: str, capacity: str) -> Mapping[str, Any]:
    """Create a node group whose disks are encrypted with this key, and delete it again."""
    template = bare["launchTemplate"]["id"]
    disks = [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "KmsKeyId": key}}]
    version = aws("ec2").create_launch_template_version(
        LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"BlockDeviceMappings": disks}
    )["LaunchTemplateVersion"]["VersionNumber"]
    given = {**bare, "launchTemplate": {"id": template, "version": str(version)}, "capacityType": capacity}
    found: Mapping[str, Any] = aws("eks").create_nodegroup(**given)["nodegroup"]
    aws("eks").delete_nodegroup(clusterName=bare["clusterName"], nodegroupName="g")
    return found


@pytest.mark.parametrize("capacity", ["ON_DEMAND", "SPOT"])
def test_workers_start_only_with_a_key_that_their_launching_services_can_use(
    aws: Aws, bare: dict[str, Any], capacity: str
) -> None:
    aws("eks").create_addon(clusterName=bare["clusterName"], addonName="vpc-cni")
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
    aws("eks").create_addon(clusterName=bare["clusterName"], addonName="vpc-cni")
    text = json.dumps({"Version": "2012-10-17", "Statement": list(POLICY.values())})
    without = text.replace("spot.amazonaws.com/AWSServiceRoleForEC2Spot", "other")
    key = aws("kms").create_key(Policy=without)["KeyMetadata"]["Arn"]
    assert start(aws, bare, key, "ON_DEMAND")["status"] == "ACTIVE"
    assert start(aws, bare, key, "SPOT")["status"] == "CREATE_FAILED"
