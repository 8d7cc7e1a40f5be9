"""Requests that SNS and AWS Budgets reject are rejected by the emulated AWS too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"
BUDGET = {"BudgetName": "b", "BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": {"Amount": "9", "Unit": "USD"}}
WARNING = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
SUBSCRIBERS = [{"SubscriptionType": "EMAIL", "Address": "team@example.com"}]
Aws = Callable[[str], Any]


@pytest.fixture
def topic(aws: Aws) -> Iterator[str]:
    arn = aws("sns").create_topic(Name="rules")["TopicArn"]
    yield arn
    aws("sns").delete_topic(TopicArn=arn)


@pytest.fixture
def budget(aws: Aws) -> Iterator[dict[str, str]]:
    aws("budgets").create_budget(AccountId=ACCOUNT, Budget=BUDGET)
    yield {"AccountId": ACCOUNT, "BudgetName": "b"}
    aws("budgets").delete_budget(AccountId=ACCOUNT, BudgetName="b")


def pending(aws: Aws, arn: str) -> str:
    return str(aws("sns").get_subscription_attributes(SubscriptionArn=arn)["Attributes"]["PendingConfirmation"])


def test_an_address_must_confirm_before_its_subscription_can_be_deleted(aws: Aws, topic: str) -> None:
    sns = aws("sns")
    arn = sns.subscribe(TopicArn=topic, Protocol="email", Endpoint="team@example.com", ReturnSubscriptionArn=True)[
        "SubscriptionArn"
    ]
    assert pending(aws, arn) == "true"
    with pytest.raises(ClientError, match="pending confirmation"):
        sns.unsubscribe(SubscriptionArn=arn)
    sns.confirm_subscription(TopicArn=topic, Token=arn)
    assert pending(aws, arn) == "false"
    sns.unsubscribe(SubscriptionArn=arn)
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_an_endpoint_must_be_an_address(aws: Aws, topic: str) -> None:
    with pytest.raises(ClientError, match="InvalidParameter"):
        aws("sns").subscribe(TopicArn=topic, Protocol="email", Endpoint="team")


@pytest.mark.parametrize("subject", ["two\nlines", "caf\u00e9", "x" * 101])
def test_a_subject_is_one_short_line_of_ascii(aws: Aws, topic: str, subject: str) -> None:
    with pytest.raises(ClientError):
        aws("sns").publish(TopicArn=topic, Subject=subject, Message="text")


@pytest.mark.parametrize("name", ["a:b", "a\\b", "x" * 101])
def test_a_budget_needs_a_valid_name(aws: Aws, name: str) -> None:
    with pytest.raises(ClientError):
        aws("budgets").create_budget(AccountId=ACCOUNT, Budget={**BUDGET, "BudgetName": name})


def test_a_budget_answers_its_amount_with_a_point(aws: Aws, budget: dict[str, str]) -> None:
    assert aws("budgets").describe_budget(**budget)["Budget"]["BudgetLimit"]["Amount"] == "9.0"


def test_a_notification_exists_once_and_has_an_address(aws: Aws, budget: dict[str, str]) -> None:
    budgets = aws("budgets")
    budgets.create_notification(**budget, Notification=WARNING, Subscribers=SUBSCRIBERS)
    with pytest.raises(ClientError, match="Duplicate"):
        budgets.create_notification(**budget, Notification=WARNING, Subscribers=SUBSCRIBERS)
    no_address = [{"SubscriptionType": "EMAIL", "Address": "team"}]
    with pytest.raises(ClientError, match="InvalidParameter"):
        budgets.create_notification(**budget, Notification={**WARNING, "Threshold": 90.0}, Subscribers=no_address)
