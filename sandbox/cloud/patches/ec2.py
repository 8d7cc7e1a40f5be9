"""A template's own tags stay out of its versions; what is deleted leaves nothing; a VPC goes only when empty."""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateBackend
from moto.ec2.models.nat_gateways import NatGateway, NatGatewayBackend
from moto.ec2.models.vpcs import VPC, VPCBackend

_create_template = LaunchTemplateBackend.create_launch_template
_delete_vpc = VPCBackend.delete_vpc
_delete_endpoints = VPCBackend.delete_vpc_endpoints
_modify_endpoint = VPCBackend.modify_vpc_endpoint
_delete_nat = NatGatewayBackend.delete_nat_gateway


def _create_launch_template(
    self: LaunchTemplateBackend, name: str, description: str, template_data: dict[str, Any], tag_spec: dict[str, Any]
) -> LaunchTemplate:
    given = template_data.pop("TagSpecifications", [])
    if others := [each for each in given if each["ResourceType"] != "launch-template"]:
        template_data["TagSpecifications"] = others
    return _create_template(self, name, description, template_data, tag_spec)


def _empty_vpc(self: Any, vpc_id: str) -> VPC:
    groups = [each for each in self.groups.get(vpc_id, {}).values() if each.name != "default"]
    gateways = self.describe_internet_gateways(filters={"attachment.vpc-id": vpc_id})
    if groups or gateways:
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
    vpc = _delete_vpc(self, vpc_id)
    for acl in [each for each in self.network_acls.values() if each.vpc_id == vpc_id]:
        del self.network_acls[acl.id]
    return vpc


def _forgotten_endpoints(self: Any, vpce_ids: list[str] | None = None) -> None:
    _delete_endpoints(self, vpce_ids)
    for each in vpce_ids or []:
        self.vpc_end_points.pop(each, None)


def _routed_endpoint(self: Any, vpc_id: str, **changes: Any) -> None:
    """A gateway endpoint has a route in each of its tables, in those given later too."""
    _modify_endpoint(self, vpc_id, **changes)
    prefix = self.vpc_end_points[vpc_id].destination_prefix_list_id
    for table in changes["remove_route_tables"] or []:
        self.delete_route(table, prefix)
    for table in changes["add_route_tables"] or []:
        self.create_route(table, None, gateway_id=vpc_id, destination_prefix_list_id=prefix)


def _whole_nat(self: Any, nat_gateway_id: str) -> NatGateway:
    """A NAT gateway takes its network interface along, and its address is free again."""
    gateway = _delete_nat(self, nat_gateway_id)
    for address in self.addresses:
        if address.eni is gateway._eni:
            address.eni = address.association_id = None
    self.enis.pop(gateway._eni.id, None)
    return gateway


def _tags_of_now(self: LaunchTemplate) -> list[dict[str, str]]:
    """A template's tags are those it has, and not those it was made with."""
    return self.get_tags()


def apply() -> None:
    LaunchTemplate.tags = property(_tags_of_now, lambda self, made_with: None)  # type: ignore[assignment]
    LaunchTemplateBackend.create_launch_template = _create_launch_template  # type: ignore[method-assign]
    VPCBackend.delete_vpc = _empty_vpc  # type: ignore[method-assign]
    VPCBackend.delete_vpc_endpoints = _forgotten_endpoints  # type: ignore[method-assign]
    VPCBackend.modify_vpc_endpoint = _routed_endpoint  # type: ignore[method-assign,assignment]
    NatGatewayBackend.delete_nat_gateway = _whole_nat  # type: ignore[method-assign]
