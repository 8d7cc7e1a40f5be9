"""What limits each statement of the deployer policies and of the boundary: attacks that no list of attacks names."""

import re
from collections.abc import Iterator, Mapping, Sequence

import pytest

from bootstrap import policies
from tests.iam_evaluator import Statement, resource_types, texts
from tests.unit.bootstrap.account import NAMES

OURS = ("StringEquals aws:ResourceTag/project", "StringEquals aws:ResourceTag/stack")
NEW = ("StringEquals aws:RequestTag/project", "StringEquals aws:RequestTag/stack")
NOT_OF_OTHERS = ("StringEqualsIfExists aws:ResourceTag/stack",)
LIMITED = ("StringEquals iam:PermissionsBoundary",)
# The conditions of each statement. The other statements have none: their resources or their actions limit them.
DEPLOYER: Mapping[str, Sequence[str]] = {
    "AddressDetach": OURS,
    "ClusterAccess": ("ArnEquals eks:principalArn",),
    "FileSystemChangeOurs": OURS,
    "FileSystemMake": NEW,
    "FileSystemTagNew": ("StringEquals elasticfilesystem:CreateAction",),
    "KeyChangeOurs": OURS,
    "KeyMake": NEW,
    # A new key gets its tags together with the alias and the rotation. It can take minutes until IAM sees them.
    "KeyNew": NOT_OF_OTHERS,
    "KeyTagNew": (*NEW, *NOT_OF_OTHERS),
    "KeyThroughEfs": ("StringEquals kms:ViaService", *NOT_OF_OTHERS),
    "Messages": OURS,
    # Before it creates a topic, the provider checks that the topic does not exist.
    "MessagesLook": ("StringEqualsIfExists aws:ResourceTag/project", *NOT_OF_OTHERS),
    "MessagesMake": (*NEW, *NOT_OF_OTHERS),
    "MountTargetInterfacesOurs": OURS,
    "NetworkChangeOurs": OURS,
    "NetworkMake": NEW,
    "NetworkMakeInSubnets": NEW,
    "NetworkMakeInVpc": NEW,
    "NetworkTagNew": ("StringEquals ec2:CreateAction",),
    "RolesLimited": LIMITED,
    "RolesOfAws": ("ArnEquals iam:PolicyARN", *LIMITED),
    "RolesOfServices": ("StringEquals iam:AWSServiceName",),
    "RolesPass": ("StringEquals iam:PassedToService",),
    "ServiceAccountsMake": (*NEW, *NOT_OF_OTHERS),
    "ServiceAccountsOurs": OURS,
    "WorkersLaunch": ("ArnLike ec2:LaunchTemplate",),
    "WorkersLaunchOurs": OURS,
    "ZoneRecords": ("ForAllValues:StringEquals route53:ChangeResourceRecordSetsNormalizedRecordNames",),
}
# Statements without a condition that change something, and neither stack nor cluster is in their resources.
UNLIMITED = {
    "AddressDetachInterface": "network interfaces of AWS services have no tags of the stack",
    "MountTargetInterfaces": "mount targets have no tags of the stack",
    "Subscriptions": "SNS has no resource type for subscriptions",
    "Zone": "Route 53 has no tags in permissions",
    "ZoneMake": "Route 53 has no tags in permissions",
}
WORKER, POD, TAGGED = "Null aws:Ec2InstanceSourceVpc", "Null aws:FederatedProvider", OURS[1]
BOUNDARY: Mapping[str, Sequence[str]] = {
    "ClusterTagsWorkers": ("ForAnyValue:StringLike aws:TagKeys", TAGGED),
    "JobsData": (POD,),
    "JobsMessages": (POD, TAGGED),
    "JobsResults": (POD,),
    "Key": (TAGGED,),
    "WorkersAddresses": (WORKER,),
    "WorkersAddressesOurs": (WORKER, TAGGED),
    "WorkersJoin": (WORKER,),
    "WorkersPull": (WORKER,),
    "WorkersSessions": (WORKER,),
}
# Statements for every resource, although some of their actions support a narrower one.
EVERY_RESOURCE = {
    "KeyTagNew": "the ID of a new key is not known",
    "Look": "only lists",
    "NetworkLook": "only lists",
    "WorkersPull": "images of EKS are in accounts of AWS",
    "WorkersSessions": "AWS's policy for Session Manager; only on an EC2 instance",
}
DEPLOYER_STATEMENTS = [each for part in policies.PARTS for each in policies.deployer_policy(part, NAMES)["Statement"]]
BOUNDARY_STATEMENTS = policies.boundary_policy(NAMES)["Statement"]
ALL = [*DEPLOYER_STATEMENTS, *BOUNDARY_STATEMENTS]
READS = re.compile(r"\w+:(Describe|Get|List|View)")
# What the ARNs of one stack contain: its name, its cluster, or its zone's records.
NAMED = re.compile(rf"\b{NAMES.stack}\b|\b{NAMES.cluster}\b|:change/|:ec2/\*|/regions/")


