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
DISK = {"ebs": {"encrypted": "true", "kmsKeyId": Unknown()}}


def made(type_: str, stack: str = "dev", name: str = "thing", **inputs: Any) -> Resource:
    tags = {"defaultTags": json.dumps({"tags": {"project": "p", "stack": stack}})}
    return Resource(f"urn:pulumi:{stack}::p::{type_}::{name}", type_, name, inputs, provider=tags)


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
    stack, provider = inputs.pop("stack", "dev"), inputs.pop("provider", None)
    ((type_, given),) = inputs.items()
    resource = made(type_, stack, **with_documents(given))
    return replace(resource, provider=provider) if provider else resource


CASES: Mapping[str, Any] = yaml.load(Path(__file__).with_name("cases.yaml").read_text(), Loader)
OPEN, ACCOUNT_DECIDES = CASES["bases"]["everybody"], CASES["bases"]["account"]
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
    assert CASES.keys() - {"bases"} == RULES.keys()
    assert all(CASES[name]["passes"] and CASES[name]["violates"] for name in RULES)


def connected(resource: Resource, **refs: Resource) -> Resource:
    """The resource with properties that depend on other resources and are not known yet."""
    links = {key: frozenset({other.urn}) for key, other in refs.items()}
    return Resource(
        resource.urn, resource.type, resource.name, {**dict.fromkeys(refs, Unknown()), **resource.inputs}, links
    )


KEY = made(iam_documents.KEY, name="key", policy=policy(ACCOUNT_DECIDES))
WORKERS, EFS_GROUP, OTHERS = (made(rules.GROUP, name=name) for name in ("workers", "efs-group", "others"))
BUCKET = made(rules.BUCKET, name="bucket")
TEMPLATE = connected(
    made(rules.TEMPLATE, name="template", blockDeviceMappings=[DISK]),
    blockDeviceMappings=KEY,
    vpcSecurityGroupIds=WORKERS,
)
NFS = connected(
    made(rules.INGRESS, name="nfs", ipProtocol="tcp", fromPort=2049, toPort=2049),
    securityGroupId=EFS_GROUP,
    referencedSecurityGroupId=WORKERS,
)
GOOD = {
    "block": connected(made(rules.BUCKET_BLOCK), bucket=BUCKET),
    **{
        resource.name: resource
        for resource in (
            KEY,
            WORKERS,
            EFS_GROUP,
            OTHERS,
            BUCKET,
            TEMPLATE,
            NFS,
            connected(made(rules.FILE_SYSTEM, name="efs", encrypted=True), kmsKeyId=KEY),
            connected(made(rules.LOG_GROUP, name="logs"), kmsKeyId=KEY),
            connected(made(rules.CLUSTER, name="eks"), encryptionConfig=KEY),
            connected(made(rules.TOPIC, name="topic"), kmsMasterKeyId=KEY),
            connected(made(rules.BUCKET_ENCRYPTION, name="encryption"), bucket=BUCKET, rules=KEY),
            connected(
                made(iam_documents.BUCKET_POLICY, name="policy", policy=policy({**OPEN, "Effect": "Deny"})),
                bucket=BUCKET,
            ),
            connected(made(rules.MOUNT_TARGET, name="mount"), securityGroups=EFS_GROUP),
            made("aws:eks/accessEntry:AccessEntry", name="entry", principalArn=f"arn:aws:iam::{ACCOUNT}:role/admin"),
        )
    },
}

