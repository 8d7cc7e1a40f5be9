"""Each policy rule on resources that pass and that violate it, and all rules on the graph of every stack."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from policy import rules
from policy.graph import Resource, Stack, Unknown
from tests.unit.program import Graph, config_of, run, stack_files

DEFAULT_TAGS = {"defaultTags": json.dumps({"tags": {"project": "p", "stack": "s"}})}
OPEN = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}
ACCOUNT_DECIDES = {
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
    "Action": ["kms:*"],
    "Resource": "*",
}
STATEMENT = {"Sid": "Read", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::b/*"}
JOB = "kubernetes:batch/v1:Job"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
CONTAINER = {
    "name": "main",
    "securityContext": {"allowPrivilegeEscalation": False},
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
}
DISK = {"ebs": {"encrypted": "true"}}
METADATA = {"httpTokens": "required", "httpPutResponseHopLimit": 1}


def made(type_: str, stack: str = "dev", name: str = "thing", **inputs: Any) -> Resource:
    return Resource(f"urn:pulumi:{stack}::p::{type_}::{name}", type_, name, inputs, provider=DEFAULT_TAGS)


def policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def job(**container: Any) -> Resource:
    return made(JOB, spec={"template": {"spec": {"containers": [{**CONTAINER, **container}]}}})


def block(**less: bool) -> Resource:
    inputs: dict[str, Any] = {**dict.fromkeys(rules.BLOCKS, True), **less}
    return made(rules.BUCKET_BLOCK, **inputs)


PASSING: list[tuple[Callable[[Resource], Iterator[str]], Resource]] = [
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="203.0.113.0/24")),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="10.0.0.0/8")),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv6="fc00::/7")),
    (rules.no_open_ingress, made(rules.INGRESS, referencedSecurityGroupId=Unknown())),
    (rules.no_open_ingress, made(rules.CLUSTER, vpcConfig={"publicAccessCidrs": ["0.0.0.0/0"]})),
    (rules.no_open_ingress, made(rules.CLUSTER, vpcConfig={"endpointPublicAccess": False})),
    (rules.imds_v2, made(rules.TEMPLATE, metadataOptions=METADATA)),
    (rules.imds_v2, made(rules.TEMPLATE, metadataOptions={"httpEndpoint": "disabled"})),
    (rules.no_wildcard_iam, made(ROLE_POLICY, policy=policy(STATEMENT))),
    (rules.no_wildcard_iam, made(ROLE_POLICY, policy=Unknown())),
    (rules.no_wildcard_iam, made(rules.BUCKET_POLICY, policy=policy({**OPEN, "Effect": "Deny", "Action": "s3:*"}))),
    (rules.no_wildcard_iam, made(rules.KEY, policy=policy({**STATEMENT, "Resource": "*"}))),
    (rules.tagged, made(rules.FILE_SYSTEM)),
    (
        rules.tagged,
        made(
            rules.TEMPLATE,
            tagSpecifications=[
                {"resourceType": kind, "tags": {"project": "p", "stack": "s"}} for kind in ("instance", "volume")
            ],
        ),
    ),
    (rules.production_data_kept, made(rules.KEY)),
    (rules.production_data_kept, made(rules.GROUP, stack="prod")),
    (rules.no_privileged_pods, job()),
    (rules.pods_request_resources, job()),
]

VIOLATING: list[tuple[Callable[[Resource], Iterator[str]], Resource, str]] = [
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="0.0.0.0/0"), "cidrIpv4 allows ingress from 0.0.0.0/0"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="128.0.0.0/1"), "cidrIpv4 allows ingress from 128.0.0.0/1"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv6="::/0"), "cidrIpv6 allows ingress from ::/0"),
    (
        rules.no_open_ingress,
        made(rules.GROUP, ingress=[{"cidrBlocks": ["0.0.0.0/0"]}]),
        "ingress allows ingress from 0.0.0.0/0",
    ),
    (
        rules.no_open_ingress,
        made("aws:ec2/securityGroupRule:SecurityGroupRule", type="ingress", ipv6CidrBlocks=["::/0"]),
        "ipv6CidrBlocks allows ingress from ::/0",
    ),
    (rules.no_open_ingress, made(rules.CLUSTER, vpcConfig={}), "vpcConfig.publicAccessCidrs is empty"),
    (rules.imds_v2, made(rules.TEMPLATE), "metadataOptions.httpTokens allows IMDSv1"),
    (
        rules.imds_v2,
        made(rules.TEMPLATE, metadataOptions={**METADATA, "httpPutResponseHopLimit": 2}),
        "httpPutResponseHopLimit allows pods",
    ),
    (rules.no_wildcard_iam, made(ROLE_POLICY, policy=policy({**STATEMENT, "Action": "s3:*"})), "allows s3:* in Read"),
    (
        rules.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Resource": "*"})),
        "allows every resource in Read",
    ),
    (
        rules.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({"Effect": "Allow", "NotAction": "iam:*", "Resource": "arn:aws:s3:::b"})),
        "allows all actions except some",
    ),
    (
        rules.no_wildcard_iam,
        made(
            ROLE_POLICY, policy=policy({"Effect": "Allow", "Action": "s3:GetObject", "NotResource": "arn:aws:s3:::b"})
        ),
        "allows every resource",
    ),
    (
        rules.no_wildcard_iam,
        made(rules.KEY, policy=policy({"Effect": "Allow", "Action": "kms:Decrypt", "NotPrincipal": {"AWS": "1"}})),
        "allows everybody",
    ),
    (
        rules.no_wildcard_iam,
        made("aws:iam/role:Role", managedPolicyArns=["arn:aws:iam::aws:policy/AdministratorAccess"]),
        "policyArn is AdministratorAccess",
    ),
    (
        rules.no_wildcard_iam,
        made("aws:iam/userPolicyAttachment:UserPolicyAttachment", policyArn="arn:aws:iam::aws:policy/PowerUserAccess"),
        "policyArn is PowerUserAccess",
    ),
    (rules.no_wildcard_iam, made(rules.KEY, policy=policy(OPEN)), "allows everybody"),
    (rules.no_wildcard_iam, made(ROLE_POLICY, policy=policy(ACCOUNT_DECIDES)), "allows kms:*"),
    (
        rules.no_wildcard_iam,
        made(rules.KEY, policy=policy({**ACCOUNT_DECIDES, "Principal": {"AWS": "arn:aws:iam::1:role/admin"}})),
        "allows kms:*",
    ),
    (rules.no_wildcard_iam, made(rules.KEY, policy=policy({**ACCOUNT_DECIDES, "Action": ["*"]})), "allows *"),
    (
        rules.no_wildcard_iam,
        made("aws:iam/role:Role", assumeRolePolicy=policy({**OPEN, "Principal": {"AWS": ["*"]}})),
        "assumeRolePolicy allows everybody",
    ),
    (
        rules.no_wildcard_iam,
        made(
            "aws:iam/rolePolicyAttachment:RolePolicyAttachment", policyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess"
        ),
        "policyArn is AmazonS3FullAccess",
    ),
    (
        rules.tagged,
        Resource(
            "urn:pulumi:dev::p::x::y",
            rules.FILE_SYSTEM,
            "thing",
            {},
            provider={"defaultTags": {"tags": {"stack": "s"}}},
        ),
        "lacks the tags project",
    ),
    (
        rules.tagged,
        Resource(
            "urn:pulumi:dev::p::x::y", rules.KEY, "thing", {}, provider={"defaultTags": {"tags": {"project": "p"}}}
        ),
        "lacks the tags stack",
    ),
    (rules.tagged, made(rules.TEMPLATE), "does not give each instance the tags"),
    (
        rules.tagged,
        made(rules.TEMPLATE, tagSpecifications=[{"resourceType": "instance", "tags": {"project": "p", "stack": "s"}}]),
        "does not give each volume the tags",
    ),
    (rules.production_data_kept, made(rules.FILE_SYSTEM, stack="prod-eu"), "protect is off in stack prod-eu"),
    (rules.production_data_kept, made(rules.BUCKET, stack="prod"), "protect is off in stack prod"),
    (rules.production_data_kept, made(rules.KEY, stack="prod"), "protect is off in stack prod"),
    (rules.production_data_kept, made(rules.BUCKET, stack="prod", forceDestroy=True), "forceDestroy is on"),
    (rules.no_privileged_pods, job(securityContext={}), "main.securityContext.allowPrivilegeEscalation is not off"),
    (
        rules.no_privileged_pods,
        job(securityContext={"allowPrivilegeEscalation": False, "privileged": True}),
        "main.securityContext.privileged is on",
    ),
    (
        rules.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostNetwork": True, "initContainers": [CONTAINER]}),
        "hostNetwork shares a namespace with the node",
    ),
    (
        rules.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostPID": True}),
        "hostPID shares a namespace with the node",
    ),
    (
        rules.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostIPC": True}),
        "hostIPC shares a namespace with the node",
    ),
    (
        rules.pods_request_resources,
        made(
            "kubernetes:batch/v1:CronJob",
            spec={"jobTemplate": {"spec": {"template": {"spec": {"initContainers": [{"name": "first"}]}}}}},
        ),
        "first.resources.requests.cpu is missing",
    ),
    (
        rules.pods_request_resources,
        job(resources={"requests": {"cpu": "1"}}),
        "main.resources.requests.memory is missing",
    ),
]


@pytest.mark.parametrize(("rule", "resource"), PASSING)
def test_a_resource_passes_the_rule(rule: Callable[[Resource], Iterator[str]], resource: Resource) -> None:
    assert list(rule(resource)) == []


@pytest.mark.parametrize(("rule", "resource", "words"), VIOLATING)
def test_a_resource_violates_the_rule(
    rule: Callable[[Resource], Iterator[str]], resource: Resource, words: str
) -> None:
    problems = list(rule(resource))
    assert any(words in problem for problem in problems), problems
    for problem in problems:
        assert problem.startswith("thing: ")
        assert problem.count(". ") == 1, f"one sentence says what is wrong, one says what to write: {problem}"


def test_every_rule_has_a_passing_and_a_violating_resource() -> None:
    assert {rule for rule, _ in PASSING} == {rule for rule, _, _ in VIOLATING} == set(rules.RESOURCE_RULES)


def connected(resource: Resource, **refs: Resource) -> Resource:
    """The resource with properties that depend on other resources and are not known yet."""
    links = {key: frozenset({other.urn}) for key, other in refs.items()}
    return Resource(
        resource.urn, resource.type, resource.name, {**dict.fromkeys(refs, Unknown()), **resource.inputs}, links
    )


KEY = made(rules.KEY, name="key")
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
    "block": connected(block(), bucket=BUCKET),
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
                made(rules.BUCKET_POLICY, name="policy", policy=policy({**OPEN, "Effect": "Deny"})), bucket=BUCKET
            ),
            connected(made(rules.MOUNT_TARGET, name="mount"), securityGroups=EFS_GROUP),
        )
    },
}

VIOLATING_STACKS: list[tuple[str, Resource, str]] = [
    ("efs", made(rules.FILE_SYSTEM, encrypted=True), "thing: kmsKeyId is not the key of the stack"),
    ("efs", connected(made(rules.FILE_SYSTEM, encrypted=True), kmsKeyId=BUCKET), "thing: kmsKeyId is not"),
    ("efs", connected(made(rules.FILE_SYSTEM), kmsKeyId=KEY), "thing: encrypted is off"),
    ("logs", made(rules.LOG_GROUP, kmsKeyId="arn:aws:kms:us-west-2:1:key/other"), "thing: kmsKeyId is not"),
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
        "block",
        connected(block(blockPublicPolicy=False), bucket=BUCKET),
        "thing: blockPublicPolicy allows public access",
    ),
    ("policy", made(rules.BUCKET_POLICY, policy=policy(OPEN)), "thing: policy gives access to everybody"),
    (
        "bucket",
        Resource(BUCKET.urn, BUCKET.type, "bucket", {"acl": "public-read"}),
        "bucket: acl allows public access",
    ),
    (
        "bucket",
        Resource(BUCKET.urn, BUCKET.type, "bucket", {"acl": "authenticated-read"}),
        "bucket: acl allows public access",
    ),
    ("mount", made(rules.MOUNT_TARGET), "thing: securityGroups is empty"),
    (
        "efs-group",
        Resource(EFS_GROUP.urn, rules.GROUP, "efs-group", {"ingress": [{"protocol": "tcp"}]}),
        "efs-group: ingress contains rules",
    ),
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
    return Stack(
        [
            Resource(
                urn=r.urn,
                type=r.type,
                name=r.name,
                inputs=r.inputs,
                refs={key: frozenset(value.urns) for key, value in r.options.propertyDependencies.items()},
                protect=r.protect,
                provider=providers.get(r.provider.rpartition("::")[0], {}),
            )
            for r in graph.resources.values()
            if r.custom
        ]
    )


EVERYTHING_ON = {
    "paddle-on-aws:natGateways": "single",
    "paddle-on-aws:sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "paddle-on-aws:apiAccessCidrs": ["8.8.8.8/32"],
    "paddle-on-aws:storage": {"driver": "efsCsi"},
    "paddle-on-aws:admins": ["arn:aws:iam::123456789012:role/admin"],
    "paddle-on-aws:data": {"source": "s3://bucket/data.tar"},
    "paddle-on-aws:workers": {"instanceTypes": ["g5.xlarge"], "count": 3, "diskGiB": 100},
    "paddle-on-aws:trainers": 3,
    "paddle-on-aws:job": {"gpusPerTrainer": 1, "namespace": "training"},
}


@pytest.mark.parametrize("more", [{}, EVERYTHING_ON], ids=["as it is", "everything on"])
@pytest.mark.parametrize("stack", stack_files())
def test_every_stack_passes_every_rule(monkeypatch: pytest.MonkeyPatch, stack: str, more: Mapping[str, Any]) -> None:
    seen = findings(stack_of(run(monkeypatch, {**config_of(stack), **more}, stack)))
    assert not any(seen.values()), seen


def test_the_default_statement_of_a_key_policy_is_allowed() -> None:
    assert list(rules.no_wildcard_iam(made(rules.KEY, policy=policy(ACCOUNT_DECIDES)))) == []
