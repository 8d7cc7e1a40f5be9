"""EC2's quotas for workers. EC2 counts vCPUs, and it has one quota for each group of instance families."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from settings.schema import Capacity

SERVICE = "ec2"


@dataclass(frozen=True)
class Quota:
    """One quota. `types` matches the start of the names of its instance types."""

    code: str
    name: str
    types: str


# Families that are not in this table are not checked: a wrong quota would reject a stack that works.
QUOTAS: Mapping[Capacity, tuple[Quota, ...]] = {
    "onDemand": (
        Quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", r"[acdhimrtz]\d"),
        Quota("L-DB2E81BA", "Running On-Demand G and VT instances", r"(g|vt)\d"),
        Quota("L-417A185B", "Running On-Demand P instances", r"p\d"),
        Quota("L-7295265B", "Running On-Demand X instances", r"x\d"),
    ),
    "spot": (
        Quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", r"[acdhimrtz]\d"),
        Quota("L-3819A6DF", "All G and VT Spot Instance Requests", r"(g|vt)\d"),
        Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", r"p[234]"),
        Quota("L-E3A00192", "All X Spot Instance Requests", r"x\d"),
    ),
}


def quota_of(instance_type: str, capacity: Capacity) -> Quota | None:
    """The quota that counts this instance type, if the table has it."""
    return next((quota for quota in QUOTAS[capacity] if re.match(quota.types, instance_type)), None)


def quotas_of(instance_types: Iterable[str], capacity: Capacity) -> list[Quota]:
    """The quotas that count these instance types, each once."""
    found = (quota_of(name, capacity) for name in instance_types)
    return list(dict.fromkeys(quota for quota in found if quota))


def most_workers(vcpus: Mapping[str, int], capacity: Capacity, limits: Mapping[str, float]) -> int | None:
    """The largest number of workers that the quotas allow, or None if the quota of a type is not known.

    `vcpus` maps each instance type to its vCPUs, and `limits` maps the code of a quota to its vCPUs.
    """
    smallest: dict[str, int] = {}
    for name, count in vcpus.items():
        quota = quota_of(name, capacity)
        if quota is None or quota.code not in limits:
            return None
        smallest[quota.code] = min(count, smallest.get(quota.code, count))
    return sum(int(limits[code] // count) for code, count in smallest.items()) if smallest else None