VIOLATING_STACKS: list[tuple[str, Resource, str]] = [
    ("efs", made(rules.FILE_SYSTEM, encrypted=True), "thing: kmsKeyId is not the key of the stack"),
    ("efs", connected(made(rules.FILE_SYSTEM, encrypted=True), kmsKeyId=BUCKET), "thing: kmsKeyId is not"),
    ("efs", connected(made(rules.FILE_SYSTEM), kmsKeyId=KEY), "thing: encrypted is off"),
    ("logs", made(rules.LOG_GROUP, kmsKeyId="arn:other"), "thing: kmsKeyId is not"),
    ("topic", made(rules.TOPIC), "thing: kmsMasterKeyId is not the key of the stack"),
    ("eks", made(rules.CLUSTER), "thing: encryptionConfig.provider.keyArn is not"),
    ("encryption", connected(made(rules.BUCKET_ENCRYPTION), bucket=BUCKET), "thing: rules.applyServerSide"),
    ("encryption", made(rules.GROUP), "bucket: bucket has no encryption configuration"),
    (
        "template",
        connected(made(rules.TEMPLATE), vpcSecurityGroupIds=WORKERS),
        "thing: blockDeviceMappings does not list the disk",
    ),
    (
        "template",
        connected(made(rules.TEMPLATE, blockDeviceMappings=[DISK, {"ebs": {}}]), vpcSecurityGroupIds=WORKERS),
        "thing: blockDeviceMappings.ebs.encrypted is off",
    ),
    (
        "template",
        connected(made(rules.TEMPLATE, blockDeviceMappings=[DISK]), vpcSecurityGroupIds=WORKERS),
        "thing: blockDeviceMappings.ebs.kmsKeyId is not",
    ),
    ("block", made(rules.GROUP), "bucket: bucket does not block public access"),
    (
        "template",
        connected(
            made(rules.TEMPLATE, blockDeviceMappings=[DISK, {"ebs": {"encrypted": "true", "kmsKeyId": "arn:other"}}]),
            blockDeviceMappings=KEY,
            vpcSecurityGroupIds=WORKERS,
        ),
        "thing: blockDeviceMappings.ebs.kmsKeyId is not the key of the stack",
    ),
    (
        "policy",
        made(iam_documents.BUCKET_POLICY, policy=policy({**OPEN, "Principal": {"AWS": OTHER_ACCOUNT}})),
        f"thing: policy names the account {OTHER_ACCOUNT}",
    ),
    (
        "entry",
        made("aws:eks/accessEntry:AccessEntry", principalArn=f"arn:aws:iam::{OTHER_ACCOUNT}:role/admin"),
        f"thing: principalArn names the account {OTHER_ACCOUNT}",
    ),
    (
        "key",
        Resource(
            KEY.urn,
            KEY.type,
            "key",
            {"policy": policy(ACCOUNT_DECIDES, {**OPEN, "Principal": {"AWS": f"arn:aws:iam::{OTHER_ACCOUNT}:root"}})},
        ),
        f"key: policy names the account {OTHER_ACCOUNT}",
    ),
    (
        "nfs",
        Resource(
            NFS.urn, NFS.type, "nfs", {**NFS.inputs, "referencedSecurityGroupId": f"{OTHER_ACCOUNT}/sg-0abc"}, NFS.refs
        ),
        f"nfs: referencedSecurityGroupId names the account {OTHER_ACCOUNT}",
    ),
    ("mount", made(rules.MOUNT_TARGET), "thing: securityGroups is empty"),
    (
        "nfs",
        connected(
            made(rules.INGRESS, ipProtocol="tcp", fromPort=2049, toPort=2049),
            securityGroupId=EFS_GROUP,
            referencedSecurityGroupId=OTHERS,
        ),
        "thing: referencedSecurityGroupId allows access to the file system",
    ),
    (
        "nfs",
        Resource(
            NFS.urn,
            NFS.type,
            "nfs",
            NFS.inputs,
            {**NFS.refs, "referencedSecurityGroupId": frozenset({WORKERS.urn, OTHERS.urn})},
        ),
        "nfs: referencedSecurityGroupId allows access to the file system",
    ),
    (
        "nfs",
        connected(
            made(rules.INGRESS, ipProtocol="tcp", fromPort=2049, toPort=2049, cidrIpv4="10.0.0.0/16"),
            securityGroupId=EFS_GROUP,
        ),
        "thing: referencedSecurityGroupId allows access to the file system",
    ),
    (
        "nfs",
        connected(made(rules.INGRESS, ipProtocol="-1"), securityGroupId=EFS_GROUP, referencedSecurityGroupId=WORKERS),
        "thing: fromPort opens more than NFS",
    ),
]


