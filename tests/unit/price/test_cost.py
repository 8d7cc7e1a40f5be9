"""What a stack costs: each item from the settings, nothing guessed, and the sum that a person would reach by hand."""

import dataclasses
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from price.cost import PRICES, Estimate, Line, PriceError, difference, estimate, stack_settings, summary
from settings.schema import Settings
from tests.unit.program import PROJECT, stack_files

TABLE = {
    "date": "2026-01-02",
    "everywhere": {
        "clusterHour": 0.1,
        "clusterExtendedHour": 0.6,
        "addressHour": 0.005,
        "keyMonth": 1,
        "zoneMonth": 0.5,
    },
    "regions": {
        "us-west-2": {
            "diskGiBMonth": 0.08,
            "natHour": 0.045,
            "natGB": 0.045,
            "efsGiBMonth": 0.3,
            "efsReadGB": 0.03,
            "efsWriteGB": 0.06,
            "s3GiBMonth": 0.023,
            "logsGB": 0.5,
            "instanceHour": {"m6i.large": 0.096},
        },
    },
}


def dev(**changes: Any) -> Settings:
    """The dev stack; `workers` are changed within."""
    settings = stack_settings("dev")
    workers = dataclasses.replace(settings.workers, **changes.pop("workers", {}))
    return dataclasses.replace(settings, workers=workers, **changes)


def lines(cost: Estimate) -> dict[str, Line]:
    return {line.item: line for line in cost.lines}


def test_dev_costs_what_its_parts_cost() -> None:
    cost = estimate(dev(), TABLE)
    paid = {line.item: str(line.monthly.quantize(Decimal("0.01"))) for line in cost.lines if line.monthly is not None}
    assert paid == {
        "EKS control plane": "73.00",
        "workers, m6i.large": "210.24",
        "workers' disks, gp3": "12.00",
        "public IPv4 addresses": "10.95",
        "KMS key": "1.00",
        "Route53 private zone": "0.50",
    }
    assert cost.monthly == Decimal("307.69")
    assert round(cost.hourly, 4) == Decimal("0.4215")
    assert cost.unknown == ()
    assert cost.by_use == ("EFS storage", "EFS reads", "EFS writes", "S3 storage", "control plane's logs")


@pytest.mark.parametrize(
    ("nat", "zones", "gateways", "addresses"),
    [("none", (), 0, 3), ("single", (), 1, 1), ("perZone", (), 2, 2), ("perZone", ("a", "b", "c"), 3, 3)],
)
def test_private_workers_pay_for_gateways_and_their_addresses_alone(
    nat: str, zones: tuple[str, ...], gateways: int, addresses: int
) -> None:
    items = lines(estimate(dev(nat_gateways=nat, availability_zones=zones), TABLE))
    assert items["public IPv4 addresses"].quantity == addresses
    assert ("NAT gateways" in items, "NAT traffic" in items) == (gateways > 0, gateways > 0)
    if gateways:
        assert items["NAT gateways"].quantity == gateways
        assert items["NAT traffic"].monthly is None


def test_a_type_without_a_price_is_named_and_left_out_of_the_sum() -> None:
    cost = estimate(dev(workers={"instance_type": "x9.huge"}), TABLE)
    assert cost.unknown == ("workers, x9.huge",)
    assert cost.monthly == Decimal("97.45")
    assert summary(cost) == "$97.45 a month ($0.133 an hour), without workers, x9.huge"
    assert "Without workers, x9.huge: no price is known here." in str(cost)


def test_a_region_without_prices_knows_only_what_is_the_same_everywhere() -> None:
    cost = estimate(dev(aws={"region": "mars-1"}), TABLE)
    known = {line.item for line in cost.lines if line.price is not None}
    assert known == {"EKS control plane", "public IPv4 addresses", "KMS key", "Route53 private zone"}


def test_the_spot_price_is_not_guessed_but_bounded() -> None:
    cost = estimate(dev(workers={"capacity": "spot"}), TABLE)
    assert cost.unknown == ("workers, m6i.large spot",)
    note = lines(cost)["workers, m6i.large spot"].note
    assert note == "the spot price varies by the hour, at most 0.288 an hour in all"
    nowhere = estimate(dev(workers={"capacity": "spot", "instance_type": "x9.huge"}), TABLE)
    assert lines(nowhere)["workers, x9.huge spot"].note == "the spot price varies by the hour"


