"""`preview` and `up` during a training do not touch it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube.client import POD
from tests.sandbox.checkout import Checkout, eventually

TRAINING = "paddle-cluster-job"
LONG = 60  # passes: the training still runs during the next commands


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = Checkout.make(tmp_path_factory.mktemp("running"))
    yield checkout
    checkout.run("down")


def running_pods(checkout: Checkout) -> set[str]:
    """The UIDs of the running trainers. Empty unless all are running."""
    pods = checkout.api.list(POD, "default", labelSelector=f"job-name={TRAINING}")
    running = {pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Running"}
    return running if len(running) == 3 else set()


def all_pods(checkout: Checkout) -> set[str]:
    pods = checkout.api.list(POD, "default", labelSelector=f"job-name={TRAINING}")
    return {pod["metadata"]["uid"] for pod in pods}


def test_preview_and_up_leave_a_training_alone_that_nobody_waits_for(checkout: Checkout) -> None:
    checkout.set(job={"wait": False, "passes": LONG})
    checkout.up()
    pods = eventually(lambda: running_pods(checkout), 120, "training did not start")
    preview = checkout.run("pulumi", "preview", "--diff")
    assert preview.returncode == 0, preview.stdout
    assert "kubernetes:batch/v1:Job" not in preview.stdout
    assert "nothing changed" in checkout.up()
    assert all_pods(checkout) == pods
