"""The subnets of the VPC: their address ranges, and how many addresses each one has."""

import ipaddress
from dataclasses import dataclass

# Each worker subnet gets one eighth of the VPC. The last eighth is divided into eight public subnets. So no subnet's
# range changes when a zone is added or NAT is turned on.
SUBNET_BITS = 3
LARGEST, SMALLEST = 16, 22
MAX_ZONES = 2**SUBNET_BITS - 1
# An estimate of the addresses that one worker and its pods take.
ADDRESSES_PER_WORKER = 16
AWS_RESERVED = 5


@dataclass(frozen=True)
class CidrPlan:
    workers: tuple[str, ...]
    public: tuple[str, ...]


def cidr_plan(vpc_cidr: str, zones: int) -> CidrPlan:
    """One worker subnet and one public subnet (used with NAT) for each zone."""
    *workers, last = ipaddress.IPv4Network(vpc_cidr).subnets(prefixlen_diff=SUBNET_BITS)
    public = last.subnets(prefixlen_diff=SUBNET_BITS)
    return CidrPlan(
        workers=tuple(str(network) for network in workers[:zones]),
        public=tuple(str(network) for network, _ in zip(public, range(zones), strict=False)),
    )


def zone_capacity(vpc: ipaddress.IPv4Network) -> int:
    """How many addresses one worker subnet has for workers and pods."""
    return (int(vpc.num_addresses) >> SUBNET_BITS) - AWS_RESERVED
