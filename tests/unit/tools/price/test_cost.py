"""The price of a stack: each item from the settings, no guesses, and the sum calculated by hand."""

import dataclasses
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings.schema import Notify, Settings
from settings.stack_file import StackFileError, stack_settings
from tests.unit.program import PROJECT, stack_files
from tools.price.cost import PRICES, Estimate, Line, difference, estimate, summary

TABLE = yaml.safe_load("""
date: '2026-01-02'
standardSupportEnds: {'1.35': '2027-03-27'}
everywhere: {clusterHour: 0.1, addressHour: 0.005, keyMonth: 1, zoneMonth: 0.5, emails: 2}
regions:
  us-west-2:
    {diskGiBMonth: 0.08, natHour: 0.045, natGB: 0.045, efsGiBMonth: 0.3, efsReadGB: 0.03, efsWriteGB: 0.06,
     s3GiBMonth: 0.023, logsGB: 0.5, instanceHour: {m6i.large: 0.096}}
""")


def dev(**changes: Any) -> Settings:
    """The settings of stack dev, with these changes. `workers` changes single worker settings."""
    settings = stack_settings("dev")
    workers = dataclasses.replace(settings.workers, **changes.pop("workers", {}))
    return dataclasses.replace(settings, workers=workers, **changes)


def lines(cost: Estimate) -> dict[str, Line]:
    return {line.item: line for line in cost.lines}


def test_the_price_of_dev_is_the_sum_of_its_items() -> None:
    cost = estimate(dev(), TABLE)
    paid = {line.item: str(line.monthly.quantize(Decimal("0.01"))) for line in cost.lines if line.monthly is not None}
    assert paid == {
        "EKS control plane": "73.00",
        "workers, m6i.large": "210.24",
        "worker disks, gp3": "12.00",
        "public IPv4 addresses": "10.95",
        "KMS key": "1.00",
        "Route53 private zone": "0.50",
    }
    assert cost.monthly == Decimal("307.69")
    assert round(cost.hourly, 4) == Decimal("0.4215")
    assert cost.unknown == ()
    assert cost.by_use == ("EFS storage", "EFS reads", "EFS writes", "S3 storage")
    with_existing_key = estimate(dev(kms_key_arn="arn:aws:kms:us-west-2:123456789012:key/1"), TABLE)
    assert with_existing_key.monthly == cost.monthly - Decimal("1.00")
    assert "KMS key" not in lines(with_existing_key)
    logged = estimate(dev(control_plane_logs=("audit",)), TABLE)
    assert logged.by_use == (*cost.by_use, "control plane logs")
    notified = estimate(dev(notify=Notify("team@example.com", 400)), TABLE)
    assert (notified.by_use, notified.unknown) == ((*cost.by_use, "e-mail messages"), ())


PRINTED = """\
item                   quantity  unit price           USD per hour  USD per month
EKS control plane             1  0.10 per hour               0.100          73.00
workers, x9.huge              3  unknown                   unknown        unknown
worker disks, gp3           150  0.08 per GiB-month          0.016          12.00
public IPv4 addresses         3  0.005 per hour              0.015          10.95
KMS key                       1  1.00 per month              0.001           1.00
Route53 private zone          1  0.50 per month              0.001           0.50
EFS storage              by use  0.30 per GiB-month         by use         by use
EFS reads                by use  0.03 per GB                by use         by use
EFS writes               by use  0.06 per GB                by use         by use
S3 storage               by use  0.023 per GiB-month        by use         by use

total                                                        0.133          97.45

Paused (workers.count: 0): 0.102 USD per hour, 74.50 USD per month.
Not included, because tools/price/prices.yaml has no price: workers, x9.huge.
Not included, because AWS bills it by use: EFS storage, EFS reads, EFS writes, S3 storage.
Never included: requests to S3 and KMS, traffic between zones and out of AWS, tax.
EKS control plane: standard support of Kubernetes 1.35 ends on 2027-03-27; then EKS upgrades the cluster.
KMS key: each of the first two yearly rotations adds the same amount.
List prices of us-west-2 from 2026-01-02 (tools/price/prices.yaml). One month is 730 hours.
"""


def test_the_table_is_printed_with_everything_that_it_does_not_include() -> None:
    cost = estimate(dev(workers={"instance_types": ("x9.huge",)}), TABLE)
    assert f"{cost}\n" == PRINTED
    assert summary(cost) == "$97.45 per month ($0.133 per hour), not including workers, x9.huge"


@pytest.mark.parametrize(
    ("nat", "zones", "gateways", "addresses"),
    [("none", (), 0, 3), ("single", (), 1, 1), ("perZone", (), 2, 2), ("perZone", ("a", "b", "c"), 3, 3)],
)
def test_only_gateways_have_public_addresses_if_workers_are_private(
    nat: str, zones: tuple[str, ...], gateways: int, addresses: int
) -> None:
    items = lines(estimate(dev(nat_gateways=nat, availability_zones=zones, workers={"zones": "all"}), TABLE))
    assert items["public IPv4 addresses"].quantity == addresses
    assert ("NAT gateways" in items, "NAT traffic" in items) == (gateways > 0, gateways > 0)
    if gateways:
        assert items["NAT gateways"].quantity == gateways
        assert items["NAT traffic"].monthly is None


