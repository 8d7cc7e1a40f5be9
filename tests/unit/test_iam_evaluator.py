"""The evaluator of IAM requests decides as the IAM user guide describes."""

from typing import Any

import pytest

from tests.iam_evaluator import Request, permitted, trusted

READ = Request("s3:GetObject", "arn:aws:s3:::data/file")


def statement(effect: str = "Allow", action: Any = "s3:GetObject", resource: Any = "*", **condition: Any) -> Any:
    return {"Effect": effect, "Action": action, "Resource": resource, "Condition": condition}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], False),
        ([statement()], True),
        ([statement(action=["s3:PutObject", "S3:getobject"])], True),
        ([statement(action="s3:Get*")], True),
        ([statement(action="s3:GetObjec?")], True),
        ([statement(action="s3:GetObject?")], False),
        ([statement(resource="arn:aws:s3:::data/*")], True),
        ([statement(resource=["arn:aws:s3:::other/*", "arn:aws:s3:::data/fil?"])], True),
        ([statement(resource="arn:aws:s3:::data")], False),
        ([statement(resource="arn:aws:s3:::Data/*")], False),
        # These are no wildcards in IAM.
        ([statement(resource="arn:aws:s3:::[d]ata/*")], False),
        ([statement(), statement("Deny", "s3:*")], False),
        ([statement(), statement("Deny", "s3:*", "arn:aws:s3:::other/*")], True),
    ],
)
def test_a_request_needs_an_allow_and_no_deny(given: list[Any], expected: bool) -> None:
    assert permitted(given, READ) is expected


def test_a_boundary_limits_and_gives_nothing() -> None:
    everything = [statement(action="*")]
    assert permitted(everything, READ, [statement()])
    assert not permitted(everything, READ, [statement(action="s3:PutObject")])
    assert not permitted([], READ, everything)
    assert not permitted(everything, READ, [*everything, statement("Deny")])


ARN = "arn:aws:iam::123456789012:policy/limit"


@pytest.mark.parametrize(
    ("operator", "wanted", "given", "expected"),
    [
        ("StringEquals", "dev", "dev", True),
        ("StringEquals", ["prod", "dev"], "dev", True),
        ("StringEquals", "d*", "dev", False),
        ("StringEquals", "dev", None, False),
        ("StringEqualsIfExists", "dev", None, True),
        ("StringEqualsIfExists", "dev", "prod", False),
        ("StringNotEquals", ["prod", "dev"], "dev", False),
        ("StringNotEquals", "dev", "prod", True),
        ("StringNotEquals", "dev", None, True),
        ("StringLike", "d?v*", "dev-2", True),
        ("StringLike", "d?v", "dev-2", False),
        ("ArnEquals", "arn:aws:iam::*:policy/limit", ARN, True),
        ("ArnLike", "arn:aws:iam::*", ARN, False),
        ("Bool", "true", "true", True),
        ("Null", "true", None, True),
        ("Null", "true", "dev", False),
        ("Null", "false", "dev", True),
        ("ForAllValues:StringEquals", ["a", "b"], ["a"], True),
        ("ForAllValues:StringEquals", ["a", "b"], ["a", "c"], False),
        ("ForAllValues:StringEquals", ["a", "b"], None, True),
        ("ForAnyValue:StringEquals", ["a", "b"], ["c", "a"], True),
        ("ForAnyValue:StringEquals", ["a", "b"], ["c"], False),
        ("ForAnyValue:StringEquals", ["a", "b"], None, False),
    ],
)
def test_a_condition_holds_or_not(operator: str, wanted: Any, given: Any, expected: bool) -> None:
    request = Request("ec2:CreateTags", "*", {"aws:RequestTag/Stack": given} if given else {})
    limited = {**statement(action="ec2:CreateTags"), "Condition": {operator: {"aws:requesttag/stack": wanted}}}
    assert permitted([limited], request) is expected


def test_all_conditions_must_hold() -> None:
    limited = statement(StringEquals={"aws:PrincipalAccount": "1"}, StringLike={"aws:PrincipalArn": "a*"})
    assert permitted(
        [limited], Request(READ.action, READ.resource, {"aws:PrincipalAccount": "1", "aws:PrincipalArn": "ab"})
    )
    assert not permitted([limited], Request(READ.action, READ.resource, {"aws:PrincipalAccount": "1"}))


def test_a_key_that_the_action_does_not_support_is_not_in_the_request() -> None:
    """AWS sends iam:PolicyARN with AttachRolePolicy, and not with PutRolePolicy."""
    context = {"iam:PolicyARN": ARN}
    limited = statement(action="*", ArnEquals={"iam:PolicyARN": ARN})
    assert permitted([limited], Request("iam:AttachRolePolicy", "*", context))
    assert not permitted([limited], Request("iam:PutRolePolicy", "*", context))


@pytest.mark.parametrize(
    "unknown",
    [
        {**statement(), "NotAction": "s3:*"},
        statement(NumericLessThan={"aws:MultiFactorAuthAge": "1"}),
        statement(StringEquals={"aws:PrincipalArn": "${aws:username}"}),
    ],
)
def test_what_the_evaluator_does_not_support_is_an_error(unknown: Any) -> None:
    with pytest.raises(NotImplementedError):
        permitted([unknown], Request(READ.action, READ.resource, {"aws:PrincipalArn": "x"}))


def test_a_trust_policy_names_the_principal_and_the_claims() -> None:
    trust = [
        {
            "Effect": "Allow",
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Principal": {"Federated": "provider"},
            "Condition": {"StringEquals": {"example.com:sub": "me"}},
        }
    ]
    web = "sts:AssumeRoleWithWebIdentity"
    assert trusted(trust, web, ("Federated", "provider"), {"example.com:sub": "me"})
    assert not trusted(trust, web, ("Federated", "provider"), {"example.com:sub": "you"})
    assert not trusted(trust, web, ("Federated", "other"), {"example.com:sub": "me"})
    assert not trusted(trust, web, ("AWS", "provider"), {"example.com:sub": "me"})
    assert not trusted(trust, "sts:AssumeRole", ("Federated", "provider"), {"example.com:sub": "me"})