def conditions(statement: Statement) -> Iterator[tuple[str, list[str]]]:
    for operator, keys in statement.get("Condition", {}).items():
        for key, values in keys.items():
            yield f"{operator} {key}", texts(values)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [(DEPLOYER_STATEMENTS, DEPLOYER), (BOUNDARY_STATEMENTS, BOUNDARY)],
    ids=["deployer", "boundary"],
)
def test_each_statement_has_its_conditions(
    statements: Sequence[Statement], expected: Mapping[str, Sequence[str]]
) -> None:
    found = {each["Sid"]: sorted(name for name, _ in conditions(each)) for each in statements}
    assert {sid: names for sid, names in found.items() if names} == {
        sid: sorted(names) for sid, names in expected.items()
    }


@pytest.mark.parametrize("statement", ALL, ids=lambda statement: str(statement["Sid"]))
def test_the_values_of_the_conditions_are_those_of_the_stack(statement: Statement) -> None:
    for name, values in conditions(statement):
        if name.endswith("Tag/project"):
            assert values == ["paddle-on-aws"]
        elif name.endswith("Tag/stack"):
            assert values == [NAMES.stack]
        elif name.startswith("Null "):
            assert values == ["false"], "only with this key"
        else:
            wide = ("kubernetes.io/cluster/*", f"arn:aws:ec2:us-west-2:{NAMES.account}:launch-template/*")
            assert not [value for value in values if "*" in value and value not in wide]


@pytest.mark.parametrize("statement", ALL, ids=lambda statement: str(statement["Sid"]))
def test_a_statement_for_every_resource_has_a_reason(statement: Statement) -> None:
    if "*" in texts(statement["Resource"]):
        narrower = {action for action in statement["Action"] if set(resource_types(action)) - {""}}
        assert not narrower or statement["Sid"] in EVERY_RESOURCE, narrower


@pytest.mark.parametrize("statement", ALL, ids=lambda statement: str(statement["Sid"]))
def test_a_resource_with_our_name_has_the_name_of_the_stack(statement: Statement) -> None:
    for arn in texts(statement["Resource"]):
        if "paddle" in arn:
            assert re.search(rf"/{NAMES.stack}/|paddle-{NAMES.stack}-|paddle-on-aws-{NAMES.stack}$", arn), arn
        assert arn == "*" or ":*:" not in arn, f"{arn} allows every region or account"
    if {"iam:CreateRole", "iam:DeleteRole", "iam:PassRole", "iam:AttachRolePolicy"} & set(statement["Action"]):
        assert statement["Resource"] == f"arn:aws:iam::{NAMES.account}:role/paddle/{NAMES.stack}/*"


@pytest.mark.parametrize("statement", DEPLOYER_STATEMENTS, ids=lambda statement: str(statement["Sid"]))
def test_a_statement_without_conditions_only_reads_or_names_the_stack(statement: Statement) -> None:
    if statement.get("Condition") or all(READS.match(action) for action in statement["Action"]):
        return
    others = [arn for arn in texts(statement["Resource"]) if not NAMED.search(arn)]
    assert not others or statement["Sid"] in UNLIMITED, others


def test_each_reason_is_used() -> None:
    assert UNLIMITED.keys() | EVERY_RESOURCE.keys() <= {each["Sid"] for each in ALL}
    assert {"Zone", "ZoneMake"} <= UNLIMITED.keys(), "docs/permissions.md, Limitations"
