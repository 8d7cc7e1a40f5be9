"""Requests that EKS rejects and moto accepts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from moto.ec2.models import ec2_backends
from moto.eks.exceptions import EKSError, InvalidParameterException, InvalidRequestException
from moto.kms.models import kms_backends

NODES_PER_GROUP = 450
UNSUPPORTED_ZONE_IDS = ("use1-az3", "usw1-az2", "cac1-az3")


class UnsupportedAvailabilityZoneException(EKSError):  # noqa: N818 (the name of EKS)
    TYPE = "UnsupportedAvailabilityZoneException"
    STATUS = 400


def check_encryption(account: str, region: str, caller: str, encryption_config: Sequence[Mapping[str, Any]]) -> None:
    """EKS creates a grant on the key with the caller's identity, and without kms:GrantIsForAWSResource."""
    for each in encryption_config or []:
        key_arn = each["provider"]["keyArn"]
        backend = kms_backends[account][region]
        policy = json.loads(backend.describe_key(key_arn).policy)
        for action in ("kms:DescribeKey", "kms:CreateGrant"):
            if not any(_allows(statement, action, account, caller) for statement in policy["Statement"]):
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


def _allows(statement: Mapping[str, Any], action: str, account: str, caller: str) -> bool:
    """Whether a statement of a key policy allows the caller, or the account's IAM policies, this action."""
    principal = statement["Principal"]
    principals = _listed(principal.get("AWS", []) if isinstance(principal, Mapping) else principal)
    known = {"aws:PrincipalArn": caller, "kms:CallerAccount": account}
    conditions = [pair for keys in statement.get("Condition", {}).values() for pair in keys.items()]
    return (
        statement["Effect"] == "Allow"
        and any(fnmatchcase(action, pattern) for pattern in _listed(statement["Action"]))
        and any(each in ("*", account, caller) or each.endswith(f":{account}:root") for each in principals)
        and all(known.get(key) in _listed(value) for key, value in conditions)
    )


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
