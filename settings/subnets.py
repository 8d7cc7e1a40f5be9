"""How the VPC's address range is divided into subnets, and how many addresses each subnet has."""

import ipaddress
from dataclasses import dataclass

# An eighth of the VPC for each worker subnet, and the last eighth in eighths again for the public ones: a zone
# added, or NAT turned on, moves no address.
SUBNET_BITS = 3
LARGEST, SMALLEST = 16, 22
MAX_ZONES = 2**SUBNET_BITS - 1
# What one network interface of a common worker holds for its pods.
ADDRESSES_PER_WORKER = 16
AWS_RESERVED = 5


@dataclass(frozen=True)
class CidrPlan:
    workers: tuple[str, ...]
    public: tuple[str, ...]


def cidr_plan(vpc_cidr: str, zones: int) -> CidrPlan:
    """A worker subnet and, for NAT, a public subnet in each zone."""
    *workers, last = ipaddress.IPv4Network(vpc_cidr).subnets(prefixlen_diff=SUBNET_BITS)
    public = last.subnets(prefixlen_diff=SUBNET_BITS)
    return CidrPlan(
        workers=tuple(str(network) for network in workers[:zones]),
        public=tuple(str(network) for network, _ in zip(public, range(zones), strict=False)),
    )


def zone_capacity(vpc: ipaddress.IPv4Network) -> int:
    """Addresses that one worker subnet has to give."""
    return (int(vpc.num_addresses) >> SUBNET_BITS) - AWS_RESERVED
