"""Route 53 patch: GetHostedZone returns the VPCs of a private zone. moto stores them under other key names."""

from moto.core.responses import ActionResult
from moto.route53.responses import Route53

_create = Route53.create_hosted_zone


def _create_hosted_zone(self: Route53) -> ActionResult:
    """A zone with a VPC is private. moto also requires PrivateZone, which the official provider does not send."""
    if self._get_param("VPC.VPCId"):
        self.params["HostedZoneConfig"] = {**(self._get_param("HostedZoneConfig") or {}), "PrivateZone": True}
    return _create(self)


def _get_hosted_zone(self: Route53) -> ActionResult:
    zone = self.backend.get_hosted_zone(self._get_param("Id"))
    vpcs = [{"VPCId": each["vpc_id"], "VPCRegion": each["vpc_region"]} for each in zone.vpcs]
    return ActionResult(
        {
            "HostedZone": zone,
            "DelegationSet": None if zone.private_zone else zone.delegation_set,
            "VPCs": vpcs if zone.private_zone else None,
        }
    )


def apply() -> None:
    Route53.create_hosted_zone = _create_hosted_zone  # type: ignore[method-assign]
    Route53.get_hosted_zone = _get_hosted_zone  # type: ignore[method-assign]
