"""The table of the emulated AWS provider has the names, types and replacements of the official SDK and provider."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pulumi import _types
from pulumi.runtime import mocks

from sandbox.plugins.aws import operations
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import REPLACES, REQUIRED, Prop
from sandbox.plugins.aws.rows import Row
from sandbox.plugins.aws.table import ROWS
from tests.emulator.plugins import sdk_outputs
from tests.unit.bootstrap.account import CONFIG as BOOTSTRAP
from tests.unit.program import ACCOUNT, EVERYTHING, EXISTING_KEY, NAME, PROJECT, Aws, config_of, run

# The properties that force a replacement in the official provider's schemas (ForceNew, RequiresReplace).
REPLACED: dict[str, str] = {
    "aws:ec2/vpc:Vpc": "cidrBlock",
    "aws:ec2/internetGateway:InternetGateway": "",
    "aws:ec2/subnet:Subnet": "availabilityZone cidrBlock vpcId",
    "aws:ec2/routeTable:RouteTable": "vpcId",
    "aws:ec2/route:Route": "destinationCidrBlock routeTableId",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "subnetId",
    "aws:ec2/eip:Eip": "domain",
    "aws:ec2/natGateway:NatGateway": "allocationId subnetId",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "serviceName vpcId",
    "aws:ec2/securityGroup:SecurityGroup": "description name vpcId",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "securityGroupId",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "securityGroupId",
    "aws:ec2/launchTemplate:LaunchTemplate": "name",
    "aws:ec2/keyPair:KeyPair": "keyName publicKey",
    "aws:kms/key:Key": "",
    "aws:kms/alias:Alias": "name",
    "aws:s3/bucket:Bucket": "bucket",
    "aws:s3/bucketVersioning:BucketVersioning": "bucket",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "bucket",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "bucket",
    "aws:s3/bucketPolicy:BucketPolicy": "bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "bucket",
    "aws:eks/cluster:Cluster": (
        "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons name roleArn"
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        "amiType capacityType clusterName instanceTypes launchTemplate.id nodeGroupName nodeRoleArn subnetIds"
    ),
    "aws:eks/addon:Addon": "addonName clusterName",
    "aws:eks/accessEntry:AccessEntry": "clusterName principalArn",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "accessScope clusterName policyArn principalArn",
    "aws:iam/role:Role": "name path",
    "aws:iam/rolePolicy:RolePolicy": "name role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "policyArn role",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment": "policyArn user",
    "aws:iam/policy:Policy": "name",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "url",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:efs/fileSystem:FileSystem": "creationToken encrypted kmsKeyId",
    "aws:efs/mountTarget:MountTarget": "fileSystemId subnetId",
    "aws:efs/accessPoint:AccessPoint": "fileSystemId posixUser rootDirectory",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "fileSystemId",
    "aws:efs/backupPolicy:BackupPolicy": "fileSystemId",
    "aws:route53/zone:Zone": "name",
    "aws:route53/record:Record": "name zoneId",
    "aws:sns/topic:Topic": "name",
    "aws:sns/topicSubscription:TopicSubscription": "endpoint protocol topic",
    "aws:budgets/budget:Budget": "accountId name",
}
# Required here but not in the SDK, because the alternatives are not supported.
STRICTER = {
    ("aws:ec2/route:Route", "destinationCidrBlock"),
    ("aws:ec2/routeTableAssociation:RouteTableAssociation", "subnetId"),
    ("aws:route53/record:Record", "records"),
    ("aws:route53/record:Record", "ttl"),
}

BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"

DISKS = "blockDeviceMappings"

every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def sdk_args(row: Row) -> Any:
    """Its args class; some have another name because of a name collision in the SDK."""
    resource = sdk_outputs.resource_class(row.token)
    module, name = inspect.getmodule(resource), resource.__name__
    return getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")


def item_type(declared: Any) -> Any:
    """The item type of a list of inputs."""
    inner = typing.get_args(declared)[0]
    return typing.get_args(inner)[0] if typing.get_origin(inner) is typing.Union else inner


def check_inputs(props: Mapping[str, Prop], args: type, path: str) -> Iterator[str]:
    """The inputs that the SDK's args class does not accept."""
    declared = _types.input_type_types(args)
    for name, prop in props.items():
        if name not in declared:
            yield f"{path}{name} is not an input of {args.__name__}"
            continue
        kind = declared[name]
        if typing.get_origin(kind) is typing.Union:
            kind = typing.get_args(kind)[0]
        wanted: Any = {"text": str, "policy": str, "flag": bool}.get(prop.kind)
        if wanted and kind is not wanted:
            yield f"{path}{name} is {kind}, not {prop.kind}"
        elif prop.kind == "number" and kind not in (int, float):
            yield f"{path}{name} is {kind}, not a number"
        elif prop.kind == "map" and not issubclass(typing.get_origin(kind) or type(None), Mapping):
            yield f"{path}{name} is {kind}, not a map"
        elif prop.kind == "block":
            yield from check_inputs(prop.members, kind, f"{path}{name}.")
        elif prop.item:
            if not issubclass(typing.get_origin(kind) or type(None), Sequence):
                yield f"{path}{name} is {kind}, not a list"
            elif prop.item.kind == "block":
                yield from check_inputs(prop.item.members, item_type(kind), f"{path}{name}.")


