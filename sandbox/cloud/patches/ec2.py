"""EC2 patches: tags of launch templates, routes of gateway endpoints, complete deletion, and offered types.

- The tags of a launch template are not part of its versions, and can change.
- A VPC cannot be deleted while it contains security groups or an internet gateway.
- Deleted VPCs, endpoints and NAT gateways leave nothing behind.
- Zones of regions for which moto has no data, such as China, offer every instance type.
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES, InstanceTypeOfferingBackend
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateBackend
from moto.ec2.models.nat_gateways import NatGateway, NatGatewayBackend
from moto.ec2.models.vpcs import VPC, VPCBackend

Tags = dict[str, dict[str, str]]  # by resource type

_create_template = LaunchTemplateBackend.create_launch_template
_delete_vpc = VPCBackend.delete_vpc
_delete_endpoints = VPCBackend.delete_vpc_endpoints
_modify_endpoint = VPCBackend.modify_vpc_endpoint
_delete_nat = NatGatewayBackend.delete_nat_gateway
_offerings = InstanceTypeOfferingBackend.describe_instance_type_offerings


def _create_launch_template(
    self: LaunchTemplateBackend, name: str, description: str, template_data: dict[str, Any], tag_spec: Tags
) -> LaunchTemplate:
    given = template_data.pop("TagSpecifications", [])
    if others := [each for each in given if each["ResourceType"] != "launch-template"]:
        template_data["TagSpecifications"] = others
    return _create_template(self, name, description, template_data, tag_spec)


def _delete_empty_vpc(self: Any, vpc_id: str) -> VPC:
    groups = [each for each in self.groups.get(vpc_id, {}).values() if each.name != "default"]
    gateways = self.describe_internet_gateways(filters={"attachment.vpc-id": [vpc_id]})
    if groups or gateways:
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
    vpc = _delete_vpc(self, vpc_id)
    for acl in [each for each in self.network_acls.values() if each.vpc_id == vpc_id]:
        del self.network_acls[acl.id]
    return vpc


def _delete_endpoints_completely(self: Any, vpce_ids: list[str] | None = None) -> None:
    _delete_endpoints(self, vpce_ids)
    for each in vpce_ids or []:
        self.vpc_end_points.pop(each, None)


def _modify_endpoint_and_routes(self: Any, vpc_id: str, **changes: Any) -> None:
    """Add and remove the routes of a gateway endpoint when its route tables change."""
    _modify_endpoint(self, vpc_id, **changes)
    prefix = self.vpc_end_points[vpc_id].destination_prefix_list_id
    for table in changes["remove_route_tables"] or []:
        self.delete_route(table, prefix)
    for table in changes["add_route_tables"] or []:
        self.create_route(table, None, gateway_id=vpc_id, destination_prefix_list_id=prefix)


def _delete_nat_completely(self: Any, nat_gateway_id: str) -> NatGateway:
    """Delete the network interface of the NAT gateway too, and release its address."""
    gateway = _delete_nat(self, nat_gateway_id)
    for address in self.addresses:
        if address.eni is gateway._eni:
            address.eni = address.association_id = None
    self.enis.pop(gateway._eni.id, None)
    return gateway


def _current_tags(self: LaunchTemplate) -> list[dict[str, str]]:
    """The current tags of a launch template, not those at its creation."""
    return self.get_tags()


def _offerings_everywhere(
    self: Any, location_type: str | None = None, filters: dict[str, Any] | None = None
) -> list[Any]:
    places = {"availability-zone": "name", "availability-zone-id": "zone_id"}
    if location_type not in places or INSTANCE_TYPE_OFFERINGS[location_type].get(self.region_name):
        return _offerings(self, location_type, filters)
    locations = [getattr(zone, places[location_type]) for zone in self.describe_availability_zones()]
    every = [
        {"InstanceType": name, "Location": each, "LocationType": location_type}
        for name in INSTANCE_TYPES
        for each in locations
    ]
    return [each for each in every if self.matches_filters(each, filters or {}, location_type)]


def apply() -> None:
    InstanceTypeOfferingBackend.describe_instance_type_offerings = _offerings_everywhere  # type: ignore[method-assign]
    LaunchTemplate.tags = property(_current_tags, lambda self, tags: None)  # type: ignore[assignment]
    LaunchTemplateBackend.create_launch_template = _create_launch_template  # type: ignore[method-assign]
    VPCBackend.delete_vpc = _delete_empty_vpc  # type: ignore[method-assign]
    VPCBackend.delete_vpc_endpoints = _delete_endpoints_completely  # type: ignore[method-assign]
    VPCBackend.modify_vpc_endpoint = _modify_endpoint_and_routes  # type: ignore[method-assign,assignment]
    NatGatewayBackend.delete_nat_gateway = _delete_nat_completely  # type: ignore[method-assign]
