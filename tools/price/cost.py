"""What a stack costs per hour and per month. An item without a price in prices.yaml is listed as unknown."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from settings.schema import DEFAULT_ZONES, Settings

PRICES = Path(__file__).with_name("prices.yaml")
HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Line:
    """One item. No quantity means that AWS bills it by use. No price means that prices.yaml does not list it."""

    item: str
    quantity: int | None
    unit: str
    price: Decimal | None
    note: str = ""

    @property
    def monthly(self) -> Decimal | None:
        if self.quantity is None or self.price is None:
            return None
        return self.quantity * self.price * (HOURS_PER_MONTH if self.unit == "hour" else 1)


@dataclass(frozen=True)
class Estimate:
    region: str
    date: str
    lines: tuple[Line, ...]
    # The total with another number of workers: without any, or with the workers that a paused stack needs.
    other_workers: int
    other_monthly: Decimal

    @property
    def monthly(self) -> Decimal:
        return _sum(self.lines)

    @property
    def hourly(self) -> Decimal:
        return self.monthly / HOURS_PER_MONTH

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.price is None)

    @property
    def by_use(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.price is not None and line.quantity is None)

    def __str__(self) -> str:
        rows = [("item", "quantity", "unit price", "USD per hour", "USD per month"), *map(_row, self.lines)]
        rows.append(("total", "", "", f"{self.hourly:.3f}", f"{self.monthly:.2f}"))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = [
            "  ".join(
                cell.ljust(width) if i in (0, 2) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        notes = [f"{line.item}: {line.note}." for line in self.lines if line.note]
        unknown = f"Not included, because tools/price/prices.yaml has no price: {', '.join(self.unknown)}."
        by_use = f"Not included, because AWS bills it by use: {', '.join(self.by_use)}."
        left_out = [text for text, items in ((unknown, self.unknown), (by_use, self.by_use)) if items]
        other = f"With workers.count: {self.other_workers}"
        if not self.other_workers:
            other = "Paused (workers.count: 0)"
        hourly = self.other_monthly / HOURS_PER_MONTH
        other += f": {hourly:.3f} USD per hour, {self.other_monthly:.2f} USD per month."
        never = "Never included: requests to S3 and KMS, traffic between zones and out of AWS, tax."
        dated = f"List prices of {self.region} from {self.date} (tools/price/prices.yaml). One month is 730 hours."
        return "\n".join(
            [
                *table[:-1],
                "",
                table[-1],
                "",
                other,
                *left_out,
                never,
                *notes,
                dated,
            ]
        )


def estimate(settings: Settings, prices: Mapping[str, Any] | None = None) -> Estimate:
    """What the stack costs with the prices of its region."""
    table = prices or yaml.safe_load(PRICES.read_text())
    here = {**table["everywhere"], **table["regions"].get(settings.region, {})}
    count = settings.trainers if settings.paused else 0
    other = dataclasses.replace(settings, workers=dataclasses.replace(settings.workers, count=count))
    return Estimate(
        settings.region,
        str(table["date"]),
        tuple(_lines(settings, here, table["standardSupportEnds"])),
        count,
        _sum(_lines(other, here, table["standardSupportEnds"])),
    )


def summary(cost: Estimate) -> str:
    """The total and the items that it does not include, in one line."""
    without = f", not including {', '.join(cost.unknown)}" if cost.unknown else ""
    return f"${cost.monthly:.2f} per month (${cost.hourly:.3f} per hour){without}"


def difference(before: Estimate, after: Estimate) -> str:
    """How a change affects the total, in one line."""
    change = after.monthly - before.monthly
    if not change and before.unknown == after.unknown:
        return f"unchanged: {summary(after)}"
    sign = "-" if change < 0 else "+"
    return f"${before.monthly:.2f} -> {summary(after)}, {sign}${abs(change):.2f} per month"


def _sum(lines: Iterable[Line]) -> Decimal:
    return sum((line.monthly for line in lines if line.monthly is not None), Decimal(0))


def _lines(settings: Settings, prices: Mapping[str, Any], support_ends: Mapping[str, Any]) -> list[Line]:
    def price(name: str) -> Decimal | None:
        return Decimal(str(prices[name])) if name in prices else None

    workers = settings.workers
    zones = len(settings.availability_zones) or DEFAULT_ZONES
    gateways = {"none": 0, "single": 1, "perZone": settings.worker_zones(zones)}[settings.nat_gateways]
    addresses = gateways or workers.count
    version = settings.kubernetes_version
    end = f"ends on {support_ends[version]}" if version in support_ends else "has no date in tools/price/prices.yaml"
    lines = [
        Line(
            "EKS control plane",
            1,
            "hour",
            price("clusterHour"),
            f"standard support of Kubernetes {version} {end}; then EKS upgrades the cluster",
        ),
        _workers(settings, prices.get("instanceHour", {})),
        Line("worker disks, gp3", workers.count * workers.disk_gib, "GiB-month", price("diskGiBMonth")),
        Line("public IPv4 addresses", addresses, "hour", price("addressHour")),
    ]
    if gateways:
        lines += [
            Line("NAT gateways", gateways, "hour", price("natHour")),
            Line("NAT traffic", None, "GB", price("natGB")),
        ]
    rotation = "each of the first two yearly rotations adds the same amount"
    return [
        *lines,
        *([] if settings.kms_key_arn else [Line("KMS key", 1, "month", price("keyMonth"), rotation)]),
        Line("Route53 private zone", 1, "month", price("zoneMonth")),
        Line("EFS storage", None, "GiB-month", price("efsGiBMonth")),
        Line("EFS reads", None, "GB", price("efsReadGB")),
        Line("EFS writes", None, "GB", price("efsWriteGB")),
        Line("S3 storage", None, "GiB-month", price("s3GiBMonth")),
        *([Line("control plane logs", None, "GB", price("logsGB"))] if settings.control_plane_logs else []),
        # AWS does not charge for a budget.
        *([Line("e-mail messages", None, "100,000", price("emails"))] if settings.notify.email else []),
    ]


def _workers(settings: Settings, hours: Mapping[str, Any]) -> Line:
    workers = settings.workers
    # EC2 prefers the first type.
    preferred = workers.instance_types[0]
    on_demand = Decimal(str(hours[preferred])) if preferred in hours else None
    if workers.capacity == "spot":
        most = f", at most {on_demand * workers.count:.3f} per hour for all workers" if on_demand else ""
        note = f"the spot price changes{most}"
        return Line(f"workers, {preferred} spot", workers.count, "hour", None, note)
    return Line(f"workers, {preferred}", workers.count, "hour", on_demand)


def _row(line: Line) -> tuple[str, str, str, str, str]:
    quantity = "by use" if line.quantity is None else str(line.quantity)
    each = "unknown" if line.price is None else f"{_exact(line.price)} per {line.unit}"
    if line.monthly is None:
        cost = "unknown" if line.price is None else "by use"
        return line.item, quantity, each, cost, cost
    return line.item, quantity, each, f"{line.monthly / HOURS_PER_MONTH:.3f}", f"{line.monthly:.2f}"


def _exact(price: Decimal) -> str:
    """All digits of the price, at least two after the point."""
    return max(str(price), f"{price:.2f}", key=len)
