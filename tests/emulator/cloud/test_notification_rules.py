"""Requests that SNS and AWS Budgets reject are rejected by the emulated AWS too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.cloud.conftest import ACCOUNT, Aws, refusal

BUDGET = {"BudgetName": "b", "BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": {"Amount": "9", "Unit": "USD"}}
WARNING = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
SUBSCRIBERS = [{"SubscriptionType": "EMAIL", "Address": "team@example.com"}]


@pytest.fixture
def topic(aws: Aws, name: str) -> str:
    return str(aws("sns").create_topic(Name=name)["TopicArn"])


def pending(aws: Aws, arn: str) -> str:
    return str(aws("sns").get_subscription_attributes(SubscriptionArn=arn)["Attributes"]["PendingConfirmation"])


def test_an_address_must_confirm_before_its_subscription_can_be_deleted(aws: Aws, topic: str) -> None:
    sns = aws("sns")
    arn = sns.subscribe(TopicArn=topic, Protocol="email", Endpoint="team@example.com", ReturnSubscriptionArn=True)[
        "SubscriptionArn"
    ]
    assert pending(aws, arn) == "true"
    assert "pending confirmation" in refusal(sns.unsubscribe, SubscriptionArn=arn)
    sns.confirm_subscription(TopicArn=topic, Token=arn)
    assert pending(aws, arn) == "false"
    sns.unsubscribe(SubscriptionArn=arn)
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_an_endpoint_must_be_an_address(aws: Aws, topic: str) -> None:
    refused = refusal(aws("sns").subscribe, TopicArn=topic, Protocol="email", Endpoint="team")
    assert refused.startswith("InvalidParameter")


@pytest.mark.parametrize("subject", ["two\nlines", "caf\u00e9", "x" * 101])
def test_a_subject_is_one_short_line_of_ascii(aws: Aws, topic: str, subject: str) -> None:
    refused = refusal(aws("sns").publish, TopicArn=topic, Subject=subject, Message="text")
    assert refused.startswith("InvalidParameter")


@pytest.mark.parametrize("budget", ["a:b", "a\\b", "x" * 101])
def test_a_budget_needs_a_valid_name(aws: Aws, budget: str) -> None:
    create = aws("budgets").create_budget
    assert "InvalidParameter" in refusal(create, AccountId=ACCOUNT, Budget={**BUDGET, "BudgetName": budget})


def test_a_budget_answers_its_amount_with_a_point_and_has_each_notification_once(aws: Aws, name: str) -> None:
    budgets, budget = aws("budgets"), {"AccountId": ACCOUNT, "BudgetName": name}
    budgets.create_budget(AccountId=ACCOUNT, Budget={**BUDGET, "BudgetName": name})
    assert budgets.describe_budget(**budget)["Budget"]["BudgetLimit"]["Amount"] == "9.0"
    warning: dict[str, Any] = {**budget, "Notification": WARNING, "Subscribers": SUBSCRIBERS}
    budgets.create_notification(**warning)
    assert "Duplicate" in refusal(budgets.create_notification, **warning)
    warning |= {"Notification": {**WARNING, "Threshold": 90.0}}
    warning["Subscribers"] = [{"SubscriptionType": "EMAIL", "Address": "team"}]
    assert "InvalidParameter" in refusal(budgets.create_notification, **warning)
