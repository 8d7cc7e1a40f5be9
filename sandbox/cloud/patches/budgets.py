"""Budgets patches: tags, updates, the subscribers of a notification, and AWS's rules for a new budget.

- A name has at most 100 characters, without a colon and a backslash.
- A notification needs one to ten e-mail addresses, and exists once.
- An amount is answered with a decimal point.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moto.budgets.exceptions import DuplicateRecordException, NotFoundException
from moto.budgets.models import Budget, BudgetsBackend
from moto.budgets.responses import BudgetsResponse
from moto.core.exceptions import JsonRESTError

_create_budget = BudgetsResponse.create_budget
_create_notification = BudgetsBackend.create_notification


def _invalid(message: str) -> JsonRESTError:
    return JsonRESTError("InvalidParameterException", message)


def _of(response: BudgetsResponse, name: str) -> Budget:
    account = response._get_param("AccountId") or response.current_account
    found = response.backend.budgets[account].get(name)
    if found is None:
        raise NotFoundException(f"Unable to get budget: {name} - the budget doesn't exist.")
    return found


def _with_point(budget: dict[str, Any]) -> dict[str, Any]:
    limit = budget.get("BudgetLimit")
    return {**budget, "BudgetLimit": {**limit, "Amount": str(float(limit["Amount"]))}} if limit else budget


def _create_checked(self: BudgetsResponse) -> str:
    name, account = self._get_param("Budget")["BudgetName"], self._get_param("AccountId")
    if not re.fullmatch(r"[^:\\]{1,100}", name) or "/action/" in name:
        raise _invalid(f"Invalid budget name: {name}")
    answer = _create_budget(self)
    made = self.backend.budgets[account][name]
    made.budget = _with_point(made.budget)
    made.tags = {each["Key"]: each["Value"] for each in self._get_param("ResourceTags") or ()}  # type: ignore[attr-defined]
    return answer


def _update_budget(self: BudgetsResponse) -> str:
    new = self._get_param("NewBudget")
    found = _of(self, new["BudgetName"])
    found.budget = {**found.budget, **_with_point(new)}
    return json.dumps({})


def _notify_checked(
    self: BudgetsBackend, account_id: str, budget_name: str, notification: dict[str, Any], subscribers: Any
) -> None:
    if not 1 <= len(subscribers or ()) <= 11 or not all("@" in each["Address"] for each in subscribers):
        raise _invalid("A notification needs subscribers with an e-mail address")
    budget = self.budgets[account_id].get(budget_name)
    if budget and notification in budget.get_notifications():
        raise DuplicateRecordException(record_type="notification", record_name=str(notification))
    _create_notification(self, account_id, budget_name, notification, subscribers)


def _describe_subscribers(self: BudgetsResponse) -> str:
    asked = self._get_param("Notification")
    for each in _of(self, self._get_param("BudgetName")).notifications:
        if asked.items() <= each.details.items():
            return json.dumps({"Subscribers": each.subscribers})
    raise NotFoundException("Unable to get subscribers - the notification doesn't exist.")


def _tags(self: BudgetsResponse) -> dict[str, str]:
    name = self._get_param("ResourceARN").rpartition(":budget/")[2]
    found: dict[str, str] = _of(self, name).tags  # type: ignore[attr-defined]
    return found


def _list_tags(self: BudgetsResponse) -> str:
    return json.dumps({"ResourceTags": [{"Key": key, "Value": value} for key, value in _tags(self).items()]})


def _tag(self: BudgetsResponse) -> str:
    _tags(self).update({each["Key"]: each["Value"] for each in self._get_param("ResourceTags")})
    return json.dumps({})


def _untag(self: BudgetsResponse) -> str:
    tags = _tags(self)
    for key in self._get_param("ResourceTagKeys"):
        tags.pop(key, None)
    return json.dumps({})


def apply() -> None:
    BudgetsBackend.create_notification = _notify_checked  # type: ignore[method-assign]
    BudgetsResponse.create_budget = _create_checked  # type: ignore[method-assign]
    BudgetsResponse.update_budget = _update_budget  # type: ignore[attr-defined]
    BudgetsResponse.describe_subscribers_for_notification = _describe_subscribers  # type: ignore[attr-defined]
    BudgetsResponse.list_tags_for_resource = _list_tags  # type: ignore[attr-defined]
    BudgetsResponse.tag_resource = _tag  # type: ignore[attr-defined]
    BudgetsResponse.untag_resource = _untag  # type: ignore[attr-defined]
