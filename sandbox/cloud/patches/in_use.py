"""EC2 patches: moto deletes security groups, subnets and attachments of gateways that other resources still use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models.internet_gateways import InternetGatewayBackend
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.subnets import Subnet, SubnetBackend
from moto.eks.models import eks_backends

_delete_group = SecurityGroupBackend.delete_security_group
_delete_subnet = SubnetBackend.delete_subnet
_detach_gateway = InternetGatewayBackend.detach_internet_gateway


def _delete_free_group(self: Any, name: str | None = None, group_id: str | None = None) -> None:
    if user := next(_users_of_group(self, group_id), "") if group_id else "":
        raise DependencyViolationError(f"resource {group_id} has a dependent object: {user}")
    _delete_group(self, name, group_id)


def _users_of_group(ec2: Any, group_id: str) -> Iterator[str]:
    for interface in ec2.enis.values():
        if group_id in {group.id for group in interface.group_set}:
            yield interface.id
    for other in (group for groups in ec2.groups.values() for group in groups.values() if group.id != group_id):
        if group_id in {rule.source_group.get("GroupId") for rule in [*other.ingress_rules, *other.egress_rules]}:
            yield other.id
    for cluster in eks_backends[ec2.account_id][ec2.region_name].clusters.values():
        if group_id in cluster.resources_vpc_config["securityGroupIds"]:
            yield cluster.name
        for nodes in cluster.nodegroups.values():
            if group_id in _groups_of_nodes(ec2, nodes):
                yield nodes.nodegroup_name


def _groups_of_nodes(ec2: Any, nodes: Any) -> list[str]:
    template = ec2.launch_templates.get((nodes.launch_template or {}).get("id"))
    if template is None:
        return []
    version = template.get_version(int(nodes.launch_template["version"]))
    return list(version.data.get("SecurityGroupIds") or [])


def _delete_free_subnet(self: Any, subnet_id: str) -> Subnet:
    if user := next(_users_of_subnet(self, subnet_id), ""):
        raise DependencyViolationError(f"The subnet '{subnet_id}' has dependencies and cannot be deleted: {user}")
    return _delete_subnet(self, subnet_id)


def _users_of_subnet(ec2: Any, subnet_id: str) -> Iterator[str]:
    yield from (interface.id for interface in ec2.enis.values() if interface.subnet.id == subnet_id)
    for cluster in eks_backends[ec2.account_id][ec2.region_name].clusters.values():
        if subnet_id in cluster.resources_vpc_config["subnetIds"]:
            yield cluster.name
        yield from (nodes.nodegroup_name for nodes in cluster.nodegroups.values() if subnet_id in nodes.subnets)


def _detach_free_gateway(self: Any, internet_gateway_id: str, vpc_id: str) -> None:
    """Workers in public subnets and NAT gateways have public addresses, which need the gateway."""
    public = {subnet.id for subnet in self.describe_subnets(filters={"vpc-id": [vpc_id]}) if _is_public(subnet)}
    clusters = eks_backends[self.account_id][self.region_name].clusters.values()
    workers = [nodes for cluster in clusters for nodes in cluster.nodegroups.values() if public & set(nodes.subnets)]
    gateways = [nat for nat in self.nat_gateways.values() if nat.vpc_id == vpc_id and nat.state != "deleted"]
    if workers or gateways:
        raise DependencyViolationError(f"Network {vpc_id} has some mapped public address(es). Please unmap those first")
    _detach_gateway(self, internet_gateway_id, vpc_id)


def _is_public(subnet: Any) -> bool:
    return str(subnet.map_public_ip_on_launch).lower() == "true"


def apply() -> None:
    SecurityGroupBackend.delete_security_group = _delete_free_group  # type: ignore[method-assign]
    SubnetBackend.delete_subnet = _delete_free_subnet  # type: ignore[method-assign]
    InternetGatewayBackend.detach_internet_gateway = _detach_free_gateway  # type: ignore[method-assign]
