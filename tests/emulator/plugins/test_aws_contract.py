"""The table of the emulated AWS provider has the names, types and replacements of the official SDK and provider."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pulumi import _types

from sandbox.plugins.aws import operations
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import REPLACES, REQUIRED, Prop
from sandbox.plugins.aws.rows import Row
from sandbox.plugins.aws.table import ROWS
from tests.emulator.plugins import sdk_outputs

# The properties that force a replacement in the official provider's schemas (ForceNew, RequiresReplace).
REPLACED: dict[str, str] = {
    "aws:ec2/vpc:Vpc": "cidrBlock",
    "aws:ec2/internetGateway:InternetGateway": "",
    "aws:ec2/subnet:Subnet": "availabilityZone availabilityZoneId cidrBlock vpcId",
    "aws:ec2/routeTable:RouteTable": "vpcId",
    "aws:ec2/route:Route": "destinationCidrBlock routeTableId",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "gatewayId subnetId",
    "aws:ec2/eip:Eip": "domain",
    "aws:ec2/natGateway:NatGateway": "allocationId connectivityType privateIp subnetId",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "serviceName vpcEndpointType vpcId",
    "aws:ec2/securityGroup:SecurityGroup": "description name vpcId",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "securityGroupId",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "securityGroupId",
    "aws:ec2/launchTemplate:LaunchTemplate": "name",
    "aws:ec2/keyPair:KeyPair": "keyName publicKey",
    "aws:kms/key:Key": "customerMasterKeySpec keyUsage multiRegion",
    "aws:kms/alias:Alias": "name",
    "aws:s3/bucket:Bucket": "bucket objectLockEnabled",
    "aws:s3/bucketVersioning:BucketVersioning": "bucket",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "bucket",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "bucket",
    "aws:s3/bucketPolicy:BucketPolicy": "bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "bucket",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": "bucket",
    "aws:eks/cluster:Cluster": (
        "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons"
        " kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr name roleArn"
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id launchTemplate.name nodeGroupName"
        " nodeRoleArn remoteAccess subnetIds"
    ),
    "aws:eks/addon:Addon": "addonName clusterName",
    "aws:eks/accessEntry:AccessEntry": "clusterName principalArn type",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "accessScope clusterName policyArn principalArn",
    "aws:iam/role:Role": "name path",
    "aws:iam/rolePolicy:RolePolicy": "name role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "policyArn role",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment": "policyArn user",
    "aws:iam/policy:Policy": "description name path",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "url",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:efs/fileSystem:FileSystem": "availabilityZoneName creationToken encrypted kmsKeyId performanceMode",
    "aws:efs/mountTarget:MountTarget": "fileSystemId ipAddress subnetId",
    "aws:efs/accessPoint:AccessPoint": "fileSystemId posixUser rootDirectory",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "fileSystemId",
    "aws:efs/backupPolicy:BackupPolicy": "fileSystemId",
    "aws:route53/zone:Zone": "name",
    "aws:route53/record:Record": "name zoneId",
    "aws:sns/topic:Topic": "name",
    "aws:sns/topicSubscription:TopicSubscription": "endpoint protocol topic",
    "aws:budgets/budget:Budget": "accountId name",
}
# The schema versions of the official provider; all other types have 0.
SCHEMA_VERSIONS = {
    "aws:ec2/vpc:Vpc": 1,
    "aws:ec2/subnet:Subnet": 1,
    "aws:ec2/securityGroup:SecurityGroup": 1,
    "aws:ec2/launchTemplate:LaunchTemplate": 1,
    "aws:ec2/keyPair:KeyPair": 1,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": 1,
    "aws:eks/cluster:Cluster": 1,
    "aws:route53/record:Record": 2,
}
# Required here but not in the SDK, because the alternatives are not supported.
STRICTER = {("aws:ec2/route:Route", "destinationCidrBlock")}

every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def sdk_args(row: Row) -> Any:
    """Its args class; some have another name because of a name collision in the SDK."""
    module, name = (
        inspect.getmodule(sdk_outputs.resource_class(row.token)),
        sdk_outputs.resource_class(row.token).__name__,
    )
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
            yield f"{path}{name} is no input of {args.__name__}"
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
def test_inputs_match_the_sdk(row: Row) -> None:
    assert list(check_inputs(row.inputs, sdk_args(row), "")) == []


@every_row
def test_required_inputs_match_the_sdk(row: Row) -> None:
    names = _types.input_type_py_to_pulumi_names(sdk_args(row))
    parameters = inspect.signature(sdk_args(row)).parameters.values()
    required = {names[each.name] for each in parameters if each.default is inspect.Parameter.empty}
    ours = {name for name, prop in row.inputs.items() if REQUIRED in prop.how}
    assert ours - {name for token, name in STRICTER if token == row.token} == required


@every_row
def test_outputs_match_the_sdk(row: Row) -> None:
    declared = sdk_outputs.outputs(row.token)
    given = (
        {name.split(".")[0] for name in row.outputs}
        | row.unset.keys()
        | row.inputs.keys()
        | ({"tagsAll"} if "tags" in row.inputs else set())
    )
    promised = {name for name, kind in declared.items() if not sdk_outputs.is_optional(kind)}
    assert given - declared.keys() == set(), "not declared by the SDK"
    assert promised - given == set(row.withheld), "declared by the SDK, but neither returned nor listed as withheld"
    nested = [name.split(".") for name in row.outputs if "." in name]
    for block, member in nested:
        assert member in _types.output_type_types(_types.resource_types(sdk_outputs.resource_class(row.token))[block])


@every_row
def test_replacements_match_the_official_provider(row: Row) -> None:
    forced = {path for path, prop in walk(row.inputs) if REPLACES in prop.how and path != "region"}
    assert forced == set(REPLACED[row.token].split())


def test_schema_versions_match_the_official_provider() -> None:
    """The official provider upgrades a state whose version is missing, and the upgrades fail on a current state."""
    assert {row.token: row.schema_version for row in ROWS.values() if row.schema_version} == SCHEMA_VERSIONS


def test_replacements_are_listed_for_every_row() -> None:
    assert REPLACED.keys() == ROWS.keys()


def value(prop: Prop, which: int) -> Any:
    """One of two different values of a property."""
    if prop.kind == "block":
        return {name: value(member, which) for name, member in prop.members.items()}
    if prop.item:
        return [value(prop.item, which)]
    by_kind = {
        "text": f"v{which}",
        "number": which,
        "flag": bool(which - 1),
        "policy": json.dumps({"Statement": [{"Sid": str(which)}]}),
        "map": {"key": str(which)},
    }
    return by_kind[prop.kind]


def placed(path: str, inputs: dict[str, Any], new: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return inputs | {first: placed(rest, inputs[first], new) if rest else new}


def leaves(props: Mapping[str, Prop], path: str = "") -> Iterator[tuple[str, Prop]]:
    """Every property that can change separately; a list changes as a whole."""
    for name, prop in props.items():
        if prop.kind == "block":
            yield from leaves(prop.members, f"{path}{name}.")
        else:
            yield f"{path}{name}", prop


@every_row
def test_diff_reports_exactly_the_changed_property(row: Row) -> None:
    """Compare complete inputs with the same inputs after one change."""
    inputs = {name: value(prop, 1) for name, prop in row.inputs.items()}
    forced = REPLACED[row.token].split()
    for path, prop in leaves(row.inputs):
        found = operations.find_differences(row, inputs, placed(path, inputs, value(prop, 2)))
        replaces = path == "region" or any(path == each or path.startswith(f"{each}.") for each in forced)
        assert {each.path.split("[")[0] for each in found} <= {path, f"{path}.key"}, path
        assert {each.replaces for each in found} == {replaces}, path
    assert operations.find_differences(row, inputs, inputs) == []


def test_functions_match_the_sdk() -> None:
    """Each function accepts and returns what the SDK's function sends and expects."""
    for token, invoke in INVOKES.items():
        module, name = token.split(":")[1].split("/")
        package = "pulumi_aws" if module == "index" else f"pulumi_aws.{module}"
        source = sdk_outputs.sdk_module(package, sdk_outputs.snake(name))
        sent = set(re.findall(r"__args__\['(\w+)'\]", inspect.getsource(source)))
        result = next(
            kind for n, kind in inspect.getmembers(source, inspect.isclass) if re.fullmatch(r"Get\w+Result", n)
        )
        members = inspect.getmembers(result, lambda member: isinstance(member, property))
        answered = {getattr(member.fget, "_pulumi_name", n) for n, member in members}
        assert set(invoke.inputs) <= sent, token
        assert set(invoke.outputs) == answered, token
