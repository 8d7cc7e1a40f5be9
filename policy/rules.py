"""The policy rules for every stack. A rule yields one message for each violation: what is wrong and what to write."""

import ipaddress
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from policy.allowed_types import ALLOWED_TYPES, COMPONENTS
from policy.graph import Resource, Stack, Unknown, at, every, members
from policy.iam_documents import KEY, existing_key, no_wildcard_iam, only_known_managed_policies, own_account_only
from policy.pods import no_privileged_pods, pods_limit_resources, pods_only_read_the_cluster, volumes_on_efs_only

Problems = Iterator[str]

BUCKET = "aws:s3/bucket:Bucket"
BUCKET_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
BUCKET_ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
BUCKET_LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
CLUSTER = "aws:eks/cluster:Cluster"
FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
TOPIC = "aws:sns/topic:Topic"

NFS_PORT = 2049
PRIVATE = [ipaddress.ip_network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
PRIVATE += [ipaddress.ip_network("fc00::/7")]
# Treat any public range that is wider as open to the internet.
WIDEST = {4: 16, 6: 32}
KEPT = (BUCKET, FILE_SYSTEM, KEY)
# The stacks whose data may be deleted. Every other stack must protect it, whatever its name.
DISPOSABLE_STACKS = ("dev", "local", "tutorial")
OLD_VERSIONS_DAYS = 30
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def only_allowed_types(resource: Resource) -> Problems:
    """Every resource has a type that the program uses, because only these types have rules."""
    if resource.type not in ALLOWED_TYPES and not resource.type.startswith(COMPONENTS):
        instead = "Use an allowed type, or add this one there, with rules for its properties"
        yield resource.problem("type", f"{resource.type} is not in policy/allowed_types.py", instead)


def encrypted(resource: Resource, stack: Stack) -> Problems:
    """All stored data is encrypted with the key of the stack, or all of it with the same existing key."""
    keys = {key.urn for key in stack.of(KEY)}
    arns = {arn for key in stack.of(KEY) if isinstance(arn := key.inputs.get("arn"), str)}

    existing = existing_key(stack)

    def by_our_key(path: str) -> Problems:
        values = every(resource.inputs, path)
        known = {value for value in values if not isinstance(value, Unknown)}
        ours = known <= arns and values and keys & resource.refs.get(path.split(".")[0], frozenset())
        if not ours and not (existing and values and all(value == existing for value in values)):
            yield resource.problem(path, "is not the key of the stack", "Use the ARN of the key in infra/encryption.py")

    # CloudWatch encrypts log groups without a key of ours, and a log group can outlive the key.
    if resource.type == FILE_SYSTEM or (resource.type == LOG_GROUP and resource.inputs.get("kmsKeyId") is not None):
        yield from by_our_key("kmsKeyId")
    if resource.type == FILE_SYSTEM and at(resource.inputs, "encrypted") is not True:
        yield resource.problem("encrypted", "is off", "Write true")
    if resource.type == TOPIC:
        yield from by_our_key("kmsMasterKeyId")
    if resource.type == CLUSTER:
        yield from by_our_key("encryptionConfig.provider.keyArn")
    if resource.type == BUCKET_ENCRYPTION:
        yield from by_our_key("rules.applyServerSideEncryptionByDefault.kmsMasterKeyId")
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_ENCRYPTION, "bucket"):
        yield resource.problem("bucket", "has no encryption configuration", f"Add a {BUCKET_ENCRYPTION}")
    if resource.type == TEMPLATE:
        disks = members(resource.inputs, "blockDeviceMappings")
        if not disks:
            yield resource.problem("blockDeviceMappings", "does not list the disk", "Add it, with ebs.encrypted: true")
        elif not all(str(at(disk, "ebs.encrypted")).lower() == "true" for disk in disks):
            yield resource.problem("blockDeviceMappings.ebs.encrypted", "is off", "Write true")
        else:
            yield from by_our_key("blockDeviceMappings.ebs.kmsKeyId")


def no_public_bucket(resource: Resource) -> Problems:
    """No bucket has a setting that gives the public access."""
    if resource.type == BUCKET_BLOCK:
        for name in BLOCKS:
            if at(resource.inputs, name) is not True:
                yield resource.problem(name, "allows public access", "Write true")
    if resource.type == BUCKET and resource.inputs.get("acl") not in (None, "private"):
        yield resource.problem("acl", "gives access to others", "Remove it")


def public_access_blocked(resource: Resource, stack: Stack) -> Problems:
    """Every bucket blocks public access."""
    if resource.type == BUCKET and resource.urn not in stack.refs(BUCKET_BLOCK, "bucket"):
        yield resource.problem("bucket", "does not block public access", f"Add a {BUCKET_BLOCK}")


def no_open_ingress(resource: Resource) -> Problems:
    """No ingress from the internet, except to the API endpoint from the addresses in apiAccessCidrs."""
    if resource.type == CLUSTER:
        public = at(resource.inputs, "vpcConfig.endpointPublicAccess")
        if public is not False and not members(resource.inputs, "vpcConfig.publicAccessCidrs"):
            why = "is empty, and AWS then allows everybody"
            yield resource.problem("vpcConfig.publicAccessCidrs", why, "List the addresses in apiAccessCidrs")
    if resource.type == GROUP:
        for name in ("ingress", "egress"):
            if resource.inputs.get(name):
                yield resource.problem(name, "contains rules", f"Write each rule as {INGRESS}")
    if resource.type == INGRESS:
        if resource.inputs.get("prefixListId") is not None:
            why = "allows ingress from a list of ranges that can change"
            yield resource.problem("prefixListId", why, "Name a security group or the addresses that need access")
        for key in ("cidrIpv4", "cidrIpv6"):
            cidr = resource.inputs.get(key)
            if isinstance(cidr, str) and _is_the_internet(cidr):
                instead = "Name a security group or the addresses that need access"
                yield resource.problem(key, f"allows ingress from {cidr}", instead)


