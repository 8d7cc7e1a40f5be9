"""AWS Budgets: cost budgets with e-mail warnings."""

from __future__ import annotations

from typing import Any

from sandbox.plugins.aws.cloud import Cloud, pairs, plain, unpaired
from sandbox.plugins.aws.props import COMPUTED, REPLACES, REQUIRED, blocks, number, ordered, text, texts
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.wire import State

NOTIFICATION = ("comparisonOperator", "notificationType", "threshold", "thresholdType")


def _budget(want: Checked) -> dict[str, Any]:
    limit = {"Amount": want["limitAmount"], "Unit": want["limitUnit"]}
    return {
        "BudgetName": want["name"],
        "BudgetType": want["budgetType"],
        "TimeUnit": want["timeUnit"],
        "BudgetLimit": limit,
        "CostFilters": {each["name"]: each["values"] for each in want.get("costFilters") or ()},
    }


def _address(cloud: Cloud, want: Checked) -> dict[str, str]:
    return {"AccountId": want.get("accountId") or cloud.account(), "BudgetName": want["name"]}


def _notification(want: Checked) -> dict[str, Any]:
    return {name[0].upper() + name[1:]: want[name] for name in NOTIFICATION}


def _add(cloud: Cloud, budget: dict[str, str], notifications: list[Checked]) -> None:
    for each in notifications:
        emails = [
            {"SubscriptionType": "EMAIL", "Address": address} for address in each.get("subscriberEmailAddresses") or ()
        ]
        cloud("budgets:CreateNotification", **budget, Notification=_notification(each), Subscribers=emails)


def _create(cloud: Cloud, want: Checked) -> str:
    budget = _address(cloud, want)
    account = budget["AccountId"]
    cloud("budgets:CreateBudget", AccountId=account, Budget=_budget(want), ResourceTags=pairs(want["tagsAll"]))
    _add(cloud, budget, want.get("notifications") or [])
    return f"{account}:{want['name']}"


def _parts(identity: str) -> dict[str, str]:
    account, _, name = identity.partition(":")
    return {"AccountId": account, "BudgetName": name}


def _arn(cloud: Cloud, identity: str) -> str:
    account, _, name = identity.partition(":")
    return f"arn:{cloud.partition()[0]}:budgets::{account}:budget/{name}"


def _read(cloud: Cloud, identity: str, before: Checked) -> State:
    parts = _parts(identity)
    found = cloud("budgets:DescribeBudget", **parts)["Budget"]
    notifications = []
    for each in cloud("budgets:DescribeNotificationsForBudget", **parts)["Notifications"]:
        asked = {key: each[key] for key in ("ComparisonOperator", "NotificationType", "Threshold", "ThresholdType")}
        answer = cloud("budgets:DescribeSubscribersForNotification", **parts, Notification=asked)
        emails = [one["Address"] for one in answer["Subscribers"] if one["SubscriptionType"] == "EMAIL"]
        notifications.append({**plain(asked), "subscriberEmailAddresses": emails})
    arn = _arn(cloud, identity)
    return {
        **plain(found),
        "accountId": parts["AccountId"],
        "name": parts["BudgetName"],
        "arn": arn,
        "limitAmount": found["BudgetLimit"]["Amount"],
        "limitUnit": found["BudgetLimit"]["Unit"],
        "costFilters": [{"name": key, "values": values} for key, values in found.get("CostFilters", {}).items()],
        "notifications": notifications,
        "tagsAll": unpaired(cloud("budgets:ListTagsForResource", ResourceARN=arn)["ResourceTags"]),
    }


def _update(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    parts = _parts(identity)
    if changed & {"budgetType", "timeUnit", "limitAmount", "limitUnit", "costFilters"}:
        cloud("budgets:UpdateBudget", AccountId=parts["AccountId"], NewBudget=_budget(want))
    if "notifications" in changed:
        for each in have.get("notifications") or ():
            cloud("budgets:DeleteNotification", **parts, Notification=_notification(each))
        _add(cloud, parts, want.get("notifications") or [])
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("budgets:UntagResource", ResourceARN=_arn(cloud, identity), ResourceTagKeys=removed)
    if tags:
        cloud("budgets:TagResource", ResourceARN=_arn(cloud, identity), ResourceTags=pairs(tags))


def _delete(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("budgets:DeleteBudget", **_parts(identity))


def _same_amount(one: str, other: str) -> bool:
    """AWS answers 100.0 for 100."""
    try:
        return float(one) == float(other)
    except ValueError:
        return False


ROWS = [
    Row(
        "aws:budgets/budget:Budget",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "accountId": text(REPLACES | COMPUTED),
            "budgetType": text(REQUIRED),
            "timeUnit": text(REQUIRED),
            "limitAmount": text(COMPUTED, same=_same_amount),
            "limitUnit": text(COMPUTED),
            "costFilters": blocks({"name": text(REQUIRED), "values": ordered(REQUIRED)}, COMPUTED),
            "notifications": blocks(
                {
                    "comparisonOperator": text(REQUIRED),
                    "notificationType": text(REQUIRED),
                    "threshold": number(REQUIRED),
                    "thresholdType": text(REQUIRED),
                    "subscriberEmailAddresses": texts(),
                }
            ),
            **TAGS,
        },
        outputs=["arn"],
        autoname=Autoname(),
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
