"""Each policy rule on resources that pass and that violate it, and all rules on the graph of every stack."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy import iam_documents, rules
from policy.allowed_types import ALLOWED_TYPES, COMPONENTS
from policy.graph import Resource, Stack, Unknown
from tests.unit.program import EVERYTHING, EXISTING_KEY, Graph, config_of, run, stack_files

ACCOUNT, OTHER_ACCOUNT = "123456789012", "210987654321"


def made(type_: str, stack: str = "dev", name: str = "thing", refs: Mapping[str, str] = {}, **inputs: Any) -> Resource:
    """A resource, with properties that depend on other resources and are not known yet."""
    tags = {"defaultTags": json.dumps({"tags": {"project": "p", "stack": stack}})}
    links = {key: frozenset(URNS[each] for each in names.split()) for key, names in refs.items()}
    given = {**dict.fromkeys(refs, Unknown()), **inputs}
    return Resource(f"urn:pulumi:{stack}::p::{type_}::{name}", type_, name, given, links, provider=tags)


def policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!unknown", lambda loader, node: Unknown())
# The documents in these properties are JSON text.
DOCUMENTS = ("policy", "assumeRolePolicy")


def with_documents(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: with_documents(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return policy(*value) if key in DOCUMENTS else [with_documents(each) for each in value]
    return value


def resource_of(case: Mapping[str, Any]) -> Resource:
    inputs = dict(case)
    provider = inputs.pop("provider", None)
    how = {key: inputs.pop(key) for key in ("stack", "name", "refs") if key in inputs}
    ((type_, given),) = inputs.items()
    resource = made(type_, **how, **with_documents(given))
    return replace(resource, provider=provider) if provider else resource


CASES: Mapping[str, Any] = yaml.load(Path(__file__).with_name("cases.yaml").read_text(), Loader)
CONNECTIONS = CASES["connections"]
URNS = {case["name"]: f"urn:pulumi:dev::p::{next(iter(case))}::{case['name']}" for case in CONNECTIONS["stack"]}
RULES = {rule.__name__: rule for rule in rules.RESOURCE_RULES}
PASSING = [(name, resource_of(case)) for name in RULES for case in CASES[name]["passes"]]
VIOLATING = [
    (name, resource_of(case), words)
    for name in RULES
    for words, cases in CASES[name]["violates"].items()
    for case in cases
]


@pytest.mark.parametrize(("rule", "resource"), PASSING)
def test_a_resource_passes_the_rule(rule: str, resource: Resource) -> None:
    assert list(RULES[rule](resource)) == []


@pytest.mark.parametrize(("rule", "resource", "words"), VIOLATING)
def test_a_resource_violates_the_rule(rule: str, resource: Resource, words: str) -> None:
    problems = list(RULES[rule](resource))
    assert any(words.replace("{type}", resource.type) in problem for problem in problems), problems
    for problem in problems:
        assert problem.startswith("thing: ")
        assert problem.count(". ") == 1, f"one sentence says what is wrong, one says what to write: {problem}"


def test_every_case_belongs_to_a_rule() -> None:
    assert CASES.keys() - {"bases", "connections"} == RULES.keys()
    assert all(CASES[name]["passes"] and CASES[name]["violates"] for name in RULES)


STACK = {case["name"]: resource_of(case) for case in CONNECTIONS["stack"]}


def findings(stack: Stack) -> dict[str, list[str]]:
    """The violations of each rule in a stack, by the name of the rule."""
    return {
        **{rule.__name__: [p for r in stack.resources for p in rule(r)] for rule in rules.RESOURCE_RULES},
        **{rule.__name__: [p for r in stack.resources for p in rule(r, stack)] for rule in rules.STACK_RULES},
    }


def connection_findings(stack: Stack) -> list[str]:
    return [problem for rule in rules.STACK_RULES for each in stack.resources for problem in rule(each, stack)]


def test_a_stack_passes_the_rules_about_connections() -> None:
    assert connection_findings(Stack(list(STACK.values()))) == []


@pytest.mark.parametrize(("instead_of", "words", "case"), CONNECTIONS["violates"])
def test_a_stack_violates_a_rule_about_connections(instead_of: str, words: str, case: Mapping[str, Any]) -> None:
    problems = connection_findings(Stack(list({**STACK, instead_of: resource_of(case)}.values())))
    assert len(problems) == 1, problems
    assert problems[0].startswith(words)


def stack_of(graph: Graph) -> Stack:
    """The graph of the unit tests, as the engine would give it to the policy pack."""
    providers = {r.urn: r.inputs for r in graph.resources.values() if r.type.startswith("pulumi:providers:")}
    arn = graph.outputs["keyArn"]
    return Stack(
        [
            Resource(
                urn=r.urn,
                type=r.type,
                name=r.name,
                # The engine gives the outputs, such as the ARN of the key, to a rule about the stack.
                inputs={**r.inputs, "arn": arn} if r.type == iam_documents.KEY else r.inputs,
                refs={key: frozenset(value.urns) for key, value in r.options.propertyDependencies.items()},
                protect=r.protect,
                provider=providers.get(r.provider.rpartition("::")[0], {}),
            )
            for r in graph.resources.values()
            if r.custom
        ]
    )


EVERYTHING_ON = {**EVERYTHING, "paddle-on-aws:trainers": 3, "paddle-on-aws:export": {"enabled": True}}


WITH_GIVEN_KEY = {**EVERYTHING_ON, "paddle-on-aws:kmsKeyArn": EXISTING_KEY}


@pytest.mark.parametrize("more", [{}, EVERYTHING_ON, WITH_GIVEN_KEY], ids=["as it is", "everything on", "given key"])
@pytest.mark.parametrize("stack", stack_files())
def test_every_stack_passes_every_rule(monkeypatch: pytest.MonkeyPatch, stack: str, more: Mapping[str, Any]) -> None:
    made = stack_of(run(monkeypatch, {**config_of(stack), **more}, stack))
    assert bool(made.of(iam_documents.KEY)) is (more is not WITH_GIVEN_KEY)
    seen = findings(made)
    assert not any(seen.values()), seen


OTHER_KEY = EXISTING_KEY.replace("1234abcd", "00000000")


def encrypted_with(**keys: Any) -> list[str]:
    """What the rules report about a stack that uses an existing key, with other keys for some of its resources."""
    arn = dict.fromkeys(("cluster", "efs", "bucket", "disk", "topic"), EXISTING_KEY) | keys
    default = {"applyServerSideEncryptionByDefault": {"kmsMasterKeyId": arn["bucket"]}}
    disk = {"ebs": {"encrypted": "true", "kmsKeyId": arn["disk"]}}
    kept = {name: resource for name, resource in STACK.items() if name not in ("key", "logs")}
    replaced = (
        made(rules.CLUSTER, name="eks", encryptionConfig={"provider": {"keyArn": arn["cluster"]}}),
        made(rules.FILE_SYSTEM, name="efs", encrypted=True, kmsKeyId=arn["efs"]),
        made(rules.BUCKET_ENCRYPTION, name="encryption", rules=[default], refs={"bucket": "bucket"}),
        made(rules.TEMPLATE, name="template", blockDeviceMappings=[disk], refs={"vpcSecurityGroupIds": "workers"}),
        made(rules.TOPIC, name="topic", kmsMasterKeyId=arn["topic"]),
    )
    return connection_findings(Stack(list({**kept, **{each.name: each for each in replaced}}.values())))


def test_an_existing_key_encrypts_everything() -> None:
    assert encrypted_with() == []


@pytest.mark.parametrize("name", ["efs", "bucket", "disk", "topic"])
@pytest.mark.parametrize("key", [OTHER_KEY, None, Unknown(), "alias/aws/ebs"])
def test_all_data_has_the_same_existing_key(name: str, key: Any) -> None:
    (problem,) = encrypted_with(**{name: key})
    assert "is not the key of the stack" in problem


@pytest.mark.parametrize("key", [None, Unknown(), f"arn:aws:kms:us-west-2:{ACCOUNT}:alias/aws/eks"])
def test_the_cluster_must_name_a_key(key: Any) -> None:
    everywhere = dict.fromkeys(("cluster", "efs", "bucket", "disk", "topic"), key)
    assert len([p for p in encrypted_with(**everywhere) if "is not the key of the stack" in p]) == 5


def test_a_stack_with_a_key_may_not_use_another_one() -> None:
    cluster = made(rules.CLUSTER, name="eks", encryptionConfig={"provider": {"keyArn": EXISTING_KEY}})
    problems = connection_findings(Stack(list({**STACK, "eks": cluster}.values())))
    assert any("encryptionConfig.provider.keyArn is not the key of the stack" in problem for problem in problems)


def test_the_account_of_an_existing_key_is_the_account_of_the_stack() -> None:
    foreign = EXISTING_KEY.replace(ACCOUNT, OTHER_ACCOUNT)
    everywhere = dict.fromkeys(("cluster", "efs", "bucket", "disk", "topic"), foreign)
    assert any(f"names the account {ACCOUNT}" in problem for problem in encrypted_with(**everywhere))


def test_the_program_uses_every_allowed_type_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {each.type for each in run(monkeypatch, EVERYTHING_ON).resources.values()}
    assert {kind for kind in used if not kind.startswith(COMPONENTS)} == ALLOWED_TYPES
