"""What holds for every stack. A rule takes a resource and yields what is wrong with it, in words to act on."""

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

NFS_PORT = 2049
# Two halves of the internet are the internet: what is wider than this is taken for all of it.
WIDEST = 8
KEPT = (BUCKET, FILE_SYSTEM, KEY)
TAGS = ("project", "stack")
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
POD_TEMPLATES = ("spec.template.spec", "spec.jobTemplate.spec.template.spec")


def encrypted(resource: Resource, stack: Stack) -> Problems:
    """Whatever lies on a disk is encrypted with the stack's own key."""
    keys = {key.urn for key in stack.of(KEY)}

    def by_our_key(path: str) -> Problems:
        if not keys & resource.refs.get(path.split(".")[0], frozenset()):
            yield _problem(
                resource, path, "is not the stack's own key", "Give it the ARN of the key in infra/encryption.py"
            )

    if resource.type in (FILE_SYSTEM, LOG_GROUP):
        yield from by_our_key("kmsKeyId")
    if resource.type == FILE_SYSTEM and at(resource.inputs, "encrypted") is not True:
        yield _problem(resource, "encrypted", "is off", "Write true")
    if resource.type == CLUSTER:
        yield from by_our_key("encryptionConfig.provider.keyArn")
    if resource.type == BUCKET_ENCRYPTION:
        yield from by_our_key("rules.applyServerSideEncryptionByDefault.kmsMasterKeyId")
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_ENCRYPTION, "bucket"):
        yield _problem(resource, "bucket", "has no encryption of its own", f"Add a {BUCKET_ENCRYPTION}")
    if resource.type == TEMPLATE:
        disks = members(resource.inputs, "blockDeviceMappings")
        if not disks:
            yield _problem(resource, "blockDeviceMappings", "says nothing of the disk", "Name it, encrypted")
        elif not all(str(at(disk, "ebs.encrypted")).lower() == "true" for disk in disks):
            yield _problem(resource, "blockDeviceMappings.ebs.encrypted", "is off", "Write true")
        else:
            yield from by_our_key("blockDeviceMappings.ebs.kmsKeyId")


def no_public_bucket(resource: Resource, stack: Stack) -> Problems:
    """Nobody outside the account reaches a bucket."""
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_BLOCK, "bucket"):
        yield _problem(resource, "bucket", "does not block public access", f"Add a {BUCKET_BLOCK}")
    if resource.type == BUCKET_BLOCK:
        for name in BLOCKS:
            if at(resource.inputs, name) is not True:
                yield _problem(resource, name, "leaves a way to the public", "Write true")
    if resource.type.startswith("aws:s3/") and str(at(resource.inputs, "acl")).startswith(
        ("public-", "authenticated-")
    ):
        yield _problem(resource, "acl", "opens the bucket to strangers", "Remove it")
    if resource.type == BUCKET_POLICY:
        for statement in _granting(resource.inputs.get("policy")):
            if _anybody(statement):
                yield _problem(resource, "policy", "grants something to everybody", "Name a principal")


def no_open_ingress(resource: Resource) -> Problems:
    """Nothing lets the internet in, but the API endpoint to the addresses that apiAccessCidrs names."""
    if resource.type == CLUSTER:
        public = at(resource.inputs, "vpcConfig.endpointPublicAccess")
        if public is not False and not members(resource.inputs, "vpcConfig.publicAccessCidrs"):
            path = "vpcConfig.publicAccessCidrs"
            yield _problem(resource, path, "names nobody, which AWS takes for everybody", "Name them in apiAccessCidrs")
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
                yield _problem(resource, key, f"lets {cidr} in", "Name a group, or the addresses that must come in")


def nfs_from_workers_only(resource: Resource, stack: Stack) -> Problems:
    """The file system is reachable from the workers, over NFS, and from nobody else."""
    guards = stack.refs(MOUNT_TARGET, "securityGroups")
    workers = stack.refs(TEMPLATE, "vpcSecurityGroupIds")
    if resource.type == MOUNT_TARGET and not resource.refs.get("securityGroups"):
        yield _problem(resource, "securityGroups", "leaves it to the VPC's default group", "Name a group of its own")
    if resource.type == GROUP and resource.urn in guards and members(resource.inputs, "ingress"):
        yield _problem(resource, "ingress", "has rules of its own", f"Write them as {INGRESS}")
    if resource.type == INGRESS and guards & resource.refs.get("securityGroupId", frozenset()):
        sources = resource.refs.get("referencedSecurityGroupId", frozenset())
        if not sources or not sources <= workers:
            why = "lets others than the workers reach the file system"
            yield _problem(resource, "referencedSecurityGroupId", why, "Name the workers' group")
        ports = (resource.inputs.get("fromPort"), resource.inputs.get("toPort"))
        if resource.inputs.get("ipProtocol") != "tcp" or ports != (NFS_PORT, NFS_PORT):
            yield _problem(resource, "fromPort", "opens more than NFS", f"Write tcp and {NFS_PORT} to {NFS_PORT}")


