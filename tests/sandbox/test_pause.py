"""`workers.count: 0` pauses a stack after its training. The tests run in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.sandbox.checkout import JOB, Checkout
from tests.sandbox.inventory import inventory
from tools.kubernetes_client import NODE

JOBS = {"paddle-data", "paddle-cluster-job", "paddle-export"}
# One short training.
SMALL: Mapping[str, Any] = {"trainers": 1, "workers": {"count": 1}, "job": {"passes": 1}}


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path_factory.mktemp("pause"))
    made.stub_training()
    made.set(**SMALL)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def trained(checkout: Checkout) -> dict[str, tuple[str, str]]:
    """The Jobs after the training."""
    checkout.set(**SMALL)
    checkout.up()
    return jobs(checkout)


def jobs(checkout: Checkout) -> dict[str, tuple[str, str]]:
    """The UID and the end of each Job. A Job that was repeated has others."""
    found = checkout.api.list(JOB, "default")
    return {each["metadata"]["name"]: (each["metadata"]["uid"], each["status"]["completionTime"]) for each in found}


def scaling(checkout: Checkout) -> dict[str, int]:
    eks = checkout.client("eks")
    (group,) = eks.list_nodegroups(clusterName="paddle-cluster")["nodegroups"]
    found = eks.describe_nodegroup(clusterName="paddle-cluster", nodegroupName=group)["nodegroup"]
    return dict(found["scalingConfig"])


def results(checkout: Checkout) -> list[str]:
    """The files on the volume and the objects in the bucket."""
    (volume,) = checkout.sandbox.glob("stacks/local/workers/volumes/fs-*")
    objects = checkout.client("s3").list_objects_v2(Bucket=checkout.output("bucket"))["Contents"]
    files = [str(file.relative_to(volume)) for file in volume.rglob("*") if file.is_file()]
    return sorted([*files, *(each["Key"] for each in objects)])


def shown(output: str) -> str:
    """The output without its line breaks."""
    return " ".join(output.split())


def expect_no_changes(checkout: Checkout) -> None:
    done = checkout.run("pulumi", "preview", "--expect-no-changes")
    assert done.returncode == 0, done.stdout


def test_a_new_stack_without_workers_is_refused_before_the_first_resource(checkout: Checkout) -> None:
    # An invalid setting stops the program after the emulated AWS has started.
    checkout.set(trainers=0)
    assert "trainers: 0" in checkout.run("up").stdout
    empty = inventory(checkout.client)
    checkout.set(trainers=1, workers={"count": 0})
    refused = checkout.run("up")
    assert refused.returncode == 1
    assert "workers.count: 0 would create a stack that is already paused" in shown(refused.stdout)
    assert "Write at least as many workers as trainers" in shown(refused.stdout)
    # Also without a preview.
    assert checkout.run("pulumi", "up", "--yes", "--skip-preview").returncode != 0
    assert checkout.ids("aws:") == {}
    assert inventory(checkout.client) == empty


def test_a_pause_removes_the_nodes_and_keeps_everything_else(
    checkout: Checkout, trained: dict[str, tuple[str, str]]
) -> None:
    assert trained.keys() == JOBS
    assert len(checkout.api.list(NODE)) == 1
    resources, files = checkout.ids(""), results(checkout)
    checkout.set(workers={"count": 0})
    checkout.up()
    assert scaling(checkout) == {"desiredSize": 0, "minSize": 0, "maxSize": 1}
    assert checkout.api.list(NODE) == []
    assert jobs(checkout) == trained
    assert (checkout.ids(""), results(checkout)) == (resources, files)
    expect_no_changes(checkout)


@pytest.mark.parametrize("change", [{"job": {"name": "other"}}, {"job": {"passes": 2}}, {"data": {"records": 1000}}])
def test_a_changed_job_is_refused_before_the_first_change(
    checkout: Checkout, trained: dict[str, tuple[str, str]], change: dict[str, Any]
) -> None:
    file = checkout.project / "Pulumi.local.yaml"
    before, resources, paused = file.read_text(), checkout.ids(""), inventory(checkout.client)
    checkout.set(**change)
    refused = checkout.run("up")
    file.write_text(before)
    assert refused.returncode == 1
    assert "workers.count: 0 pauses the stack, and paddle-" in shown(refused.stdout)
    assert jobs(checkout) == trained
    assert (checkout.ids(""), inventory(checkout.client)) == (resources, paused)


def test_more_workers_end_the_pause_and_repeat_no_job(checkout: Checkout, trained: dict[str, tuple[str, str]]) -> None:
    files = results(checkout)
    checkout.set(workers={"count": 1})
    # Also this command gives the cluster the nodes of the new setting.
    done = checkout.run("pulumi", "up", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout
    assert scaling(checkout)["desiredSize"] == 1
    assert len(checkout.api.list(NODE)) == 1
    assert jobs(checkout) == trained
    assert results(checkout) == files
    expect_no_changes(checkout)


def test_a_new_training_runs_after_the_pause(checkout: Checkout, trained: dict[str, tuple[str, str]]) -> None:
    checkout.set(job={"passes": 2})
    checkout.up()
    now = jobs(checkout)
    assert now["paddle-data"] == trained["paddle-data"]
    assert now["paddle-cluster-job"] != trained["paddle-cluster-job"]
    assert any("pass-00001" in file for file in results(checkout))
