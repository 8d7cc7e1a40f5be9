"""The VPC, its zones, its DNS zone and the ranges with access to the cluster."""

import ipaddress
import re
from itertools import combinations

from settings.aws_facts import AwsFacts
from settings.problem import Problem, Problems
from settings.schema import DEFAULT_ZONES, Settings
from settings.subnets import ADDRESSES_PER_WORKER, LARGEST, SMALLEST, zone_capacity

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NOT_A_RANGE = "is not an IPv4 range, or its address is not the first one of the range"
PRIVATE = [ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
# The VPC user guide advises against this range, because some AWS services use it themselves.
USED_BY_AWS = ipaddress.IPv4Network("172.17.0.0/16")
# Ranges that RFC 5737 reserves for documentation. Nobody has such an address.
DOCUMENTATION = [ipaddress.IPv4Network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]


def vpc_range(s: Settings) -> Problems:
    vpc = _network(s.vpc_cidr)
    if vpc is None:
        yield Problem("vpcCidr", s.vpc_cidr, NOT_A_RANGE, "Write one, such as 10.0.0.0/16")
    elif not any(vpc.subnet_of(private) for private in PRIVATE):
        instead = "Write one within 10.0.0.0/8, such as 10.0.0.0/16"
        yield Problem("vpcCidr", s.vpc_cidr, "is not a private range", instead)
    elif vpc.overlaps(USED_BY_AWS):
        why = f"overlaps {USED_BY_AWS}, which some AWS services use themselves"
        yield Problem("vpcCidr", s.vpc_cidr, why, "Write another range, such as 10.0.0.0/16")
    elif not LARGEST <= vpc.prefixlen <= SMALLEST:
        why = "is too large for a VPC or too small for its subnets"
        yield Problem("vpcCidr", s.vpc_cidr, why, f"Write a range from /{LARGEST} to /{SMALLEST}")
    else:
        room = zone_capacity(vpc) * s.worker_zones(max(len(s.availability_zones), 2))
        if s.workers.count * ADDRESSES_PER_WORKER > room:
            where = "the zone of the workers" if s.workers.zones == "one" else "its zones"
            why = f"has {room} addresses in {where}, and {s.workers.count} workers need {ADDRESSES_PER_WORKER} each"
            more = "workers.zones: all" if s.workers.zones == "one" else "more zones"
            yield Problem("vpcCidr", s.vpc_cidr, why, f"Write a larger range, {more}, or fewer workers")


def api_access_ranges(s: Settings) -> Problems:
    networks = {cidr: _network(cidr) for cidr in s.api_access_cidrs}
    for cidr, network in networks.items():
        if network is None:
            yield Problem("apiAccessCidrs", cidr, NOT_A_RANGE, "Write your public address with /32")
        elif any(network.subnet_of(private) for private in PRIVATE):
            why = "is a private range, and the public endpoint sees only public addresses"
            yield Problem("apiAccessCidrs", cidr, why, "Write your public address, or leave the list empty")
        elif any(network.subnet_of(example) for example in DOCUMENTATION):
            why = "is a range for documentation, so nobody could reach the cluster"
            yield Problem("apiAccessCidrs", cidr, why, "Write the public range of the machine that runs `pulumi up`")
    valid = [network for network in networks.values() if network]
    for one, other in combinations(valid, 2):
        if one.overlaps(other):
            yield Problem("apiAccessCidrs", str(one), f"overlaps {other}", "Keep the wider range")
    if len(s.api_access_cidrs) != len(networks):
        yield Problem("apiAccessCidrs", s.api_access_cidrs, "contains a range twice", "Write each range once")


def _network(cidr: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def dns_zone_name(s: Settings) -> Problems:
    if not re.fullmatch(rf"(?=.{{1,200}}$){LABEL}(\.{LABEL})*", s.zone_name):
        instead = "Use lower-case letters, digits, - and dots, such as paddle"
        yield Problem("zoneName", s.zone_name, "is not a DNS name", instead)


def zone_list(s: Settings) -> Problems:
    zones = s.availability_zones
    if len(set(zones)) != len(zones):
        yield Problem("availabilityZones", zones, "contains a zone twice", "Write each zone once")
    if len(set(zones)) == 1:
        why = "is one zone, and EKS needs two"
        yield Problem("availabilityZones", zones, why, "Write two or more, or an empty list")


def zones_of_the_account(s: Settings, facts: AwsFacts) -> Problems:
    with_workers = s.worker_zones(len(s.availability_zones) or DEFAULT_ZONES)
    for i, name in enumerate(s.availability_zones):
        usable = facts.zones_for_workers if i < with_workers else facts.zones_for_cluster
        instead = f"Choose from {', '.join(usable)}"
        if name not in facts.zones:
            why = f"is not an availability zone of {s.region} for this account"
            yield Problem("availabilityZones", name, why, instead)
        elif name not in usable:
            yield Problem("availabilityZones", name, f"cannot be used: {facts.why_excluded(name)}", instead)
    for i, name in facts.kept_zones.items():
        if i < with_workers and not s.paused and (missing := facts.not_offered(name)):
            why = f"contains types that {name}, a zone of this stack, does not offer: {', '.join(missing)}"
            instead = "Write types that it offers. To use other zones, run `pulumi destroy` first"
            yield Problem("workers.instanceTypes", s.workers.instance_types, why, instead)
    if len(facts.kept_zones) == DEFAULT_ZONES:
        return
    few_for_workers = len(facts.zones_for_workers) < with_workers
    if few_for_workers or len(facts.zones_for_cluster) < DEFAULT_ZONES:
        excluded = "; ".join(why for zone in sorted(facts.zones) if (why := facts.why_excluded(zone)))
        counted = f"{len(facts.zones_for_cluster)} zones for EKS and {len(facts.zones_for_workers)} of them for workers"
        why = f"has {counted}, and the stack needs {DEFAULT_ZONES} and {with_workers}. Excluded: {excluded}"
        instead = "Choose another region"
        if few_for_workers and facts.known_types:
            instead += ", or other types in workers.instanceTypes"
        yield Problem("aws:region", s.region, why, instead)


RULES = (vpc_range, api_access_ranges, dns_zone_name, zone_list)
FACTS_RULES = (zones_of_the_account,)
