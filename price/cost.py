"""What a stack costs while it stands, item by item. What has no price in prices.yaml is named, and never guessed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from settings.schema import DEFAULT_ZONES, PROJECT, Settings, read

PRICES = Path(__file__).with_name("prices.yaml")
HOURS_A_MONTH = 730


class PriceError(Exception):
    """Something a person has to put right, said in one line."""


@dataclass(frozen=True)
class Line:
    """An item, how much of it, and what one costs. Without a quantity it is paid by use; without a price, unknown."""

    item: str
    quantity: int | None
    unit: str
    price: Decimal | None
    note: str = ""

    @property
    def monthly(self) -> Decimal | None:
        if self.quantity is None or self.price is None:
            return None
        return self.quantity * self.price * (HOURS_A_MONTH if self.unit == "hour" else 1)


@dataclass(frozen=True)
class Estimate:
    region: str
    date: str
    lines: tuple[Line, ...]

    @property
    def monthly(self) -> Decimal:
        return sum((line.monthly for line in self.lines if line.monthly is not None), Decimal(0))

    @property
    def hourly(self) -> Decimal:
        return self.monthly / HOURS_A_MONTH

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.price is None)

    @property
    def by_use(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.price is not None and line.quantity is None)

    def __str__(self) -> str:
        rows = [("item", "how many", "each", "USD an hour", "USD a month"), *map(_row, self.lines)]
        rows.append(("together", "", "", f"{self.hourly:.3f}", f"{self.monthly:.2f}"))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = [
            "  ".join(
                cell.ljust(width) if i in (0, 2) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        notes = [f"{line.item}: {line.note}." for line in self.lines if line.note]
        left_out = [f"Without {', '.join(self.unknown)}: no price is known here."] if self.unknown else []
        by_use = [f"Without what is paid by use: {', '.join(self.by_use)}."] if self.by_use else []
        uncounted = "Not counted: requests to S3 and KMS, traffic between zones and out of AWS, tax."
        dated = f"List prices of {self.region}, written down {self.date} in price/prices.yaml, a month of 730 hours."
        return "\n".join([*table[:-1], "", table[-1], "", *left_out, *by_use, uncounted, *notes, dated])


def stack_settings(stack: str, folder: Path = PROJECT) -> Settings:
    """The settings of a stack of the checkout in `folder`."""
    file = folder / f"Pulumi.{stack}.yaml"
    try:
        config: Mapping[str, Any] = yaml.safe_load(file.read_text())["config"]
    except FileNotFoundError:
        known = sorted(path.name.split(".")[1] for path in folder.glob("Pulumi.*.yaml"))
        raise PriceError(f"{stack}: there is no {file.name}. Name one of {', '.join(known)}.") from None
    own = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("paddle-on-aws:")}
    aws = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("aws:")}
    settings, problems = read(_without_secrets(own), folder)
    if problems:
        raise PriceError(f"{file.name}: {problems[0]}")
    return dataclasses.replace(settings, stack=stack, aws=aws)


def _without_secrets(value: Any) -> Any:
    """The value with what only Pulumi can read left empty: no price hangs on a secret."""
    if not isinstance(value, Mapping):
        return value
    return "" if set(value) == {"secure"} else {key: _without_secrets(each) for key, each in value.items()}


def estimate(settings: Settings, prices: Mapping[str, Any] | None = None) -> Estimate:
    """What the stack costs at the prices of its region."""
    table = prices or yaml.safe_load(PRICES.read_text())
    here = {**table["everywhere"], **table["regions"].get(settings.region, {})}
    return Estimate(settings.region, str(table["date"]), tuple(_lines(settings, here)))


def summary(cost: Estimate) -> str:
    """The total in one line, with what it leaves out."""
    without = f", without {', '.join(cost.unknown)}" if cost.unknown else ""
    return f"${cost.monthly:.2f} a month (${cost.hourly:.3f} an hour){without}"


def difference(before: Estimate, after: Estimate) -> str:
    """What a change does to the total, in one line."""
    change = after.monthly - before.monthly
    if not change and before.unknown == after.unknown:
        return f"unchanged: {summary(after)}"
    sign = "-" if change < 0 else "+"
    return f"${before.monthly:.2f} -> {summary(after)}, {sign}${abs(change):.2f} a month"


def _lines(settings: Settings, prices: Mapping[str, Any]) -> list[Line]:
    def price(name: str) -> Decimal | None:
        return Decimal(str(prices[name])) if name in prices else None

    workers = settings.workers
    zones = len(settings.availability_zones) or DEFAULT_ZONES
    gateways = {"none": 0, "single": 1, "perZone": zones}[settings.nat_gateways]
    addresses = gateways or workers.count
    # From 14 months after a version's release, and unasked.
    later = price("clusterExtendedHour")
    lines = [
        Line(
            "EKS control plane",
            1,
            "hour",
            price("clusterHour"),
            f"{_exact(later)} an hour in extended support" if later else "",
        ),
        _workers(settings, prices.get("instanceHour", {})),
        Line("workers' disks, gp3", workers.count * workers.disk_gib, "GiB-month", price("diskGiBMonth")),
        Line("public IPv4 addresses", addresses, "hour", price("addressHour")),
    ]
    if gateways:
        lines += [
            Line("NAT gateways", gateways, "hour", price("natHour")),
            Line("NAT traffic", None, "GB", price("natGB")),
        ]
    rotation = "each of its first two yearly rotations adds as much again"
    return [
        *lines,
        Line("KMS key", 1, "month", price("keyMonth"), rotation),
        Line("Route53 private zone", 1, "month", price("zoneMonth")),
        Line("EFS storage", None, "GiB-month", price("efsGiBMonth")),
        Line("EFS reads", None, "GB", price("efsReadGB")),
        Line("EFS writes", None, "GB", price("efsWriteGB")),
        Line("S3 storage", None, "GiB-month", price("s3GiBMonth")),
        Line("control plane's logs", None, "GB", price("logsGB")),
    ]


def _workers(settings: Settings, hours: Mapping[str, Any]) -> Line:
    workers = settings.workers
    on_demand = Decimal(str(hours[workers.instance_type])) if workers.instance_type in hours else None
    if workers.capacity == "spot":
        most = f", at most {on_demand * workers.count:.3f} an hour in all" if on_demand else ""
        note = f"the spot price varies by the hour{most}"
        return Line(f"workers, {workers.instance_type} spot", workers.count, "hour", None, note)
    return Line(f"workers, {workers.instance_type}", workers.count, "hour", on_demand)


def _row(line: Line) -> tuple[str, str, str, str, str]:
    quantity = "by use" if line.quantity is None else str(line.quantity)
    each = "unknown" if line.price is None else f"{_exact(line.price)} per {line.unit}"
    if line.monthly is None:
        cost = "unknown" if line.price is None else "by use"
        return line.item, quantity, each, cost, cost
    return line.item, quantity, each, f"{line.monthly / HOURS_A_MONTH:.3f}", f"{line.monthly:.2f}"


def _exact(price: Decimal) -> str:
    """All the digits there are, two at least."""
    return max(str(price), f"{price:.2f}", key=len)
