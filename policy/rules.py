"""The policy rules for every stack. A rule yields one message for each violation: what is wrong and what to write."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from policy.graph import Resource, Stack, Unknown, at, members

Problems = Iterator[str]

KEY = "aws:kms/key:Key"
BUCKET = "aws:s3/bucket:Bucket"
BUCKET_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
BUCKET_ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
CLUSTER = "aws:eks/cluster:Cluster"
FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
TOPIC = "aws:sns/topic:Topic"

NFS_PORT = 2049
# Treat any public range wider than /8 as open to the internet.
WIDEST = 8
# The only private range that is wider.
PRIVATE_IPV6 = ipaddress.ip_network("fc00::/7")
KEPT = (BUCKET, FILE_SYSTEM, KEY)
TAGS = ("project", "stack")
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
POD_TEMPLATES = ("spec.template.spec", "spec.jobTemplate.spec.template.spec")


def encrypted(resource: Resource, stack: Stack) -> Problems:
    """All stored data is encrypted with the key of the stack."""
    keys = {key.urn for key in stack.of(KEY)}

    def by_our_key(path: str) -> Problems:
        if not keys & resource.refs.get(path.split(".")[0], frozenset()):
            yield _problem(
                resource, path, "is not the key of the stack", "Use the ARN of the key in infra/encryption.py"
            )

    # CloudWatch encrypts log groups without a key of ours, and a log group can outlive the key.
    if resource.type == FILE_SYSTEM or (resource.type == LOG_GROUP and resource.inputs.get("kmsKeyId") is not None):
        yield from by_our_key("kmsKeyId")
    if resource.type == FILE_SYSTEM and at(resource.inputs, "encrypted") is not True:
        yield _problem(resource, "encrypted", "is off", "Write true")
    if resource.type == TOPIC:
        yield from by_our_key("kmsMasterKeyId")
    if resource.type == CLUSTER:
        yield from by_our_key("encryptionConfig.provider.keyArn")
    if resource.type == BUCKET_ENCRYPTION:
        yield from by_our_key("rules.applyServerSideEncryptionByDefault.kmsMasterKeyId")
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_ENCRYPTION, "bucket"):
        yield _problem(resource, "bucket", "has no encryption configuration", f"Add a {BUCKET_ENCRYPTION}")
    if resource.type == TEMPLATE:
        disks = members(resource.inputs, "blockDeviceMappings")
        if not disks:
            yield _problem(
                resource, "blockDeviceMappings", "does not list the disk", "Add it, with ebs.encrypted: true"
            )
        elif not all(str(at(disk, "ebs.encrypted")).lower() == "true" for disk in disks):
            yield _problem(resource, "blockDeviceMappings.ebs.encrypted", "is off", "Write true")
        else:
            yield from by_our_key("blockDeviceMappings.ebs.kmsKeyId")


def no_public_bucket(resource: Resource, stack: Stack) -> Problems:
    """No bucket is accessible from outside the account."""
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_BLOCK, "bucket"):
        yield _problem(resource, "bucket", "does not block public access", f"Add a {BUCKET_BLOCK}")
    if resource.type == BUCKET_BLOCK:
        for name in BLOCKS:
            if at(resource.inputs, name) is not True:
                yield _problem(resource, name, "allows public access", "Write true")
    if resource.type.startswith("aws:s3/") and str(at(resource.inputs, "acl")).startswith(
        ("public-", "authenticated-")
    ):
        yield _problem(resource, "acl", "allows public access", "Remove it")
    if resource.type == BUCKET_POLICY:
        for statement in _granting(resource.inputs.get("policy")):
            if _anybody(statement):
                yield _problem(resource, "policy", "gives access to everybody", "Name a principal")


def no_open_ingress(resource: Resource) -> Problems:
    """No ingress from the internet, except to the API endpoint from the addresses in apiAccessCidrs."""
    if resource.type == CLUSTER:
        public = at(resource.inputs, "vpcConfig.endpointPublicAccess")
        if public is not False and not members(resource.inputs, "vpcConfig.publicAccessCidrs"):
            path = "vpcConfig.publicAccessCidrs"
            yield _problem(
                resource, path, "is empty, and AWS then allows everybody", "List the addresses in apiAccessCidrs"
            )
        return
    if resource.type == INGRESS:
        sources = {key: resource.inputs.get(key) for key in ("cidrIpv4", "cidrIpv6")}
    elif resource.type == GROUP:
        inline = members(resource.inputs, "ingress")
        sources = {
            "ingress": [
                cidr for rule in inline for key in ("cidrBlocks", "ipv6CidrBlocks") for cidr in members(rule, key)
            ]
        }
    elif resource.type == "aws:ec2/securityGroupRule:SecurityGroupRule" and resource.inputs.get("type") == "ingress":
        sources = {key: resource.inputs.get(key) for key in ("cidrBlocks", "ipv6CidrBlocks")}
    else:
        return
    for key, value in sources.items():
        for cidr in [value] if isinstance(value, str) else value or []:
            if not isinstance(cidr, Unknown) and _is_the_internet(cidr):
                yield _problem(
                    resource,
                    key,
                    f"allows ingress from {cidr}",
                    "Name a security group or the addresses that need access",
                )


def nfs_from_workers_only(resource: Resource, stack: Stack) -> Problems:
    """Only the workers can reach the file system, and only with NFS."""
    guards = stack.refs(MOUNT_TARGET, "securityGroups")
    workers = stack.refs(TEMPLATE, "vpcSecurityGroupIds")
    if resource.type == MOUNT_TARGET and not resource.refs.get("securityGroups"):
        yield _problem(
            resource, "securityGroups", "is empty, so AWS uses the default group of the VPC", "Name a security group"
        )
    if resource.type == GROUP and resource.urn in guards and members(resource.inputs, "ingress"):
        yield _problem(resource, "ingress", "contains rules", f"Write each rule as {INGRESS}")
    if resource.type == INGRESS and guards & resource.refs.get("securityGroupId", frozenset()):
        sources = resource.refs.get("referencedSecurityGroupId", frozenset())
        if not sources or not sources <= workers:
            why = "allows access to the file system from outside the workers"
            yield _problem(resource, "referencedSecurityGroupId", why, "Name the security group of the workers")
        ports = (resource.inputs.get("fromPort"), resource.inputs.get("toPort"))
        if resource.inputs.get("ipProtocol") != "tcp" or ports != (NFS_PORT, NFS_PORT):
            yield _problem(
                resource, "fromPort", "opens more than NFS", f"Write tcp, and {NFS_PORT} as first and last port"
            )


def imds_v2(resource: Resource) -> Problems:
    """A node requires a session token (IMDSv2) for its credentials, and pods cannot get them."""
    if resource.type in (TEMPLATE, "aws:ec2/instance:Instance"):
        options = at(resource.inputs, "metadataOptions")
        if at(options, "httpEndpoint") == "disabled":
            return
        if at(options, "httpTokens") != "required":
            yield _problem(resource, "metadataOptions.httpTokens", "allows IMDSv1", "Write required")
        if at(options, "httpPutResponseHopLimit") != 1:
            path = "metadataOptions.httpPutResponseHopLimit"
            yield _problem(resource, path, "allows pods to get the credentials of the node", "Write 1")


def no_wildcard_iam(resource: Resource) -> Problems:
    """A policy names each action and, in IAM, each resource. Access for everybody needs a condition."""
    if not resource.type.startswith("aws:"):
        return
    for name in ("policy", "assumeRolePolicy"):
        for statement in _granting(resource.inputs.get(name)):
            sid = statement.get("Sid", "a statement")
            if resource.type == KEY and _account_decides(statement):
                continue
            wide = [action for action in _texts(statement.get("Action")) if "*" in action]
            if wide or "NotAction" in statement:
                yield _problem(
                    resource,
                    name,
                    f"allows {', '.join(wide) or 'all actions except some'} in {sid}",
                    "Name each action",
                )
            if resource.type.startswith("aws:iam/") and (
                "*" in _texts(statement.get("Resource")) or "NotResource" in statement
            ):
                yield _problem(resource, name, f"allows every resource in {sid}", "Name an ARN")
            if _anybody(statement) and not statement.get("Condition"):
                yield _problem(resource, name, f"allows everybody in {sid}", "Name a principal, or add a condition")
    arns = [resource.inputs.get("policyArn"), *members(resource.inputs, "managedPolicyArns")]
    for arn in arns if resource.type.startswith("aws:iam/") else []:
        if isinstance(arn, str) and arn.endswith(("FullAccess", "/AdministratorAccess", "/PowerUserAccess")):
            yield _problem(
                resource, "policyArn", f"is {arn.rpartition('/')[2]}", "Write a policy with the actions that are needed"
            )


def tagged(resource: Resource) -> Problems:
    """Every AWS resource has tags for its project and its stack."""
    if not resource.type.startswith("aws:"):
        return
    given = _decoded(resource.provider.get("defaultTags"))
    missing = [tag for tag in TAGS if not at(given, f"tags.{tag}")]
    if missing:
        why = f"lacks the tags {', '.join(missing)}"
        yield _problem(resource, "provider", why, "Create it with the provider in infra/provider.py")
    if resource.type == TEMPLATE:
        kinds = {at(spec, "resourceType"): at(spec, "tags") for spec in members(resource.inputs, "tagSpecifications")}
        for kind in ("instance", "volume"):
            if any(not at(kinds.get(kind), tag) for tag in TAGS):
                why = f"does not give each {kind} the tags {', '.join(TAGS)}"
                yield _problem(resource, "tagSpecifications", why, f"Add an entry for {kind} with settings.all_tags")


def production_data_kept(resource: Resource) -> Problems:
    """In stacks whose name starts with prod, data and key are protected from destroy and replacement."""
    if not resource.stack.startswith("prod"):
        return
    if resource.type in KEPT and not resource.protect:
        yield _problem(resource, "protect", f"is off in stack {resource.stack}", "Set retainData: true")
    if resource.type == BUCKET and resource.inputs.get("forceDestroy"):
        yield _problem(resource, "forceDestroy", f"is on in stack {resource.stack}", "Set retainData: true")


def no_privileged_pods(resource: Resource) -> Problems:
    """No container can gain privileges or share the namespaces of its node."""
    for pod in _pods(resource):
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if at(pod, name):
                yield _problem(resource, name, "shares a namespace with the node", "Remove it")
        for container in _containers(pod):
            context, name = at(container, "securityContext"), at(container, "name")
            if at(context, "allowPrivilegeEscalation") is not False:
                path = f"{name}.securityContext.allowPrivilegeEscalation"
                yield _problem(resource, path, "is not off", "Write false, or use container() of workloads/job.py")
            if at(context, "privileged"):
                yield _problem(resource, f"{name}.securityContext.privileged", "is on", "Remove it")


def pods_request_resources(resource: Resource) -> Problems:
    """Every container requests CPU and memory, so that the scheduler can place its pod."""
    for pod in _pods(resource):
        for container in _containers(pod):
            for need in ("cpu", "memory"):
                if not at(container, f"resources.requests.{need}"):
                    path = f"{at(container, 'name')}.resources.requests.{need}"
                    yield _problem(resource, path, "is missing", "Write how much the container needs")


RESOURCE_RULES: Sequence[Callable[[Resource], Problems]] = (
    no_open_ingress,
    imds_v2,
    no_wildcard_iam,
    tagged,
    production_data_kept,
    no_privileged_pods,
    pods_request_resources,
)
# These rules also look at the other resources of the stack.
STACK_RULES: Sequence[Callable[[Resource, Stack], Problems]] = (encrypted, no_public_bucket, nfs_from_workers_only)


def _problem(resource: Resource, path: str, why: str, instead: str) -> str:
    return f"{resource.name}: {path} {why}. {instead}."


def _granting(document: Any) -> list[Mapping[str, Any]]:
    """The Allow statements of a policy. None if the policy is not known yet."""
    statements = at(_decoded(document), "Statement") or []
    listed = [statements] if isinstance(statements, Mapping) else statements
    return (
        [s for s in listed if isinstance(s, Mapping) and s.get("Effect") == "Allow"]
        if not isinstance(listed, Unknown)
        else []
    )


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [text for text in value or [] if isinstance(text, str)]


def _anybody(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    named = principal.values() if isinstance(principal, Mapping) else [principal]
    return "NotPrincipal" in statement or any("*" in _texts(who) for who in named)


def _account_decides(statement: Mapping[str, Any]) -> bool:
    """Whether this is the default statement of key policies: IAM policies of the account decide."""
    principal = statement.get("Principal")
    root = principal.get("AWS") if isinstance(principal, Mapping) and set(principal) == {"AWS"} else None
    return (
        isinstance(root, str)
        and re.fullmatch(r"arn:[\w-]+:iam::\d{12}:root", root) is not None
        and _texts(statement.get("Action")) == ["kms:*"]
        and statement.get("Resource") == "*"
        and set(statement) <= {"Sid", "Effect", "Principal", "Action", "Resource"}
    )


def _is_the_internet(cidr: str) -> bool:
    network = ipaddress.ip_network(cidr, strict=False)
    # `network.is_private` would be shorter, but it is true for 0.0.0.0/0 in some versions of Python 3.10.
    return network.prefixlen < WIDEST and network != PRIVATE_IPV6


def _pods(resource: Resource) -> Iterator[Any]:
    if resource.type == "kubernetes:core/v1:Pod":
        yield at(resource.inputs, "spec")
    elif resource.type.startswith("kubernetes:"):
        yield from filter(None, (at(resource.inputs, path) for path in POD_TEMPLATES))


def _containers(pod: Any) -> list[Any]:
    return [container for key in ("initContainers", "containers") for container in members(pod, key)]
