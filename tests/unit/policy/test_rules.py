"""Each policy rule on resources that pass and that violate it, and all rules on the graph of every stack."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from policy import iam_documents, pods, rules
from policy.allowed_types import ALLOWED_TYPES, COMPONENTS
from policy.graph import Resource, Stack, Unknown
from tests.unit.program import EVERYTHING, EXISTING_KEY, Graph, config_of, run, stack_files

ACCOUNT, OTHER_ACCOUNT = "123456789012", "210987654321"
OPEN = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}
ACCOUNT_DECIDES = {
    "Effect": "Allow",
    "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
    "Action": ["kms:*"],
    "Resource": "*",
}
STATEMENT = {"Sid": "Read", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::b/*"}
JOB = "kubernetes:batch/v1:Job"
ROLE, ROLE_POLICY = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"
THROUGH_TARGET = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
CONTAINER: dict[str, Any] = {
    "name": "main",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
}
SAFE = CONTAINER["securityContext"]
DISK = {"ebs": {"encrypted": "true", "kmsKeyId": Unknown()}}
METADATA = {"httpTokens": "required", "httpPutResponseHopLimit": 1}


def made(type_: str, stack: str = "dev", name: str = "thing", **inputs: Any) -> Resource:
    tags = {"defaultTags": json.dumps({"tags": {"project": "p", "stack": stack}})}
    return Resource(f"urn:pulumi:{stack}::p::{type_}::{name}", type_, name, inputs, provider=tags)


def policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def trust(principal: Any, **condition: Any) -> str:
    return policy({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", "Condition": condition})


def job(**container: Any) -> Resource:
    return pod_of({"containers": [{**CONTAINER, **container}]})


def pod_of(spec: Mapping[str, Any]) -> Resource:
    return made(JOB, spec={"template": {"spec": spec}})


def device_plugin(path: str, kind: str = pods.DAEMON_SET, namespace: str = "kube-system") -> Resource:
    pod = {"containers": [CONTAINER], "volumes": [{"name": "plugins", "hostPath": {"path": path}}]}
    return made(kind, metadata={"namespace": namespace}, spec={"template": {"spec": pod}})


def lifecycle(**rule: Any) -> Resource:
    return made(rules.BUCKET_LIFECYCLE, rules=[{"id": "tidy", **rule}])


def role_of(verbs: list[str], resources: list[str]) -> Resource:
    return made(pods.ROLE, rules=[{"apiGroups": [""], "verbs": verbs, "resources": resources}])


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
    (iam_documents.no_wildcard_iam, made(ROLE_POLICY, policy=policy(STATEMENT))),
    (iam_documents.no_wildcard_iam, made(ROLE_POLICY, policy=Unknown())),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.BUCKET_POLICY, policy=policy({**OPEN, "Effect": "Deny", "Action": "s3:*"})),
    ),
    (iam_documents.no_wildcard_iam, made(iam_documents.KEY, policy=policy({**STATEMENT, "Resource": "*"}))),
    (iam_documents.no_wildcard_iam, made(iam_documents.KEY, policy=policy(ACCOUNT_DECIDES))),
    (
        iam_documents.no_wildcard_iam,
        made(
            iam_documents.KEY,
            policy=policy({**OPEN, "Condition": {"StringEquals": {"aws:PrincipalArn": ["arn:aws:iam::1:a"]}}}),
        ),
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.FILE_SYSTEM_POLICY, policy=policy({**OPEN, "Condition": THROUGH_TARGET})),
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"Federated": "arn"}, StringEquals={"host:aud": "sts", "host:sub": "me"})),
    ),
    (iam_documents.no_wildcard_iam, made(ROLE, assumeRolePolicy=trust({"Service": "ec2.amazonaws.com"}))),
    (rules.only_allowed_types, made(iam_documents.KEY)),
    (rules.only_allowed_types, made("paddle:infra:Bucket")),
    (iam_documents.only_known_managed_policies, made(ROLE_POLICY, policy=policy(STATEMENT))),
    (
        iam_documents.only_known_managed_policies,
        made(iam_documents.ATTACHMENT, policyArn="arn:aws-cn:iam::aws:policy/AmazonEKSClusterPolicy"),
    ),
    (rules.no_public_bucket, block()),
    (rules.no_public_bucket, made(rules.BUCKET)),
    (pods.volumes_on_efs_only, made(pods.PERSISTENT_VOLUME, spec={"nfs": {"server": "efs", "path": "/"}})),
    (pods.pods_only_read_the_cluster, role_of(["get", "list"], ["pods"])),
    (
        pods.pods_only_read_the_cluster,
        made(pods.ROLE_BINDING, roleRef={"kind": "Role"}, subjects=[{"kind": "ServiceAccount"}]),
    ),
    (rules.data_kept, lifecycle(noncurrentVersionExpiration={"noncurrentDays": 30})),
    (pods.no_privileged_pods, device_plugin("/var/lib/kubelet/device-plugins")),
    (rules.tagged, made(rules.FILE_SYSTEM)),
    (
        rules.tagged,
        made(
            rules.TEMPLATE,
            tagSpecifications=[
                {"resourceType": kind, "tags": {"project": "p", "stack": "dev"}} for kind in ("instance", "volume")
            ],
        ),
    ),
    (rules.data_kept, made(iam_documents.KEY)),
    (rules.data_kept, made(rules.GROUP, stack="prod")),
    (pods.no_privileged_pods, job()),
    (pods.pods_limit_resources, job()),
]

VIOLATING: list[tuple[Callable[[Resource], Iterator[str]], Resource, str]] = [
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="0.0.0.0/0"), "cidrIpv4 allows ingress from 0.0.0.0/0"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="128.0.0.0/1"), "cidrIpv4 allows ingress from 128.0.0.0/1"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv6="::/0"), "cidrIpv6 allows ingress from ::/0"),
    (
        rules.no_open_ingress,
        made(rules.GROUP, ingress=[{"cidrBlocks": ["0.0.0.0/0"]}]),
        "ingress contains rules",
    ),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="9.0.0.0/8"), "cidrIpv4 allows ingress from 9.0.0.0/8"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv4="8.0.0.0/15"), "cidrIpv4 allows ingress from 8.0.0.0/15"),
    (rules.no_open_ingress, made(rules.INGRESS, cidrIpv6="2600::/20"), "cidrIpv6 allows ingress from 2600::/20"),
    (rules.no_open_ingress, made(rules.INGRESS, prefixListId="pl-1"), "prefixListId allows ingress from a list"),
    (rules.no_open_ingress, made(rules.CLUSTER, vpcConfig={}), "vpcConfig.publicAccessCidrs is empty"),
    (rules.imds_v2, made(rules.TEMPLATE), "metadataOptions.httpTokens allows IMDSv1"),
    (
        rules.imds_v2,
        made(rules.TEMPLATE, metadataOptions={**METADATA, "httpPutResponseHopLimit": 2}),
        "httpPutResponseHopLimit allows pods",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Action": "s3:*"})),
        "allows s3:* in Read",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Resource": "*"})),
        "allows every resource in Read",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({"Effect": "Allow", "NotAction": "iam:*", "Resource": "arn:aws:s3:::b"})),
        "allows all actions except some",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(
            ROLE_POLICY, policy=policy({"Effect": "Allow", "Action": "s3:GetObject", "NotResource": "arn:aws:s3:::b"})
        ),
        "allows every resource",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(
            iam_documents.KEY, policy=policy({"Effect": "Allow", "Action": "kms:Decrypt", "NotPrincipal": {"AWS": "1"}})
        ),
        "allows everybody",
    ),
    (
        iam_documents.only_known_managed_policies,
        made(ROLE, managedPolicyArns=["arn:aws:iam::aws:policy/AdministratorAccess"]),
        "managedPolicyArns is AdministratorAccess",
    ),
    (
        iam_documents.only_known_managed_policies,
        made(iam_documents.ATTACHMENT, policyArn="arn:aws:iam::aws:policy/IAMUserChangePassword"),
        "policyArn is IAMUserChangePassword",
    ),
    (
        iam_documents.only_known_managed_policies,
        made(iam_documents.ATTACHMENT, policyArn=f"arn:aws:iam::{ACCOUNT}:policy/AmazonEKSClusterPolicy"),
        "policyArn is AmazonEKSClusterPolicy",
    ),
    (iam_documents.no_wildcard_iam, made(iam_documents.KEY, policy=policy(OPEN)), "allows everybody"),
    (iam_documents.no_wildcard_iam, made(ROLE_POLICY, policy=policy(ACCOUNT_DECIDES)), "allows kms:*"),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**ACCOUNT_DECIDES, "Principal": {"AWS": "arn:aws:iam::1:role/admin"}})),
        "allows kms:*",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**ACCOUNT_DECIDES, "Action": ["*"]})),
        "allows *",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=policy({**OPEN, "Principal": {"AWS": ["*"]}})),
        "assumeRolePolicy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, inlinePolicies=[{"name": "all", "policy": policy({**STATEMENT, "Action": "*"})}]),
        "inlinePolicies.policy allows *",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Action": "iam:AttachRolePolic?"})),
        "allows iam:AttachRolePolic?",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Resource": "arn:aws:s3:::*"})),
        "allows every resource",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Resource": "arn:aws:iam::1:role/?*"})),
        "allows every resource",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy=policy({**STATEMENT, "Resource": "arn:aws:ec2:*:1:instance/i-1"})),
        "allows every resource",
    ),
    (iam_documents.no_wildcard_iam, made(ROLE_POLICY, policy='{"Statement": ['), "policy looks like a policy document"),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy='{"statement": [{"effect": "Allow", "action": "*", "ACTION": "s3:GetObject"}]}'),
        "policy looks like a policy document",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE_POLICY, policy='{"statement": {"effect": "allow", "action": "*"}}'),
        "policy allows * in a statement",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"AWS": "*"}, StringLike={"aws:PrincipalArn": "*"})),
        "assumeRolePolicy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**OPEN, "Condition": {"StringLike": {"aws:PrincipalArn": "*"}}})),
        "policy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**OPEN, "Condition": {"Bool": {"aws:SecureTransport": "true"}}})),
        "policy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(
            iam_documents.KEY,
            policy=policy({**OPEN, "Condition": {"StringEqualsIfExists": {"aws:SourceArn": "arn:1"}}}),
        ),
        "policy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**OPEN, "Condition": THROUGH_TARGET})),
        "policy allows everybody",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"Federated": "token.actions.githubusercontent.com"})),
        "assumeRolePolicy trusts every token",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(
            ROLE,
            assumeRolePolicy=trust(
                {"Federated": "host"}, StringEquals={"host:aud": "sts"}, StringLike={"host:sub": "repo:me/*"}
            ),
        ),
        "assumeRolePolicy trusts every token",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"Federated": "host"}, StringEquals={"host:sub": "repo:me/mine:ref:main"})),
        "assumeRolePolicy trusts every token",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"Federated": "host"}, StringEquals={"host:aud": "sts.amazonaws.com"})),
        "assumeRolePolicy trusts every token",
    ),
    *(
        (
            iam_documents.no_wildcard_iam,
            made(
                ROLE, assumeRolePolicy=trust({"Federated": "host"}, **{operator: {"host:aud": "sts", "host:sub": "me"}})
            ),
            "assumeRolePolicy trusts every token",
        )
        for operator in ("StringNotEquals", "StringEqualsIfExists", "ForAllValues:StringEquals")
    ),
    (
        iam_documents.no_wildcard_iam,
        made(ROLE, assumeRolePolicy=trust({"AWS": f"arn:aws:iam::{OTHER_ACCOUNT}:root"})),
        f"assumeRolePolicy allows arn:aws:iam::{OTHER_ACCOUNT}:root",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.BUCKET_POLICY, policy=policy({**OPEN, "Principal": {"AWS": OTHER_ACCOUNT}})),
        f"policy allows {OTHER_ACCOUNT}",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.BUCKET_POLICY, policy=policy(OPEN)),
        "gives access to the bucket",
    ),
    (
        iam_documents.no_wildcard_iam,
        made(iam_documents.KEY, policy=policy({**OPEN, "Principal": {"AWS": f"arn:aws:iam::{OTHER_ACCOUNT}:role/a"}})),
        f"policy allows arn:aws:iam::{OTHER_ACCOUNT}:role/a",
    ),
    *(
        (rules.only_allowed_types, made(kind), f"type {kind} is not in policy/allowed_types.py")
        for kind in (
            "aws-native:s3:Bucket",
            "aws:cloudcontrol/resource:Resource",
            "aws:cloudformation/stack:Stack",
            "aws:ebs/volume:Volume",
            "aws:ec2/securityGroupRule:SecurityGroupRule",
            "aws:iam/userPolicyAttachment:UserPolicyAttachment",
            "aws:s3/bucketV2:BucketV2",
            "kubernetes:batch/v1:JobPatch",
            "kubernetes:batch/v1:JobList",
            "kubernetes:core/v1:Pod",
            "kubernetes:core/v1:PodTemplate",
            "kubernetes:helm.sh/v3:Release",
            "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding",
            "kubernetes:yaml/v2:ConfigGroup",
            "pulumi-python:dynamic:Resource",
            "pulumi:providers:command",
        )
    ),
    (
        rules.tagged,
        Resource(
            "urn:pulumi:dev::p::x::y",
            rules.FILE_SYSTEM,
            "thing",
            {},
            provider={"defaultTags": {"tags": {"stack": "dev"}}},
        ),
        "does not set the tags project",
    ),
    (
        rules.tagged,
        Resource(
            "urn:pulumi:dev::p::x::y",
            iam_documents.KEY,
            "thing",
            {},
            provider={"defaultTags": {"tags": {"project": "p", "stack": "prod"}}},
        ),
        "does not set the tags stack",
    ),
    (rules.tagged, made(iam_documents.KEY, tags={"stack": "prod"}), "tags.stack is not dev"),
    (
        rules.tagged,
        made(
            rules.TEMPLATE,
            tagSpecifications=[
                {"resourceType": kind, "tags": {"project": "p", "stack": "prod"}} for kind in ("instance", "volume")
            ],
        ),
        "does not give each instance the tags",
    ),
    (rules.no_public_bucket, block(blockPublicPolicy=False), "blockPublicPolicy allows public access"),
    (rules.no_public_bucket, made(rules.BUCKET, acl="public-read"), "acl gives access to others"),
    (rules.no_public_bucket, made(rules.BUCKET, acl="authenticated-read"), "acl gives access to others"),
    (rules.tagged, made(rules.TEMPLATE), "does not give each instance the tags"),
    (
        rules.tagged,
        made(
            rules.TEMPLATE, tagSpecifications=[{"resourceType": "instance", "tags": {"project": "p", "stack": "dev"}}]
        ),
        "does not give each volume the tags",
    ),
    (rules.data_kept, made(rules.FILE_SYSTEM, stack="prod-eu"), "protect is off in stack prod-eu"),
    (rules.data_kept, made(rules.BUCKET, stack="prod"), "protect is off in stack prod"),
    (rules.data_kept, made(iam_documents.KEY, stack="prod"), "protect is off in stack prod"),
    (rules.data_kept, made(rules.BUCKET, stack="prod", forceDestroy=True), "forceDestroy is on"),
    (rules.data_kept, made(rules.BUCKET, stack="live"), "protect is off in stack live"),
    (rules.data_kept, lifecycle(expiration={"days": 1}), "rules.expiration deletes data"),
    (rules.data_kept, lifecycle(noncurrentVersionExpiration={"noncurrentDays": 1}), "deletes old versions too early"),
    (pods.no_privileged_pods, job(securityContext={}), "main.securityContext.allowPrivilegeEscalation is not off"),
    (
        pods.no_privileged_pods,
        job(securityContext={"allowPrivilegeEscalation": False, "privileged": True}),
        "main.securityContext.privileged is on",
    ),
    (
        pods.no_privileged_pods,
        job(securityContext={**SAFE, "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}}),
        "main.securityContext.capabilities does not only drop",
    ),
    (
        pods.no_privileged_pods,
        job(securityContext={**SAFE, "capabilities": {"drop": ["NET_RAW"]}}),
        "main.securityContext.capabilities.drop is not ALL",
    ),
    (pods.no_privileged_pods, job(securityContext={**SAFE, "procMount": "Unmasked"}), "procMount is on"),
    (
        pods.no_privileged_pods,
        job(securityContext={**SAFE, "seccompProfile": {"type": "Unconfined"}}),
        "seccompProfile is not the one of the runtime",
    ),
    (
        pods.no_privileged_pods,
        pod_of({"containers": [CONTAINER], "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced"}]}}),
        "securityContext.sysctls is on",
    ),
    (
        pods.no_privileged_pods,
        pod_of(
            {
                "containers": [{**CONTAINER, "securityContext": {**SAFE, "runAsUser": 0}}],
                "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
            }
        ),
        "volumes.node.hostPath is not an allowed kind of volume",
    ),
    *(
        (pods.no_privileged_pods, resource, "volumes.plugins.hostPath is not an allowed")
        for resource in (
            device_plugin("/var/lib/kubelet"),
            device_plugin("/var/lib/kubelet/device-plugins", namespace="default"),
            device_plugin("/var/lib/kubelet/device-plugins", kind=JOB),
        )
    ),
    (
        pods.no_privileged_pods,
        made("kubernetes:core/v1:PodTemplate", template={"spec": {"containers": [{"name": "main"}]}}),
        "main.securityContext.allowPrivilegeEscalation is not off",
    ),
    (
        pods.no_privileged_pods,
        made(
            "kubernetes:batch/v1:JobList", items=[{"spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}]
        ),
        "main.securityContext.allowPrivilegeEscalation is not off",
    ),
    (
        pods.volumes_on_efs_only,
        made(pods.PERSISTENT_VOLUME, spec={"hostPath": {"path": "/"}}),
        "spec.hostPath is not EFS",
    ),
    (
        pods.volumes_on_efs_only,
        made(pods.PERSISTENT_VOLUME, spec={"csi": {"driver": "ebs.csi.aws.com"}}),
        "spec.csi is not EFS",
    ),
    (pods.pods_only_read_the_cluster, role_of(["*"], ["pods"]), "rules.verbs allows more than reading"),
    (pods.pods_only_read_the_cluster, role_of(["get"], ["secrets"]), "rules.resources allows more than reading"),
    (
        pods.pods_only_read_the_cluster,
        made(pods.ROLE_BINDING, roleRef={"kind": "ClusterRole"}, subjects=[{"kind": "ServiceAccount"}]),
        "roleRef is not a Role of the namespace",
    ),
    (
        pods.pods_only_read_the_cluster,
        made(pods.ROLE_BINDING, roleRef={"kind": "Role"}, subjects=[{"kind": "User", "name": "system:anonymous"}]),
        "subjects contains a user or a group",
    ),
    *(
        (
            pods.pods_only_read_the_cluster,
            made(
                kind, roleRef={"kind": "Role"}, subjects=[{"kind": "ServiceAccount"}, {"kind": "Group", "name": group}]
            ),
            "subjects contains a user or a group",
        )
        for kind in (pods.ROLE_BINDING, pods.CLUSTER_ROLE_BINDING)
        for group in ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")
    ),
    (
        pods.pods_only_read_the_cluster,
        made(pods.CLUSTER_ROLE_BINDING, roleRef={"kind": "ClusterRole"}, subjects=[{"kind": "ServiceAccount"}]),
        "roleRef is not a Role of the namespace",
    ),
    *(
        (rule, made("kubernetes:core/v1:Pod", spec=spec), words)
        for spec in (
            {"ephemeralContainers": [{"name": "debug"}]},
            {"containers": [CONTAINER], "ephemeralContainers": [{"name": "debug"}]},
        )
        for rule, words in (
            (pods.no_privileged_pods, "debug.securityContext.allowPrivilegeEscalation is not off"),
            (pods.pods_limit_resources, "debug.resources.limits.memory is missing"),
        )
    ),
    (
        pods.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostNetwork": True, "initContainers": [CONTAINER]}),
        "hostNetwork shares a namespace with the node",
    ),
    (
        pods.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostPID": True}),
        "hostPID shares a namespace with the node",
    ),
    (
        pods.no_privileged_pods,
        made("kubernetes:core/v1:Pod", spec={"hostIPC": True}),
        "hostIPC shares a namespace with the node",
    ),
    (
        pods.pods_limit_resources,
        made(
            "kubernetes:batch/v1:CronJob",
            spec={"jobTemplate": {"spec": {"template": {"spec": {"initContainers": [{"name": "first"}]}}}}},
        ),
        "first.resources.requests.cpu is missing",
    ),
    (
        pods.pods_limit_resources,
        job(resources={"requests": {"cpu": "1"}}),
        "main.resources.requests.memory is missing",
    ),
    (
        pods.pods_limit_resources,
        job(resources={"requests": {"cpu": "1", "memory": "1Gi"}}),
        "main.resources.limits.memory is missing",
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