def findings(stack: Stack) -> dict[str, list[str]]:
    """The violations of each rule in a stack, by the name of the rule."""
    return {
        **{rule.__name__: [p for r in stack.resources for p in rule(r)] for rule in rules.RESOURCE_RULES},
        **{rule.__name__: [p for r in stack.resources for p in rule(r, stack)] for rule in rules.STACK_RULES},
    }


def connection_findings(stack: Stack) -> list[str]:
    return [problem for rule in rules.STACK_RULES for each in stack.resources for problem in rule(each, stack)]


def test_a_stack_passes_the_rules_about_connections() -> None:
    assert connection_findings(Stack(list(GOOD.values()))) == []


@pytest.mark.parametrize(("instead_of", "resource", "words"), VIOLATING_STACKS)
def test_a_stack_violates_a_rule_about_connections(instead_of: str, resource: Resource, words: str) -> None:
    problems = connection_findings(Stack(list({**GOOD, instead_of: resource}.values())))
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


@pytest.mark.parametrize("more", [{}, EVERYTHING_ON], ids=["as it is", "everything on"])
@pytest.mark.parametrize("stack", stack_files())
def test_every_stack_passes_every_rule(monkeypatch: pytest.MonkeyPatch, stack: str, more: Mapping[str, Any]) -> None:
    seen = findings(stack_of(run(monkeypatch, {**config_of(stack), **more}, stack)))
    assert not any(seen.values()), seen


@pytest.mark.parametrize("stack", stack_files())
def test_every_stack_with_an_existing_key_passes_every_rule(monkeypatch: pytest.MonkeyPatch, stack: str) -> None:
    config = {**config_of(stack), **EVERYTHING_ON, "paddle-on-aws:kmsKeyArn": EXISTING_KEY}
    made = stack_of(run(monkeypatch, config, stack))
    assert not made.of(iam_documents.KEY)
    seen = findings(made)
    assert not any(seen.values()), seen


OTHER_KEY = EXISTING_KEY.replace("1234abcd", "00000000")


def encrypted_with(**keys: Any) -> list[str]:
    """What the rules report about a stack that uses an existing key, with other keys for some of its resources."""
    arn = dict.fromkeys(("cluster", "efs", "bucket", "disk", "topic"), EXISTING_KEY) | keys
    default = {"applyServerSideEncryptionByDefault": {"kmsMasterKeyId": arn["bucket"]}}
    disk = {"ebs": {"encrypted": "true", "kmsKeyId": arn["disk"]}}
    without_key = {name: resource for name, resource in GOOD.items() if resource.type != iam_documents.KEY}
    replaced = (
        made(rules.CLUSTER, name="eks", encryptionConfig={"provider": {"keyArn": arn["cluster"]}}),
        made(rules.FILE_SYSTEM, name="efs", encrypted=True, kmsKeyId=arn["efs"]),
        connected(made(rules.BUCKET_ENCRYPTION, name="encryption", rules=[default]), bucket=BUCKET),
        connected(made(rules.TEMPLATE, name="template", blockDeviceMappings=[disk]), vpcSecurityGroupIds=WORKERS),
        made(rules.TOPIC, name="topic", kmsMasterKeyId=arn["topic"]),
    )
    without_logs = {name: resource for name, resource in without_key.items() if name != "logs"}
    return connection_findings(Stack(list({**without_logs, **{each.name: each for each in replaced}}.values())))


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
    problems = connection_findings(Stack(list({**GOOD, "eks": cluster}.values())))
    assert any("encryptionConfig.provider.keyArn is not the key of the stack" in problem for problem in problems)


def test_the_account_of_an_existing_key_is_the_account_of_the_stack() -> None:
    foreign = EXISTING_KEY.replace(ACCOUNT, OTHER_ACCOUNT)
    everywhere = dict.fromkeys(("cluster", "efs", "bucket", "disk", "topic"), foreign)
    assert any(f"names the account {ACCOUNT}" in problem for problem in encrypted_with(**everywhere))


def test_the_program_uses_every_allowed_type_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [run(monkeypatch, {**config_of(s), **more}, s) for s in stack_files() for more in ({}, EVERYTHING_ON)]
    used = {resource.type for graph in graphs for resource in graph.resources.values()}
    assert {kind for kind in used if not kind.startswith(COMPONENTS)} == ALLOWED_TYPES
