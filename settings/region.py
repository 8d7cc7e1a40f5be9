"""What the region supports for this account. AWS itself is asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from settings.schema import DEFAULT_ZONES, Problem, Settings

Architecture = Literal["x86_64", "arm64"]

REQUIRED_SERVICES = ("ec2", "efs", "eks", "kms", "s3", "route53")
# EKS cannot place a control plane in these zones. Zone names differ by account, zone ids do not.
UNUSABLE_ZONE_IDS = ("use1-az3", "usw1-az2", "cac1-az3")


@dataclass(frozen=True)
class InstanceType:
    architecture: Architecture
    gpus: int


@dataclass(frozen=True)
class RegionSupport:
    """A region as this account sees it. `zones` maps zone names to zone ids. An unknown instance type is None."""

    account: str
    partition: str
    zones: dict[str, str]
    services: frozenset[str]
    instance_types: Mapping[str, InstanceType | None]

    @property
    def instance_type(self) -> InstanceType:
        """What all instance types of the workers have in common."""
        return next(found for found in self.instance_types.values() if found)

    @property
    def usable_zones(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, zone_id in self.zones.items() if zone_id not in UNUSABLE_ZONE_IDS))

    def zones_for(self, settings: Settings) -> tuple[str, ...]:
        return settings.availability_zones or self.usable_zones[:DEFAULT_ZONES]


def read_region_support(settings: Settings) -> tuple[RegionSupport | None, list[Problem]]:
    """What the region supports, or the reason why AWS did not answer."""
    try:
        identity = aws.get_caller_identity()
        # Local zones and Wavelength zones cannot hold a control plane or a mount target.
        zones = aws.get_availability_zones(filters=[{"name": "zone-type", "values": ["availability-zone"]}])
        services = aws.ssm.get_parameters_by_path(
            path=f"/aws/service/global-infrastructure/regions/{settings.region}/services"
        )
        partition = aws.get_partition().partition
    except Exception as error:  # the SDK raises no narrower class when AWS refuses a call
        pulumi.log.debug(str(error))
        why = f"could not be checked with AWS: {_reason(error)}"
        instead = "Check the region's name, your network, and `aws sts get-caller-identity`"
        return None, [Problem("aws:region", settings.region, why, instead)]
    return RegionSupport(
        account=identity.account_id,
        partition=partition,
        zones=dict(zip(zones.names, zones.zone_ids, strict=True)),
        services=frozenset(name.rpartition("/")[2] for name in services.names),
        instance_types={name: _instance_type(name) for name in settings.workers.instance_types},
    ), []


def _instance_type(name: str) -> InstanceType | None:
    """Architecture and number of NVIDIA GPUs, or None if the region does not have the type."""
    try:
        found = aws.ec2.get_instance_type(instance_type=name)
    except Exception as error:  # see above; a type that EC2 does not know is an error of the call
        pulumi.log.debug(str(error))
        return None
    gpus = sum(gpu.count for gpu in found.gpuses if gpu.manufacturer.upper() == "NVIDIA")
    return InstanceType("arm64" if "arm64" in found.supported_architectures else "x86_64", gpus)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