def test_a_region_without_prices_has_only_global_prices() -> None:
    cost = estimate(dev(aws={"region": "mars-1"}), TABLE)
    known = {line.item for line in cost.lines if line.price is not None}
    assert known == {"EKS control plane", "public IPv4 addresses", "KMS key", "Route53 private zone"}


def test_the_spot_price_is_unknown_but_has_a_maximum() -> None:
    cost = estimate(dev(workers={"capacity": "spot"}), TABLE)
    assert cost.unknown == ("workers, m6i.large spot",)
    note = lines(cost)["workers, m6i.large spot"].note
    assert note == "the spot price changes, at most 0.288 per hour for all workers"
    nowhere = estimate(dev(workers={"capacity": "spot", "instance_types": ("x9.huge",)}), TABLE)
    assert lines(nowhere)["workers, x9.huge spot"].note == "the spot price changes"


def test_a_difference_shows_both_prices() -> None:
    before, after = estimate(dev(), TABLE), estimate(dev(workers={"count": 4}), TABLE)
    assert difference(before, after) == "$307.69 -> $385.42 per month ($0.528 per hour), +$77.73 per month"
    assert difference(after, before).endswith(", -$77.73 per month")
    assert difference(before, before) == "unchanged: $307.69 per month ($0.421 per hour)"
    spot = estimate(dev(workers={"capacity": "spot"}), TABLE)
    assert "not including workers, m6i.large spot" in difference(before, spot)
    huge, huger = (estimate(dev(workers={"instance_types": (name,)}), TABLE) for name in ("x9.huge", "x9.huger"))
    unknown = ", not including workers, x9.huger, +$0.00 per month"
    assert difference(huge, huger).endswith(unknown), "an unknown price is not 'unchanged'"


def test_a_nat_gateway_is_billed_by_the_hour_and_by_use() -> None:
    rows = [row.split() for row in str(estimate(dev(nat_gateways="single"), TABLE)).splitlines()]
    assert ["workers,", "m6i.large", "3", "0.096", "per", "hour", "0.288", "210.24"] in rows
    assert ["NAT", "traffic", "by", "use", "0.045", "per", "GB", "by", "use", "by", "use"] in rows
    assert ["total", "0.456", "333.24"] in rows


def test_a_gateway_per_zone_means_per_zone_with_workers() -> None:
    assert lines(estimate(dev(nat_gateways="perZone"), TABLE))["NAT gateways"].quantity == 1


def test_both_states_are_printed_running_and_paused() -> None:
    """Without workers: control plane, key and zone. Their disks and addresses cost nothing either."""
    paused = "Paused (workers.count: 0): 0.102 USD per hour, 74.50 USD per month."
    assert paused in str(estimate(dev(), TABLE)).splitlines()
    resting = estimate(dev(workers={"count": 0}), TABLE)
    assert resting.monthly == Decimal("74.50")
    assert "With workers.count: 3: 0.421 USD per hour, 307.69 USD per month." in str(resting).splitlines()


def test_a_kubernetes_version_without_a_date_is_named() -> None:
    later = lines(estimate(dev(kubernetes_version="1.99"), TABLE))["EKS control plane"].note
    assert later.startswith("standard support of Kubernetes 1.99 has no date in tools/price/prices.yaml")


@pytest.mark.parametrize("stack", stack_files())
def test_every_shipped_stack_has_a_price_for_each_hourly_item(stack: str) -> None:
    cost = estimate(stack_settings(stack))
    assert [line.item for line in cost.lines if line.quantity is not None and line.price is None] == []
    assert cost.monthly > 200
    assert "ends on 20" in lines(cost)["EKS control plane"].note


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
        (None, 'stack: "mine" has no file Pulumi.mine.yaml. Write one of dev, local, prod, tutorial.'),
        ("config: {'paddle-on-aws:trainer': 3}", "trainer: 3 is not a setting of this program"),
    ],
)
def test_a_stack_that_cannot_be_read(tmp_path: Path, written: str | None, words: str) -> None:
    shutil.copy(PROJECT / "Pulumi.yaml", tmp_path)
    for stack in stack_files():
        (tmp_path / f"Pulumi.{stack}.yaml").touch()
    if written:
        (tmp_path / "Pulumi.mine.yaml").write_text(written)
    with pytest.raises(StackFileError) as caught:
        stack_settings("mine", tmp_path)
    assert words in str(caught.value)


def test_another_checkout_has_its_own_defaults(tmp_path: Path) -> None:
    declared = {"config": {"workers.count": {"default": 7}}}
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(declared))
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {'aws:region': us-west-2}")
    assert stack_settings("dev", tmp_path) == dev(workers={"count": 7})


@pytest.mark.parametrize("source", [{"secure": "v1:abc"}, ["https://host/a", {"secure": "v1:abc"}]])
def test_secrets_do_not_affect_the_price(tmp_path: Path, source: object) -> None:
    shutil.copy(PROJECT / "Pulumi.yaml", tmp_path)
    config = {"aws:region": "us-west-2", "paddle-on-aws:data": {"source": source}}
    (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    assert estimate(stack_settings("dev", tmp_path)).monthly == estimate(dev()).monthly


def test_the_command_prints_a_table_or_an_error_of_one_line() -> None:
    def price(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.price", *arguments]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert "total" in price("tutorial").stdout
    missing = price("nope")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert missing.stderr.startswith('error: stack: "nope" has no file Pulumi.nope.yaml')
