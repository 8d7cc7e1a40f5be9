"""Requests that EKS rejects and moto accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moto.ec2.models import ec2_backends
from moto.eks.exceptions import EKSError, InvalidParameterException, InvalidRequestException

from sandbox.cloud.patches import kms

NODES_PER_GROUP = 450
AUTO_SCALING = "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
SPOT = "spot.amazonaws.com/AWSServiceRoleForEC2Spot"
UNSUPPORTED_ZONE_IDS = ("use1-az3", "usw1-az2", "cac1-az3")


class UnsupportedAvailabilityZoneException(EKSError):  # noqa: N818 (the name of EKS)
    TYPE = "UnsupportedAvailabilityZoneException"
    STATUS = 400


def check_encryption(account: str, region: str, caller: str, encryption_config: Sequence[Mapping[str, Any]]) -> None:
    """EKS creates a grant on the key with the caller's identity, and without kms:GrantIsForAWSResource."""
    for each in encryption_config or []:
        key_arn = each["provider"]["keyArn"]
        if why := kms.why_unusable(account, region, key_arn):
            raise InvalidParameterException(message=why)
        key = kms.find_key(account, region, key_arn)
        root = key_arn.partition(":kms:")[0] + f":iam::{account}:root"
        context = {"aws:PrincipalArn": caller, "kms:CallerAccount": account}
        for action in ("kms:DescribeKey", "kms:CreateGrant"):
            if key and not kms.allows(key.policy, action, ("*", account, caller, root), context):
                raise InvalidRequestException(
                    message=f"User: {caller} is not authorized to perform: {action} on resource: {key_arn}"
                )


def check_cluster_zones(zones: Iterable[tuple[str, str]]) -> None:
    """EKS cannot place a control plane in some zones. `zones` are pairs of a zone's name and id."""
    for name, zone_id in zones:
        if zone_id in UNSUPPORTED_ZONE_IDS:
            raise UnsupportedAvailabilityZoneException(
                message=f"Cannot create cluster because {name}, the targeted availability zone, does not currently "
                "have sufficient capacity to support the cluster."
            )


def check_group_zones(
    zones: Iterable[tuple[str, str]], instance_types: Sequence[str], offers: Iterable[Mapping[str, str]]
) -> None:
    """Every zone of a node group must offer each of its types. `zones` are pairs of a zone's name and id."""
    offered = {(each["Location"], each["InstanceType"]) for each in offers}
    for name, zone_id in zones:
        for instance_type in instance_types:
            if (zone_id, instance_type) not in offered:
                raise InvalidRequestException(
                    message=f"Your requested instance type ({instance_type}) is not supported in your requested "
                    f"Availability Zone ({name})."
                )


def check_subnets(account: str, region: str, cluster: Any, subnet_ids: Sequence[str]) -> None:
    """EKS keeps the VPC and the zones that the cluster was created with."""
    ec2 = ec2_backends[account][region]
    subnets = [ec2.get_subnet(each) for each in subnet_ids]
    if {subnet.vpc_id for subnet in subnets} - {cluster.resources_vpc_config["vpcId"]}:
        raise InvalidParameterException(message="Provided subnets belong to a different VPC than the cluster")
    if {subnet.availability_zone for subnet in subnets} - cluster.zones:
        zones = ", ".join(sorted(cluster.zones))
        raise InvalidParameterException(message=f"Provided subnets must be in the zones of the cluster: {zones}")


def why_disks_fail(account: str, region: str, partition: str, template: Mapping[str, Any], spot: bool) -> str:
    """Why instances of a node group do not start: their disks need keys that the launching services can use.

    These services have roles without permissions for KMS, so the statement for the account is not enough.
    """
    for disk in template.get("BlockDeviceMappings") or []:
        name = (disk.get("Ebs") or {}).get("KmsKeyId")
        why = kms.why_unusable(account, region, name) if name else ""
        if why:
            return f"Client.InvalidKMSKey.InvalidState: {why}"
        key = kms.find_key(account, region, name) if name else None
        for role in (AUTO_SCALING, SPOT) if spot else (AUTO_SCALING,):
            arn = f"arn:{partition}:iam::{account}:role/aws-service-role/{role}"
            context = {"aws:PrincipalArn": arn, "kms:CallerAccount": account, "kms:GrantIsForAWSResource": "true"}
            for action in ("kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext"):
                if key and not kms.allows(key.policy, action, ("*", arn), context):
                    return f"Client.InternalError: Client error on launch: {arn} may not use {action} with {name}"
    return ""


def check_group_size(scaling: Mapping[str, Any] | None) -> None:
    """The default quota for the nodes of one managed node group."""
    most = (scaling or {}).get("maxSize", 1)
    if most > NODES_PER_GROUP:
        raise InvalidRequestException(message=f"maxSize {most} exceeds the limit of {NODES_PER_GROUP} nodes in a group")
    if most < 1:
        raise InvalidParameterException(message="maxSize must be at least 1")


def check_upgrade(old: str, new: str) -> None:
    """EKS upgrades one minor version at a time, and never downgrades."""
    before, after = (int(version.partition(".")[2]) for version in (old, new))
    if after not in (before, before + 1):
        raise InvalidParameterException(message=f"Unsupported Kubernetes minor version update from {old} to {new}")
