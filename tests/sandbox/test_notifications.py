"""With notify.email: the message after a failed training, the message after a good one, and what destroy leaves."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sandbox.checkout import Checkout

EMAIL, TRAINING = "team@example.com", "paddle-cluster-job"
FAILING = "import sys\nsys.exit('ValueError: the column price is missing')\n"


@dataclass(frozen=True)
class Mailbox:
    """What the export Job sent, as the emulated AWS recorded it."""

    checkout: Checkout

    def read(self) -> list[tuple[str, str]]:
        """Subject and text of each message, the oldest first."""
        port = json.loads((self.checkout.sandbox / "run/aws.json").read_text())["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/data.json", timeout=60) as answer:
            topics = json.load(answer)["sns"]["Topic"]
        return [(subject, text) for topic in topics for _, text, subject, *_ in topic["sent_notifications"]]


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = Checkout.make(tmp_path_factory.mktemp("notifications"))
    code = checkout.project / "failing"
    code.mkdir()
    (code / "train.py").write_text(FAILING)
    yield checkout
    checkout.run("down")


@pytest.fixture(scope="module")
def failed_up(checkout: Checkout) -> str:
    """The output of `up` with code that fails."""
    checkout.set(
        notify={"email": EMAIL, "monthlyBudget": 400},
        job={"passes": 1, "attempts": 1, "code": "failing"},
        data={"records": 300},
    )
    done = checkout.run("up")
    assert done.returncode == 1, done.stdout
    assert f"The training Job {TRAINING} failed" in done.stdout, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def failure(checkout: Checkout, failed_up: str) -> list[tuple[str, str]]:
    """The messages after the failed training."""
    return Mailbox(checkout).read()


def test_the_reason_of_a_failed_training_is_sent_once(failure: list[tuple[str, str]]) -> None:
    ((subject, text),) = failure
    assert subject == f"Training failed: {TRAINING}"
    assert "ValueError: the column price is missing" in text
    assert f"pulumi up --replace '**Job::{TRAINING}'" in text


def test_up_reports_the_reason_of_the_training(checkout: Checkout, failed_up: str) -> None:
    errors = failed_up[failed_up.index("error:") :]
    assert f"The training Job {TRAINING} failed, so there is nothing to export: " in errors
    assert "ValueError: the column price is missing" in errors
    status = checkout.job("paddle-export")["status"]
    assert (status["failed"], status.get("active", 0)) == (1, 0), "a second pod would send a second message"


def test_the_address_is_asked_and_the_budget_warns_it(checkout: Checkout, failed_up: str) -> None:
    sns, budgets = checkout.client("sns"), checkout.client("budgets")
    (topic,) = sns.list_topics()["Topics"]
    attributes = sns.get_topic_attributes(TopicArn=topic["TopicArn"])["Attributes"]
    (key,) = (checkout.client("kms").describe_key(KeyId=each)["KeyMetadata"]["Arn"] for each in key_ids(checkout))
    assert attributes["KmsMasterKeyId"] == key
    (subscription,) = sns.list_subscriptions_by_topic(TopicArn=topic["TopicArn"])["Subscriptions"]
    found = sns.get_subscription_attributes(SubscriptionArn=subscription["SubscriptionArn"])["Attributes"]
    assert (found["Protocol"], found["Endpoint"], found["PendingConfirmation"]) == ("email", EMAIL, "true")
    budget = {"AccountId": "123456789012", "BudgetName": "paddle-on-aws-local"}
    assert budgets.describe_budget(**budget)["Budget"]["CostFilters"] == {"TagKeyValue": ["user:stack$local"]}
    warnings = budgets.describe_notifications_for_budget(**budget)["Notifications"]
    assert sorted(each["Threshold"] for each in warnings) == [80, 100]
    for each in warnings:
        asked = {name: each[name] for name in ("NotificationType", "ComparisonOperator", "Threshold", "ThresholdType")}
        (subscriber,) = budgets.describe_subscribers_for_notification(**budget, Notification=asked)["Subscribers"]
        assert subscriber == {"SubscriptionType": "EMAIL", "Address": EMAIL}


def key_ids(checkout: Checkout) -> list[str]:
    return list(checkout.ids("aws:kms/key:").values())


def test_a_good_training_sends_its_numbers_and_commands(checkout: Checkout, failure: list[tuple[str, str]]) -> None:
    checkout.set(job={"code": "workloads/in_pod/quick_start"})
    checkout.up()
    before, *new = Mailbox(checkout).read()
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


def test_destroy_ends_the_unconfirmed_subscription_and_the_budget(checkout: Checkout, failed_up: str) -> None:
    client = checkout.client
    assert checkout.run("pulumi", "destroy", "--yes", "--skip-preview").returncode == 0
    assert client("sns").list_topics()["Topics"] == []
    assert client("sns").list_subscriptions()["Subscriptions"] == []
    assert client("budgets").describe_budgets(AccountId="123456789012")["Budgets"] == []