def test_a_difference_says_from_what_to_what() -> None:
    before, after = estimate(dev(), TABLE), estimate(dev(workers={"count": 4}), TABLE)
    assert difference(before, after) == "$307.69 -> $385.42 a month ($0.528 an hour), +$77.73 a month"
    assert difference(after, before).endswith(", -$77.73 a month")
    assert difference(before, before) == "unchanged: $307.69 a month ($0.421 an hour)"
    spot = estimate(dev(workers={"capacity": "spot"}), TABLE)
    assert "without workers, m6i.large spot" in difference(before, spot)
    huge, huger = (estimate(dev(workers={"instance_type": name}), TABLE) for name in ("x9.huge", "x9.huger"))
    assert difference(huge, huger).endswith("without workers, x9.huger, +$0.00 a month"), "as little known is no proof"


def test_the_table_a_person_reads() -> None:
    rows = str(estimate(dev(nat_gateways="single"), TABLE)).splitlines()
    assert rows[0].split("  ")[0] == "item"
    assert rows[2].split() == ["workers,", "m6i.large", "3", "0.096", "per", "hour", "0.288", "210.24"]
    assert rows[6].split() == ["NAT", "traffic", "by", "use", "0.045", "per", "GB", "by", "use", "by", "use"]
    assert rows[15].split() == ["together", "0.456", "333.24"]
    assert rows[-1].startswith("List prices of us-west-2, written down 2026-01-02")
    assert "EKS control plane: 0.60 an hour in extended support." in rows, "old versions cost more, unasked"
    assert any(row.startswith("Not counted: ") for row in rows)


@pytest.mark.parametrize("stack", stack_files())
def test_every_stack_of_ours_has_a_price_for_all_that_runs_by_the_hour(stack: str) -> None:
    cost = estimate(stack_settings(stack))
    assert [line.item for line in cost.lines if line.quantity is not None and line.price is None] == []
    assert cost.monthly > 200


def test_prices_are_dated_sourced_and_positive() -> None:
    table = yaml.safe_load(PRICES.read_text())
    assert table["date"].year >= 2026
    assert all(source.startswith("https://aws.amazon.com/") for source in table["sources"])
    assert {"us-west-2", "us-west-1", "eu-west-1", "us-east-1"} <= set(table["regions"])
    for region in (table["everywhere"], *table["regions"].values()):
        numbers = {**region, **region.get("instanceHour", {})}
        numbers.pop("instanceHour", None)
        assert all(isinstance(number, float) and 0 < number < 100 for number in numbers.values()), numbers


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "there is no Pulumi.mine.yaml. Name one of dev, local, prod, tutorial."),
        ("config: {'paddle-on-aws:trainer': 3}", "trainer: 3 is not a setting of this program"),
    ],
)
def test_a_stack_that_cannot_be_read(tmp_path: Path, written: str | None, words: str) -> None:
    shutil.copy(PROJECT / "Pulumi.yaml", tmp_path)
    for stack in stack_files():
        (tmp_path / f"Pulumi.{stack}.yaml").touch()
    if written:
        (tmp_path / "Pulumi.mine.yaml").write_text(written)
    with pytest.raises(PriceError) as caught:
        stack_settings("mine", tmp_path)
    assert words in str(caught.value)


def test_another_checkout_has_its_own_defaults(tmp_path: Path) -> None:
    declared = {"config": {"workers.count": {"default": 7}}}
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(declared))
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {'aws:region': us-west-2}")
    assert stack_settings("dev", tmp_path) == dev(workers={"count": 7})


def test_no_price_hangs_on_a_secret(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Pulumi.yaml", tmp_path)
    config = {"aws:region": "us-west-2", "paddle-on-aws:data": {"source": {"secure": "v1:abc"}}}
    (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    assert estimate(stack_settings("dev", tmp_path)).monthly == estimate(dev()).monthly


def test_the_command_line_ends_in_a_table_or_in_one_line() -> None:
    def price(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "price", *arguments]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert "together" in price("tutorial").stdout
    missing = price("nope")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert missing.stderr.startswith("error: nope: there is no Pulumi.nope.yaml")