def nfs_from_workers_only(resource: Resource, stack: Stack) -> Problems:
    """Only the workers can reach the file system, and only with NFS."""
    guards = stack.refs(MOUNT_TARGET, "securityGroups")
    workers = stack.refs(TEMPLATE, "vpcSecurityGroupIds")
    if resource.type == MOUNT_TARGET and not resource.refs.get("securityGroups"):
        why = "is empty, so AWS uses the default group of the VPC"
        yield resource.problem("securityGroups", why, "Name a security group")
    if resource.type == INGRESS and guards & resource.refs.get("securityGroupId", frozenset()):
        sources = resource.refs.get("referencedSecurityGroupId", frozenset())
        if not sources or not sources <= workers:
            why = "allows access to the file system from outside the workers"
            yield resource.problem("referencedSecurityGroupId", why, "Name the security group of the workers")
        ports = (resource.inputs.get("fromPort"), resource.inputs.get("toPort"))
        if resource.inputs.get("ipProtocol") != "tcp" or ports != (NFS_PORT, NFS_PORT):
            instead = f"Write tcp, and {NFS_PORT} as first and last port"
            yield resource.problem("fromPort", "opens more than NFS", instead)


def imds_v2(resource: Resource) -> Problems:
    """A node requires a session token (IMDSv2) for its credentials, and pods cannot get them."""
    if resource.type == TEMPLATE:
        options = at(resource.inputs, "metadataOptions")
        if at(options, "httpEndpoint") == "disabled":
            return
        if at(options, "httpTokens") != "required":
            yield resource.problem("metadataOptions.httpTokens", "allows IMDSv1", "Write required")
        if at(options, "httpPutResponseHopLimit") != 1:
            why = "allows pods to get the credentials of the node"
            yield resource.problem("metadataOptions.httpPutResponseHopLimit", why, "Write 1")


def tagged(resource: Resource) -> Problems:
    """Every AWS resource has the tags of its project and its stack."""
    if not resource.type.startswith("aws:"):
        return
    expected = {"project": resource.project, "stack": resource.stack}
    given = _decoded(resource.provider.get("defaultTags"))
    wrong = [tag for tag, value in expected.items() if at(given, f"tags.{tag}") != value]
    if wrong:
        why = f"does not set the tags {', '.join(wrong)} to the names of project and stack"
        yield resource.problem("provider", why, "Create the resource with the provider in infra/provider.py")
    for tag, value in expected.items():
        if at(resource.inputs, f"tags.{tag}") not in (None, value):
            yield resource.problem(f"tags.{tag}", f"is not {value}", "Remove it: the provider adds this tag")
    if resource.type == TEMPLATE:
        kinds = {at(spec, "resourceType"): at(spec, "tags") for spec in members(resource.inputs, "tagSpecifications")}
        for kind in ("instance", "volume"):
            if any(at(kinds.get(kind), tag) != value for tag, value in expected.items()):
                why = f"does not give each {kind} the tags {', '.join(expected)} of the stack"
                yield resource.problem("tagSpecifications", why, f"Add an entry for {kind} with settings.all_tags")


def data_kept(resource: Resource) -> Problems:
    """Data and key are protected from destroy and replacement, except in stacks for experiments."""
    if resource.type == BUCKET_LIFECYCLE:
        for rule in members(resource.inputs, "rules"):
            if at(rule, "expiration") is not None:
                yield resource.problem("rules.expiration", "deletes data", "Remove it")
            days = at(rule, "noncurrentVersionExpiration.noncurrentDays")
            if days is not None and (isinstance(days, Unknown) or days < OLD_VERSIONS_DAYS):
                path = "rules.noncurrentVersionExpiration.noncurrentDays"
                yield resource.problem(path, "deletes old versions too early", f"Write {OLD_VERSIONS_DAYS} or more")
    if resource.stack in DISPOSABLE_STACKS:
        return
    instead = "Set retainData: true, or add a stack for experiments to DISPOSABLE_STACKS"
    if resource.type in KEPT and not resource.protect:
        yield resource.problem("protect", f"is off in stack {resource.stack}", instead)
    if resource.type == BUCKET and resource.inputs.get("forceDestroy"):
        yield resource.problem("forceDestroy", f"is on in stack {resource.stack}", instead)


RESOURCE_RULES: Sequence[Callable[[Resource], Problems]] = (
    only_allowed_types,
    no_open_ingress,
    no_public_bucket,
    imds_v2,
    no_wildcard_iam,
    only_known_managed_policies,
    tagged,
    data_kept,
    no_privileged_pods,
    pods_limit_resources,
    volumes_on_efs_only,
    pods_only_read_the_cluster,
)
# These rules also look at the other resources of the stack.
STACK_RULES: Sequence[Callable[[Resource, Stack], Problems]] = (
    encrypted,
    own_account_only,
    public_access_blocked,
    nfs_from_workers_only,
)


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _is_the_internet(cidr: str) -> bool:
    network = ipaddress.ip_network(cidr, strict=False)
    private = any(network.version == each.version and _within(network, each) for each in PRIVATE)
    return not private and network.prefixlen < WIDEST[network.version]


def _within(inner: Any, outer: Any) -> bool:
    return bool(inner.subnet_of(outer))
