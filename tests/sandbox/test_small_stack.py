"""A stack with one worker and one trainer: its messages, and a pause with `workers.count: 0`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.checkout import JOB, Checkout
from tests.sandbox.inventory import ACCOUNT, inventory
from tools.kubernetes_client import NODE

EMAIL, TRAINING = "team@example.com", "paddle-cluster-job"
FAILING = "import sys\nsys.exit('ValueError: the column price is missing')\n"

Jobs = dict[str, tuple[str, str]]


@pytest.fixture
def checkout(cached: None, tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path)
    code = made.project / "failing"
    code.mkdir()
    (code / "train.py").write_text(FAILING)
    made.set(
        trainers=1,
        workers={"count": 0},
        notify={"email": EMAIL, "monthlyBudget": 400},
        job={"passes": 1, "attempts": 1, "code": "failing"},
        data={"records": 300},
    )
    yield made
    made.stop()


def test_messages_and_a_pause(checkout: Checkout) -> None:
    a_new_stack_without_workers_is_refused_before_the_first_resource(checkout)
    a_new_revision_of_the_emulated_aws_is_started_by_up_only(checkout)
    failure = the_reason_of_a_failed_training_is_sent_once(checkout)
    a_good_training_sends_its_numbers_and_commands(checkout, failure)
    trained = jobs(checkout)
    assert trained.keys() == {"paddle-data", TRAINING, "paddle-export"}
    a_pause_removes_the_nodes_and_keeps_everything_else(checkout, trained)
    a_changed_job_is_refused_before_the_first_change(checkout, trained)
    more_workers_end_the_pause_and_repeat_no_job(checkout, trained)
    a_new_training_runs_after_the_pause(checkout, trained)
    destroy_ends_the_unconfirmed_subscription_and_the_budget(checkout)


def messages(checkout: Checkout) -> list[tuple[str, str]]:
    """Subject and text of each message that the emulated AWS has recorded, the oldest first."""
    with urllib.request.urlopen(f"{checkout.endpoint}/moto-api/data.json", timeout=60) as answer:
        topics = json.load(answer)["sns"]["Topic"]
    return [(subject, text) for topic in topics for _, text, subject, *_ in topic["sent_notifications"]]


def jobs(checkout: Checkout) -> Jobs:
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


def a_new_stack_without_workers_is_refused_before_the_first_resource(checkout: Checkout) -> None:
    shown = checkout.refused("up")
    assert "workers.count: 0 would create a stack that is already paused" in shown
    assert "Write at least as many workers as trainers" in shown
    empty = inventory(checkout.client)
    assert not [kind for kind in ("clusters", "file systems", "keys", "buckets", "endpoints") if empty[kind]]
    # Also without a preview.
    checkout.refused("pulumi", "up", "--yes", "--skip-preview")
    assert checkout.ids("aws:") == {}
    assert inventory(checkout.client) == empty


def a_new_revision_of_the_emulated_aws_is_started_by_up_only(checkout: Checkout) -> None:
    """Also a new revision of what runs the pods. `up` is the next step."""
    for folder in ("cloud", "node"):
        (checkout.project / f"sandbox/{folder}/new_code.py").touch()
    assert "by another revision. Run `make sandbox` first." in checkout.refused("pulumi", "preview")


def the_reason_of_a_failed_training_is_sent_once(checkout: Checkout) -> list[tuple[str, str]]:
    before = {name: checkout.pid(name) for name in ("aws", "workers-local")}
    checkout.set(workers={"count": 1})
    done = checkout.run("up")
    assert "starting over" in done.stdout
    assert all(checkout.pid(name) != pid for name, pid in before.items())
    assert done.returncode == 1, done.stdout
    errors = done.stdout[done.stdout.index("error:") :]
    assert f"The training Job {TRAINING} failed, so there is nothing to export: " in errors
    assert "ValueError: the column price is missing" in errors
    status = checkout.job("paddle-export")["status"]
    assert (status["failed"], status.get("active", 0)) == (1, 0), "a second pod would send a second message"
    ((subject, text),) = sent = messages(checkout)
    assert subject == f"Training failed: {TRAINING}"
    assert "ValueError: the column price is missing" in text
    assert f"pulumi up --replace '**Job::{TRAINING}'" in text
    return sent


def a_good_training_sends_its_numbers_and_commands(checkout: Checkout, failure: list[tuple[str, str]]) -> None:
    checkout.set(job={"code": "workloads/in_pod/quick_start"})
    checkout.up()
    before, *new = messages(checkout)
    assert [before] == failure
    ((subject, text),) = new
    assert subject == f"Model is ready: {TRAINING}"
    model = checkout.output("model")
    assert f"Model: {model}pass-00000/" in text
    assert f"aws s3 cp {model}pass-00000/ ./model --recursive --region us-west-2" in text
    done = read_json(checkout, f"{TRAINING}/output/pass-00000/done")
    assert f"accuracy: {done['accuracy']:.4g}" in text
    assert checkout.job("paddle-export")["status"]["succeeded"] == 1


def read_json(checkout: Checkout, key: str) -> Any:
    return json.loads(checkout.client("s3").get_object(Bucket=checkout.output("bucket"), Key=key)["Body"].read())


def a_pause_removes_the_nodes_and_keeps_everything_else(checkout: Checkout, trained: Jobs) -> None:
    assert len(checkout.api.list(NODE)) == 1
    resources, files = checkout.ids(""), results(checkout)
    checkout.set(workers={"count": 0})
    checkout.up()
    assert scaling(checkout) == {"desiredSize": 0, "minSize": 0, "maxSize": 1}
    assert checkout.api.list(NODE) == []
    assert jobs(checkout) == trained
    assert (checkout.ids(""), results(checkout)) == (resources, files)
    checkout.succeed("pulumi", "preview", "--expect-no-changes")


def a_changed_job_is_refused_before_the_first_change(checkout: Checkout, trained: Jobs) -> None:
    file = checkout.project / "Pulumi.local.yaml"
    before, resources, paused = file.read_text(), checkout.ids(""), inventory(checkout.client)
    checkout.set(job={"passes": 2})
    assert f"workers.count: 0 pauses the stack, and {TRAINING} needs workers" in checkout.refused("up")
    file.write_text(before)
    assert jobs(checkout) == trained
    assert (checkout.ids(""), inventory(checkout.client)) == (resources, paused)


def more_workers_end_the_pause_and_repeat_no_job(checkout: Checkout, trained: Jobs) -> None:
    files = results(checkout)
    checkout.set(workers={"count": 1})
    # Also this command gives the cluster the nodes of the new setting.
    checkout.succeed("pulumi", "up", "--yes", "--skip-preview")
    assert scaling(checkout)["desiredSize"] == 1
    assert len(checkout.api.list(NODE)) == 1
    assert jobs(checkout) == trained
    assert results(checkout) == files


def a_new_training_runs_after_the_pause(checkout: Checkout, trained: Jobs) -> None:
    checkout.set(job={"passes": 2})
    checkout.up()
    now = jobs(checkout)
    assert now["paddle-data"] == trained["paddle-data"]
    assert now[TRAINING] != trained[TRAINING]
    assert any("pass-00001" in file for file in results(checkout))


def destroy_ends_the_unconfirmed_subscription_and_the_budget(checkout: Checkout) -> None:
    client = checkout.client
    checkout.succeed("pulumi", "destroy", "--yes", "--skip-preview")
    assert client("sns").list_topics()["Topics"] == []
    assert client("sns").list_subscriptions()["Subscriptions"] == []
    assert client("budgets").describe_budgets(AccountId=ACCOUNT)["Budgets"] == []
