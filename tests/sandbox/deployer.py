"""The IAM policies of the deployer, and which permissions an AWS call needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bootstrap.policies import PARTS, Names, deployer_policy
from tests.iam_evaluator import Request, permitted, resource_types

PROJECT = Path(__file__).resolve().parents[2]
ACCOUNT = "123456789012"
REGION, CLUSTER = "us-west-2", "paddle-cluster"
ADMIN, OPERATOR, DEPLOYER = (
    f"arn:aws:iam::{ACCOUNT}:{each}" for each in ("role/admin", "user/operator", "user/deployer")
)
NAMES = Names(ACCOUNT, CLUSTER, "amazonaws.com", "aws", REGION, "dev", "paddle", (ADMIN, OPERATOR, DEPLOYER))

# Operations that need an IAM action of another name, or more than one action.
ACTIONS: Mapping[str, Sequence[str]] = {
    "budgets:CreateBudget": ("budgets:ModifyBudget",),
    "budgets:CreateNotification": ("budgets:ModifyBudget",),
    "budgets:DeleteBudget": ("budgets:ModifyBudget",),
    "budgets:DeleteNotification": ("budgets:ModifyBudget",),
    "budgets:DescribeBudget": ("budgets:ViewBudget",),
    "budgets:DescribeNotificationsForBudget": ("budgets:ViewBudget",),
    "budgets:DescribeSubscribersForNotification": ("budgets:ViewBudget",),
    "budgets:UpdateBudget": ("budgets:ModifyBudget",),
    "sts:GetCallerIdentity": (),  # needs no permission
    "s3:DeleteBucketEncryption": ("s3:PutEncryptionConfiguration",),
    "s3:DeleteBucketLifecycle": ("s3:PutLifecycleConfiguration",),
    "s3:DeleteBucketTagging": ("s3:PutBucketTagging",),
    "s3:DeleteObjects": ("s3:DeleteObject", "s3:DeleteObjectVersion"),
    "s3:DeletePublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "s3:GetBucketAccelerateConfiguration": ("s3:GetAccelerateConfiguration",),
    "s3:GetBucketCors": ("s3:GetBucketCORS",),
    "s3:GetBucketEncryption": ("s3:GetEncryptionConfiguration",),
    "s3:GetBucketLifecycleConfiguration": ("s3:GetLifecycleConfiguration",),
    "s3:GetBucketReplication": ("s3:GetReplicationConfiguration",),
    "s3:GetObjectLockConfiguration": ("s3:GetBucketObjectLockConfiguration",),
    "s3:GetPublicAccessBlock": ("s3:GetBucketPublicAccessBlock",),
    "s3:HeadBucket": ("s3:ListBucket",),
    "s3:ListObjectVersions": ("s3:ListBucketVersions",),
    "s3:ListObjectsV2": ("s3:ListBucket",),
    "s3:PutBucketEncryption": ("s3:PutEncryptionConfiguration",),
    "s3:PutBucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "s3:PutPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
}
# Operations that tag what they create, and the additional action that this needs.
TAGGING = {
    "CreateBudget": "budgets:TagResource",
    "eks": "eks:TagResource",
    "elasticfilesystem": "elasticfilesystem:TagResource",
    "kms": "kms:TagResource",
    "logs": "logs:TagResource",
    "sns": "sns:TagResource",
    "CreateRole": "iam:TagRole",
    "CreateOpenIDConnectProvider": "iam:TagOpenIDConnectProvider",
}
# Permissions of the deployer that AWS checks in a call, and that call. Sources: EKS user guide, "Using service-linked
# roles" and "Launch template support"; EFS user guide, "Controlling access to the EFS API".
CHECKED_BY_AWS = {
    "ec2:CreateNetworkInterface": "elasticfilesystem:CreateMountTarget",
    "ec2:DeleteNetworkInterface": "elasticfilesystem:DeleteMountTarget",
    "ec2:DescribeNetworkInterfaces": "elasticfilesystem:CreateMountTarget",
    "ec2:RunInstances": "eks:CreateNodegroup",
    "iam:CreateServiceLinkedRole": "eks:CreateNodegroup",
    "kms:Decrypt": "elasticfilesystem:CreateFileSystem",
    "kms:GenerateDataKeyWithoutPlaintext": "elasticfilesystem:CreateFileSystem",
}
# The tags in the conditions of the policies.
TAGS = ("project", "stack")
OURS = {"project": "paddle-on-aws", "stack": "dev"}
PASSED_ROLES = {"roleArn": "eks", "nodeRole": "ec2", "serviceAccountRoleArn": "eks"}
EC2_KINDS = {
    "eipalloc": "elastic-ip",
    "igw": "internet-gateway",
    "key": "key-pair",
    "lt": "launch-template",
    "nat": "natgateway",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "subnet": "subnet",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
}
# KMS and EFS set the tags in the call that creates a key or a file system. No earlier call can name it.
BORN_TAGGED = ("kms", "elasticfilesystem")
EKS_PARTS = {"nodegroupName": "nodegroup", "addonName": "addon", "principalArn": "access-entry"}


@dataclass(frozen=True)
class Need:
    """An action on a resource, with the values for conditions. `resource` is None if the call does not name it."""

    action: str
    resource: str | None
    context: Mapping[str, Any] = field(default_factory=dict)


def policies(names: Names) -> list[Mapping[str, Any]]:
    """The statements of all deployer policies of one stack."""
    return [statement for part in PARTS for statement in deployer_policy(part, names)["Statement"]]


def callers() -> Mapping[str, str]:
    """Who makes the calls that the emulated provider does not make: the table in docs/permissions.md."""
    rows = re.findall(
        r"^\| `([\w:]+)` \| ([^|]+) \| .+ \|$", (PROJECT / "docs/permissions.md").read_text(), re.MULTILINE
    )
    return dict(rows)


def official_calls() -> Mapping[str, frozenset[str]]:
    """The resource types and functions for which the official provider calls each action."""
    table = yaml.safe_load((Path(__file__).parent / "official_provider.yaml").read_text())
    actions = {action for entry in table.values() for action in entry["calls"]}
    return {each: frozenset(key for key, entry in table.items() if each in entry["calls"]) for each in actions}


def recover_calls(action: str) -> bool:
    """Whether the code of `make recover` contains the boto3 method of an action."""
    code = "".join(file.read_text() for file in (PROJECT / "tools/recover").glob("*.py"))
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", action.partition(":")[2]).lower()
    return re.search(rf"\b{method}\b", code) is not None


def allowed(statements: Sequence[Mapping[str, Any]], need: Need) -> bool:
    if need.resource is None:
        # The policies must allow the action on some resource.
        statements = [{**each, "Resource": "*"} for each in statements]
    return permitted(statements, Request(need.action, need.resource or "*", need.context))


@dataclass(frozen=True)
class Role:
    """What the conditions for calls that name a role depend on."""

    arn: str
    boundary: str


def roles_of(calls: Sequence[Mapping[str, Any]]) -> Mapping[str, Role]:
    """The roles that these calls create, by their names."""
    made = [call["parameters"] for call in calls if call["operation"] == "CreateRole"]
    return {
        each["RoleName"]: Role(
            f"arn:aws:iam::{ACCOUNT}:role{each.get('Path', '/')}{each['RoleName']}", each.get("PermissionsBoundary", "")
        )
        for each in made
    }


def _about(key: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """Values of aws:ResourceTag or aws:RequestTag."""
    return {f"aws:{key}/{tag}": tags[tag] for tag in TAGS if tag in tags}


def needs(call: Mapping[str, Any], roles: Mapping[str, Role]) -> Iterator[Need]:
    """The permissions that a call needs."""
    service, operation, parameters = call["service"], call["operation"], call["parameters"]
    name = f"{service}:{operation}"
    if service == "ec2":
        yield from _ec2_needs(call)
        return
    tags = _tags(parameters)
    context = _about("RequestTag", tags)
    if service in BORN_TAGGED and not operation.startswith(("CreateKey", "CreateFileSystem")):
        context |= _about("ResourceTag", OURS)
    for existing in call.get("tags", {}).values():
        context |= _about("ResourceTag", existing)
    if named := roles.get(parameters.get("RoleName", "")):
        context["iam:PermissionsBoundary"] = parameters.get("PermissionsBoundary") or named.boundary
    if "principalArn" in parameters:
        context["eks:principalArn"] = parameters["principalArn"]
    if "PolicyArn" in parameters:
        context["iam:PolicyARN"] = parameters["PolicyArn"]
    if operation == "ChangeResourceRecordSets":
        changes = parameters["ChangeBatch"]["Changes"]
        names = [change["ResourceRecordSet"]["Name"].rstrip(".") for change in changes]
        context["route53:ChangeResourceRecordSetsNormalizedRecordNames"] = names
    resources = list(_arns(call, roles))
    for action in ACTIONS.get(name, (name,)):
        yield from (Need(action, arn, context) for arn in resources)
    if operation.startswith("Create") and tags and (tag := TAGGING.get(operation) or TAGGING.get(service)):
        created = {**context, f"{service}:CreateAction": operation}
        yield from (Need(tag, arn, created) for arn in resources)
    for config in parameters.get("encryptionConfig", []):
        # EKS checks both with the identity of the caller, and does not support kms:GrantIsForAWSResource.
        for action in ("kms:DescribeKey", "kms:CreateGrant"):
            yield Need(action, config["provider"]["keyArn"], _about("ResourceTag", OURS))
    if operation == "CreateNodegroup":
        # EKS reads its service-linked role with the identity of the caller.
        role = "aws-service-role/eks-nodegroup.amazonaws.com/AWSServiceRoleForAmazonEKSNodegroup"
        yield Need("iam:GetRole", f"arn:aws:iam::{ACCOUNT}:role/{role}")
    for parameter, service_name in PASSED_ROLES.items():
        if parameter in parameters:
            passed = {"iam:PassedToService": f"{service_name}.amazonaws.com"}
            yield Need("iam:PassRole", parameters[parameter], passed)


def _ec2_needs(call: Mapping[str, Any]) -> Iterator[Need]:
    operation, region = call["operation"], call["region"]
    action = f"ec2:{operation}"
    if operation.startswith(("Describe", "Get")):
        yield Need(action, "*")
        return
    own = f"arn:aws:ec2:{region}:{ACCOUNT}:"
    made = {spec["ResourceType"]: _tags(spec) for spec in call["parameters"].get("TagSpecifications", [])}
    context: dict[str, Any] = {}
    for kind, tags in made.items():
        context = _about("RequestTag", tags)
        yield Need(action, f"{own}{kind}/new", context)
        yield Need("ec2:CreateTags", f"{own}{kind}/new", {**context, "ec2:CreateAction": operation})
    met = False
    for identity, tags in call["tags"].items():
        kind = EC2_KINDS.get(identity.rpartition("-")[0])
        # A launch template names security groups, but AWS checks them only when instances start.
        if kind in resource_types(action):
            met = True
            yield Need(action, f"{own}{kind}/{identity}", {**context, **_about("ResourceTag", tags)})
    if not met and not made:
        yield Need(action, None, _about("ResourceTag", OURS))


def _tags(parameters: Mapping[str, Any]) -> Mapping[str, str]:
    """The tags in a call, in any of the formats that AWS services use."""
    given: Any = next((parameters[key] for key in ("Tags", "tags", "ResourceTags") if parameters.get(key)), {})
    if isinstance(given, Mapping):
        return given
    return {tag.get("Key") or tag["TagKey"]: tag.get("Value") or tag.get("TagValue", "") for tag in given}


def _arns(call: Mapping[str, Any], roles: Mapping[str, Role]) -> Iterator[str]:
    """The ARNs of the resources that a call uses."""
    service, operation, region, p = call["service"], call["operation"], call["region"], call["parameters"]
    here = f"arn:aws:{service}:{region}:{ACCOUNT}:"
    for key in ("resourceArn", "OpenIDConnectProviderArn", "ResourceArn", "ResourceARN", "TopicArn"):
        if key in p:
            # The provider of the sandbox knows no account, so it looks for a new topic without one.
            yield p[key].replace(f":sns:{region}::", f":sns:{region}:{ACCOUNT}:")
            return
    if service == "iam":
        host = p.get("Url", "").removeprefix("https://")
        if "UserName" in p:
            yield f"arn:aws:iam::{ACCOUNT}:user/{p['UserName']}"
        elif "RoleName" in p:
            made = roles.get(p["RoleName"])
            yield made.arn if made else f"arn:aws:iam::{ACCOUNT}:role/{p['RoleName']}"
        else:
            yield f"arn:aws:iam::{ACCOUNT}:oidc-provider/{host}"
    elif service == "eks" and operation == "DescribeAddonVersions":
        yield "*"
    elif service == "eks":
        cluster = p.get("clusterName") or p["name"]
        parts = {kind: p[key] for key, kind in EKS_PARTS.items() if key in p}
        if not parts or operation.startswith("Create"):
            yield f"{here}cluster/{cluster}"
        for kind, part in parts.items():
            yield f"{here}{kind}/{cluster}/{part}/id"
    elif service == "elasticfilesystem":
        if "AccessPointId" in p or operation == "CreateAccessPoint":
            yield f"{here}access-point/{p.get('AccessPointId', 'new')}"
        if "AccessPointId" not in p:
            yield f"{here}file-system/{p.get('FileSystemId') or p.get('ResourceId') or 'of-the-mount-target'}"
    elif service == "kms":
        if "AliasName" in p:
            yield here + p["AliasName"]
        if key := p.get("KeyId") or p.get("TargetKeyId"):
            yield f"{here}key/{key.rpartition('/')[2]}"
        elif "AliasName" not in p:
            yield "*"
    elif service == "logs":
        yield f"{here}log-group:{p.get('logGroupName', '')}"
    elif service == "route53":
        if operation == "GetChange":
            yield f"arn:aws:route53:::change/{p['Id']}"
        else:
            zone = p.get("HostedZoneId") or p.get("ResourceId") or p.get("Id")
            yield f"arn:aws:route53:::hostedzone/{zone.rpartition('/')[2]}" if zone else "*"
    elif service == "s3":
        yield f"arn:aws:s3:::{p['Bucket']}" + ("/any" if operation.startswith("DeleteObject") else "")
    elif service == "servicequotas":
        yield f"{here}{p['ServiceCode']}/{p['QuotaCode']}"
    elif service == "budgets":
        budget = p.get("Budget") or p.get("NewBudget") or p
        yield f"arn:aws:budgets::{p['AccountId']}:budget/{budget['BudgetName']}"
    elif service == "sns":
        yield f"{here}{p['Name']}" if "Name" in p else "*"
    elif service == "ssm":
        yield f"arn:aws:ssm:{region}::parameter{p['Name']}"
    elif service != "sts":
        raise AssertionError(f"{service}:{operation}: add to deployer.py which resource it uses")
