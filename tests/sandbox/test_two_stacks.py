"""Two stacks in one account: `local`, and `prod` in another region."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.sandbox.checkout import ROOT, Checkout
from tests.sandbox.inventory import inventory
from tools.kubernetes_client import PERSISTENT_VOLUME, Api, load_kubeconfig

ADMIN = "arn:aws:iam::123456789012:role/admin"


@pytest.fixture
def checkout(cached: None, tmp_path: Path) -> Iterator[Checkout]:
    """The settings of `prod`, but with two trainers: a small machine cannot run eight."""
    made = Checkout.make(tmp_path)
    made.stub_training()
    made.set(trainers=1, workers={"count": 1}, job={"passes": 1})
    file = made.project / "Pulumi.prod.yaml"
    shutil.copy(ROOT / "Pulumi.prod.yaml", file)
    written = yaml.safe_load(file.read_text())
    settings = {key.removeprefix("paddle-on-aws:"): value for key, value in written["config"].items()}
    settings["workers"] |= {"count": 2}
    settings["apiAccessCidrs"] = ["8.8.8.0/24"]
    settings |= {"trainers": 2, "admins": [ADMIN], "data": {"records": 1000}}
    settings["job"] |= {"passes": 1}
    named = {key if key.startswith("aws:") else f"paddle-on-aws:{key}": value for key, value in settings.items()}
    file.write_text(yaml.safe_dump({"config": named}))
    yield made
    made.stop()


def test_two_stacks(checkout: Checkout) -> None:
    up_creates_both_stacks(checkout)
    prod_has_the_efs_driver_and_its_administrators(checkout)
    the_second_stack_changes_nothing_in_the_first(checkout)
    destroy_refuses_retained_data_until_the_setting_changes(checkout)


def held(checkout: Checkout, region: str) -> dict[str, list[str]]:
    return inventory(partial(checkout.client, region=region))


def up_creates_both_stacks(checkout: Checkout) -> None:
    checkout.up()
    checkout.client("iam").create_role(RoleName="admin", AssumeRolePolicyDocument='{"Version":"2012-10-17"}')
    checkout.succeed("--stack", "prod", "up")
    eu, us = (held(checkout, region) for region in ("eu-west-1", "us-west-2"))
    assert (eu["clusters"], us["clusters"]) == (["paddle-prod"], ["paddle-cluster"])
    assert (len(eu["nat gateways"]), len(us["nat gateways"])) == (1, 0)


def prod_has_the_efs_driver_and_its_administrators(checkout: Checkout) -> None:
    eks = checkout.client("eks", "eu-west-1")
    assert "aws-efs-csi-driver" in eks.list_addons(clusterName="paddle-prod")["addons"]
    assert ADMIN in eks.list_access_entries(clusterName="paddle-prod")["accessEntries"]
    api = Api(load_kubeconfig(str(checkout.sandbox / "stacks/prod/kubernetes/kubeconfig")))
    (volume,) = api.list(PERSISTENT_VOLUME)
    assert volume["spec"]["csi"]["driver"] == "efs.csi.aws.com"


def the_second_stack_changes_nothing_in_the_first(checkout: Checkout) -> None:
    checkout.succeed("pulumi", "preview", "--refresh", "--expect-no-changes")


def destroy_refuses_retained_data_until_the_setting_changes(checkout: Checkout) -> None:
    before = held(checkout, "eu-west-1")
    # Buckets are listed in every region.
    assert [len(before[kind]) for kind in ("file systems", "buckets", "keys")] == [1, 2, 1]
    assert "because it is protected" in checkout.refused("--stack", "prod", "pulumi", "destroy", "--yes")
    assert held(checkout, "eu-west-1") == before

    file = checkout.project / "Pulumi.prod.yaml"
    file.write_text(file.read_text().replace("retainData: true", "retainData: false"))
    checkout.succeed("--stack", "prod", "up")
    checkout.succeed("--stack", "prod", "pulumi", "destroy", "--yes", "--skip-preview")
    after = held(checkout, "eu-west-1")
    assert [len(after[kind]) for kind in ("clusters", "file systems", "keys", "buckets")] == [0, 0, 0, 1]
    assert held(checkout, "us-west-2")["clusters"] == ["paddle-cluster"]