def walk(props: Mapping[str, Prop], path: str = "") -> Iterator[tuple[str, Prop]]:
    for name, prop in props.items():
        yield f"{path}{name}", prop
        yield from walk(prop.item.members if prop.item else prop.members, f"{path}{name}.")


@every_row
def test_names_types_and_replacements_match_the_sdk_and_the_official_provider(row: Row) -> None:
    args = sdk_args(row)
    assert list(check_inputs(row.inputs, args, "")) == []
    names = _types.input_type_py_to_pulumi_names(args)
    parameters = inspect.signature(args).parameters.values()
    required = {names[each.name] for each in parameters if each.default is inspect.Parameter.empty}
    ours = {name for name, prop in row.inputs.items() if REQUIRED in prop.how}
    assert ours - {name for token, name in STRICTER if token == row.token} == required
    assert {*row.outputs, *row.inputs} <= sdk_outputs.outputs(row.token).keys()
    forced = {path for path, prop in walk(row.inputs) if REPLACES in prop.how}
    assert forced == set(REPLACED[row.token].split())


class Asked(Aws):
    """The mocked AWS, which records the inputs of functions."""

    def __init__(self, sent: set[str]) -> None:
        super().__init__(entry_tags={})
        self.sent = sent

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        self.sent |= set(paths(args.args, args.token))
        return super().call(args)


def paths(value: Any, path: str) -> Iterator[str]:
    """The paths of all properties inside a value, without the positions in lists."""
    yield path
    for name, member in value.items() if isinstance(value, Mapping) else ():
        yield from paths(member, f"{path}.{name}")
    for item in value if isinstance(value, list | tuple) else ():
        yield from paths(item, path)


def test_every_input_is_sent_by_a_program_of_this_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no program sends is not emulated: delete it from the table."""
    sent = set[str]()
    people = [f"arn:aws:iam::{ACCOUNT}:{each}" for each in ("user/one", "role/two")]
    more = {"kmsKeyArn": EXISTING_KEY, "permissionsBoundary": BOUNDARY, "admins": people}
    own_key = {**EVERYTHING, **{f"{NAME}:{name}": value for name, value in more.items()}}
    account = {**BOOTSTRAP, f"{NAME}:deployers": {"dev": people}}
    graphs = [run(monkeypatch, config, "dev", aws=Asked(sent)) for config in (config_of("dev"), EVERYTHING, own_key)]
    graphs += [run(monkeypatch, account, aws=Asked(sent), program=PROJECT / "bootstrap/__main__.py")]
    for resource in (each for graph in graphs for each in graph.resources.values()):
        sent |= set(paths(resource.inputs, resource.type))
        if resource.type.startswith("aws:"):
            assert resource.inputs.keys() <= ROWS[resource.type].inputs.keys(), resource.type
    # The provider adds its default tags to every resource that can have tags.
    generated = {f"{row.token}.{row.autoname.property}" for row in ROWS.values() if row.autoname}
    added = generated | {f"{row.token}.tags" for row in ROWS.values()}
    tables = {row.token: row.inputs for row in ROWS.values()} | {each.token: each.inputs for each in INVOKES.values()}
    emulated = {f"{token}.{path}" for token, inputs in tables.items() for path, _ in walk(inputs)} | tables.keys()
    assert emulated - sent - added == set()


@pytest.mark.parametrize(
    ("kind", "changed", "path", "replaces"),
    [
        ("eks/nodeGroup:NodeGroup", {"launchTemplate": {"id": "b", "version": "1"}}, "launchTemplate.id", True),
        ("eks/nodeGroup:NodeGroup", {"launchTemplate": {"id": "a", "version": "2"}}, "launchTemplate.version", False),
        ("eks/nodeGroup:NodeGroup", {"subnetIds": ["b", "c"]}, "subnetIds", True),
        ("eks/nodeGroup:NodeGroup", {"subnetIds": ["b", "a"]}, "", False),
        ("eks/nodeGroup:NodeGroup", {"tagsAll": {"key": "2"}}, "tagsAll.key", False),
        ("kms/key:Key", {"policy": '{"Statement":[{"Sid":"1","Action":["a"]}]}'}, "", False),
        ("kms/key:Key", {"policy": '{"Statement":[{"Sid":"2","Action":"a"}]}'}, "policy", False),
        (
            "s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
            {"rules": [{"id": "b"}]},
            "rules[0].id",
            False,
        ),
    ],
)
def test_diff_reports_exactly_the_changed_property(
    kind: str, changed: dict[str, Any], path: str, replaces: bool
) -> None:
    before: dict[str, Any] = {"launchTemplate": {"id": "a", "version": "1"}, "subnetIds": ["a", "b"]}
    before |= {
        "tagsAll": {"key": "1"},
        "policy": '{"Statement": [{"Sid": "1", "Action": "a"}]}',
        "rules": [{"id": "a"}],
    }
    found = operations.find_differences(ROWS[f"aws:{kind}"], before, {**before, **changed})
    assert [(each.path, each.replaces) for each in found] == ([(path, replaces)] if path else [])


def test_functions_match_the_sdk() -> None:
    """Each function accepts what the SDK's function sends. `Plugin.invoke` compares the outputs."""
    for token, invoke in INVOKES.items():
        sent = set(re.findall(r"__args__\['(\w+)'\]", inspect.getsource(sdk_outputs.function_module(token))))
        assert set(invoke.inputs) <= sent, token