def imds_v2(resource: Resource) -> Problems:
    """A node gives its credentials against a session token only, and to no pod."""
    if resource.type in (TEMPLATE, "aws:ec2/instance:Instance"):
        options = at(resource.inputs, "metadataOptions")
        if at(options, "httpEndpoint") == "disabled":
            return
        if at(options, "httpTokens") != "required":
            yield _problem(resource, "metadataOptions.httpTokens", "allows IMDSv1", "Write required")
        if at(options, "httpPutResponseHopLimit") != 1:
            path = "metadataOptions.httpPutResponseHopLimit"
            yield _problem(resource, path, "lets pods take the node's credentials", "Write 1")


def no_wildcard_iam(resource: Resource) -> Problems:
    """A policy names each action and, in IAM, each resource; nobody is let in without a name or a condition."""
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
                    resource, name, f"allows {', '.join(wide) or 'all but a few'} in {sid}", "Name each action"
                )
            if resource.type.startswith("aws:iam/") and (
                "*" in _texts(statement.get("Resource")) or "NotResource" in statement
            ):
                yield _problem(resource, name, f"reaches every resource in {sid}", "Name an ARN")
            if _anybody(statement) and not statement.get("Condition"):
                yield _problem(resource, name, f"trusts everybody in {sid}", "Name a principal, or add a condition")
    arns = [resource.inputs.get("policyArn"), *members(resource.inputs, "managedPolicyArns")]
    for arn in arns if resource.type.startswith("aws:iam/") else []:
        if isinstance(arn, str) and arn.endswith(("FullAccess", "/AdministratorAccess", "/PowerUserAccess")):
            yield _problem(resource, "policyArn", f"is {arn.rpartition('/')[2]}", "Write a policy of what is needed")


def tagged(resource: Resource) -> Problems:
    """Everything in AWS says which project and stack it belongs to."""
    if not resource.type.startswith("aws:"):
        return
    given = _decoded(resource.provider.get("defaultTags"))
    missing = [tag for tag in TAGS if not at(given, f"tags.{tag}")]
    if missing:
        why = f"lacks the tags {', '.join(missing)}"
        yield _problem(resource, "provider", why, "Make it with the provider of infra/provider.py")
    if resource.type == TEMPLATE:
        kinds = {at(spec, "resourceType"): at(spec, "tags") for spec in members(resource.inputs, "tagSpecifications")}
        for kind in ("instance", "volume"):
            if any(not at(kinds.get(kind), tag) for tag in TAGS):
                why = f"leaves each {kind} without the tags {', '.join(TAGS)}"
                yield _problem(resource, "tagSpecifications", why, f"Add one for {kind} with settings.all_tags")


def production_data_kept(resource: Resource) -> Problems:
    """On stacks named prod..., no destroy or replacement takes the data, or the key to it."""
    if not resource.stack.startswith("prod"):
        return
    if resource.type in KEPT and not resource.protect:
        yield _problem(resource, "protect", f"is off on stack {resource.stack}", "Set retainData: true")
    if resource.type == BUCKET and resource.inputs.get("forceDestroy"):
        yield _problem(resource, "forceDestroy", f"is on on stack {resource.stack}", "Set retainData: true")


def no_privileged_pods(resource: Resource) -> Problems:
    """No container can become more than it starts as, or sees more of its node than it is given."""
    for pod in _pods(resource):
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if at(pod, name):
                yield _problem(resource, name, "shares the node's own", "Remove it")
        for container in _containers(pod):
            context, name = at(container, "securityContext"), at(container, "name")
            if at(context, "allowPrivilegeEscalation") is not False:
                path = f"{name}.securityContext.allowPrivilegeEscalation"
                yield _problem(resource, path, "is not off", "Write false, or use container() of workloads/job.py")
            if at(context, "privileged"):
                yield _problem(resource, f"{name}.securityContext.privileged", "is on", "Remove it")


def pods_request_resources(resource: Resource) -> Problems:
    """Every container says what it needs, so that the scheduler can place it."""
    for pod in _pods(resource):
        for container in _containers(pod):
            for need in ("cpu", "memory"):
                if not at(container, f"resources.requests.{need}"):
                    path = f"{at(container, 'name')}.resources.requests.{need}"
                    yield _problem(resource, path, "is not said", "Write how much it needs")


RESOURCE_RULES: Sequence[Callable[[Resource], Problems]] = (
    no_open_ingress,
    imds_v2,
    no_wildcard_iam,
    tagged,
    production_data_kept,
    no_privileged_pods,
    pods_request_resources,
)
# These look at what a resource is connected with.
STACK_RULES: Sequence[Callable[[Resource, Stack], Problems]] = (encrypted, no_public_bucket, nfs_from_workers_only)


def _problem(resource: Resource, path: str, why: str, instead: str) -> str:
    return f"{resource.name}: {path} {why}. {instead}."


def _granting(document: Any) -> list[Mapping[str, Any]]:
    """The Allow statements of a policy; none while it is not known."""
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
    return not network.is_private and network.prefixlen < WIDEST


def _pods(resource: Resource) -> Iterator[Any]:
    if resource.type == "kubernetes:core/v1:Pod":
        yield at(resource.inputs, "spec")
    elif resource.type.startswith("kubernetes:"):
        yield from filter(None, (at(resource.inputs, path) for path in POD_TEMPLATES))


def _containers(pod: Any) -> list[Any]:
    return [container for key in ("initContainers", "containers") for container in members(pod, key)]
