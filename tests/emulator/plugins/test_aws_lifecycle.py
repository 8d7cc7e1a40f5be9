"""Every resource of this repository's programs on a moto server: create, read, change, drift, import and delete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import pytest
from pulumi.runtime import mocks

from sandbox.plugins.aws.props import LOCAL
from sandbox.plugins.aws.table import ROWS
from tests.emulator.plugins import sdk_outputs
from tests.emulator.plugins.emulated_provider import Plugin, Resource
from tests.sandbox.inventory import inventory
from tests.unit.bootstrap.account import CONFIG as BOOTSTRAP
from tests.unit.program import ACCOUNT, EVERYTHING, NAME, PROJECT, Aws, run

REGION = "eu-west-1"
KEY_ARN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/other"
WORKER_POLICY = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"


def document(action: str, **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": action, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


class EmulatedAws(Aws):
    """The emulated provider creates the resources of a program and answers its questions."""

    def __init__(self, plugin: Plugin) -> None:
        super().__init__(REGION)
        self.plugin, self.created = plugin, list[Resource]()

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ not in ROWS:
            return super().new_resource(args)
        it = self.plugin.create(args.typ, args.name, args.inputs)
        if it.type not in {each.type for each in self.created}:
            check_reading(self.plugin, it)
        self.created.append(it)
        return it.id, it.state

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        try:
            return self.plugin.invoke(args.token, **args.args), []
        except grpc.RpcError as error:
            return {}, [("", error.details())]


def other_inputs(last: Mapping[str, Resource]) -> Mapping[str, Mapping[str, Any]]:
    """For each type that can change, other values than those of the program. All tags change too."""
    network = last["aws:eks/cluster:Cluster"].inputs["vpcConfig"]
    table, bucket = last["aws:ec2/routeTable:RouteTable"].id, last["aws:s3/bucketPolicy:BucketPolicy"].id
    ssh = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 23}
    (group,) = network["securityGroupIds"]
    warning: dict[str, Any] = {
        "comparisonOperator": "GREATER_THAN",
        "notificationType": "ACTUAL",
        "thresholdType": "PERCENTAGE",
    }
    warning |= {"threshold": 90, "subscriberEmailAddresses": ["other@example.com"]}
    expiry = {"id": "tidy", "status": "Disabled", "noncurrentVersionExpiration": {"noncurrentDays": 9}}
    return {
        "aws:ec2/vpc:Vpc": {"enableDnsHostnames": False, "enableDnsSupport": False},
        "aws:ec2/internetGateway:InternetGateway": {},
        "aws:ec2/subnet:Subnet": {"mapPublicIpOnLaunch": True},
        "aws:ec2/routeTable:RouteTable": {},
        "aws:ec2/route:Route": {"natGatewayId": None, "gatewayId": last["aws:ec2/internetGateway:InternetGateway"].id},
        "aws:ec2/routeTableAssociation:RouteTableAssociation": {"routeTableId": table},
        "aws:ec2/eip:Eip": {},
        "aws:ec2/natGateway:NatGateway": {},
        "aws:ec2/vpcEndpoint:VpcEndpoint": {"routeTableIds": [table]},
        "aws:ec2/securityGroup:SecurityGroup": {},
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": {**ssh, "referencedSecurityGroupId": group},
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": {**ssh, "cidrIpv4": "10.0.0.0/16"},
        "aws:ec2/launchTemplate:LaunchTemplate": {
            "keyName": "mine",
            "vpcSecurityGroupIds": [group],
            "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "optional", "httpPutResponseHopLimit": 2},
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 9, "encrypted": "true"}}],
            "tagSpecifications": [{"resourceType": "volume", "tags": {"Name": "disk"}}],
        },
        "aws:ec2/keyPair:KeyPair": {},
        "aws:kms/key:Key": {
            "policy": document("kms:*", Resource="*", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"}),
            "description": "new",
            "enableKeyRotation": False,
        },
        "aws:kms/alias:Alias": {"targetKeyId": last["aws:efs/fileSystem:FileSystem"].inputs["kmsKeyId"]},
        "aws:s3/bucket:Bucket": {},
        "aws:s3/bucketVersioning:BucketVersioning": {"versioningConfiguration": {"status": "Suspended"}},
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": {
            "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]
        },
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": {"blockPublicPolicy": False},
        "aws:s3/bucketPolicy:BucketPolicy": {
            "policy": document("s3:GetObject", Resource=f"arn:aws:s3:::{bucket}/*", Principal="*")
        },
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": {"rules": [expiry]},
        "aws:eks/cluster:Cluster": {
            "version": "1.36",
            "vpcConfig": {**network, "endpointPrivateAccess": False, "publicAccessCidrs": ["10.0.0.0/16"]},
            "enabledClusterLogTypes": ["scheduler"],
            "upgradePolicy": {"supportType": "EXTENDED"},
        },
        "aws:eks/nodeGroup:NodeGroup": {
            "scalingConfig": {"desiredSize": 5, "minSize": 5, "maxSize": 5},
            "updateConfig": {"maxUnavailable": 2},
        },
        "aws:eks/addon:Addon": {
            "configurationValues": "{}",
            "serviceAccountRoleArn": f"arn:aws:iam::{ACCOUNT}:role/two",
        },
        "aws:eks/accessEntry:AccessEntry": {},
        "aws:iam/role:Role": {
            "assumeRolePolicy": document("sts:AssumeRole", Principal={"Service": "new.amazonaws.com"}),
            "description": "new",
            "maxSessionDuration": 7200,
            "permissionsBoundary": WORKER_POLICY,
        },
        "aws:iam/rolePolicy:RolePolicy": {"policy": document("s3:PutObject", Resource="*")},
        "aws:iam/policy:Policy": {"policy": document("s3:PutObject", Resource="*")},
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider": {"clientIdLists": ["other"]},
        "aws:cloudwatch/logGroup:LogGroup": {"retentionInDays": 0, "kmsKeyId": None},
        "aws:efs/fileSystem:FileSystem": {},
        "aws:efs/mountTarget:MountTarget": {"securityGroups": [group]},
        "aws:efs/accessPoint:AccessPoint": {},
        "aws:efs/fileSystemPolicy:FileSystemPolicy": {
            "policy": document("elasticfilesystem:ClientWrite", Resource="*", Principal={"AWS": "*"})
        },
        "aws:efs/backupPolicy:BackupPolicy": {"backupPolicy": {"status": "DISABLED"}},
        "aws:route53/zone:Zone": {"comment": "new"},
        "aws:route53/record:Record": {"ttl": 60, "records": ["other.amazonaws.com"]},
        "aws:sns/topic:Topic": {"kmsMasterKeyId": "alias/other"},
        "aws:budgets/budget:Budget": {"limitAmount": "500", "notifications": [warning]},
    }


def top(paths: Iterable[str]) -> set[str]:
    return {path.split(".")[0].split("[")[0] for path in paths}


def check_outputs(it: Resource) -> None:
    """Each output has the type that the SDK declares, and no output is missing."""
    declared, state = sdk_outputs.outputs(it.type), dict(it.state)
    assert state.pop("id") == it.id
    wrong = [each for name in state for each in sdk_outputs.mismatches(declared[name], state[name], name)]
    assert wrong == []
    # Only an address in use has this output.
    assert set(ROWS[it.type].outputs) - {"associationId"} <= state.keys()


def import_id(it: Resource) -> str:
    """The ID for an import; two types need another ID than their own."""
    if it.type == "aws:ec2/route:Route":
        return f"{it.state['routeTableId']}_{it.state['destinationCidrBlock']}"
    if it.type == "aws:ec2/routeTableAssociation:RouteTableAssociation":
        return f"{it.state['subnetId']}/{it.state['routeTableId']}"
    return it.id


def check_reading(plugin: Plugin, it: Resource) -> None:
    """A refresh and an import find what was asked. An import has no former state that it could repeat."""
    check_outputs(it)
    assert plugin.read(it) == it
    assert plugin.changes(it, given(it)) == {}
    imported = plugin.imported(it.type, it.name, import_id(it))
    assert imported
    assert imported.id == it.id
    # AWS does not store the provider's own options.
    local = {name for name, prop in ROWS[it.type].inputs.items() if LOCAL in prop.how}
    assert top(plugin.changes(imported, given(it))) <= local | set(ROWS[it.type].renewed)


def given(it: Resource) -> dict[str, Any]:
    """What the program gave: the provider has added the rest."""
    return {name: value for name, value in it.inputs.items() if name not in ("tagsAll", "__defaults")}


def check_change(plugin: Plugin, it: Resource, changes: Mapping[str, Any]) -> Resource:
    """The diff shows exactly the changed inputs, and a refresh of the former state finds them all."""
    tags = {"tags": {**it.inputs.get("tags", {}), "Name": "new"}} if "tags" in ROWS[it.type].inputs else {}
    inputs = {name: value for name, value in {**given(it), **changes, **tags}.items() if value is not None}
    planned = plugin.changes(it, inputs)
    assert top(planned) - {"tagsAll"} == {*changes, *tags, *ROWS[it.type].renewed}
    assert not any(each.endswith("REPLACE") for each in planned.values())
    after = plugin.update(it, inputs)
    refreshed = plugin.read(it)
    assert refreshed
    assert refreshed.state == after.state
    assert plugin.changes(after, inputs) == {}
    check_outputs(after)
    return after


def test_lifecycle(plugin: Plugin, aws: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("admin", "two"):
        aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    aws("iam").create_user(UserName="one")
    before = inventory(aws)
    cloud = EmulatedAws(plugin)
    people = [f"arn:aws:iam::{ACCOUNT}:{each}" for each in ("user/one", "role/two")]
    account = {**BOOTSTRAP, f"{NAME}:deployers": {"dev": people}}
    run(monkeypatch, {**EVERYTHING, "aws:region": REGION}, aws=cloud)
    run(monkeypatch, {**account, "aws:region": REGION}, aws=cloud, program=PROJECT / "bootstrap/__main__.py")

    last = {it.type: it for it in sorted(cloud.created, key=lambda it: it.name)}
    assert last.keys() == ROWS.keys()
    changes = other_inputs(last)
    assert changes.keys() == {row.token for row in ROWS.values() if row.update}
    for kind, others in changes.items():
        cloud.created[cloud.created.index(last[kind])] = check_change(plugin, last[kind], others)

    key = {"encryptionConfig": {"provider": {"keyArn": KEY_ARN}, "resources": ["secrets"]}}
    cluster = next(it for it in cloud.created if it.type == "aws:eks/cluster:Cluster")
    # The official provider ignores another key. This provider compares the result with the request, and fails.
    with pytest.raises(grpc.RpcError, match="encryptionConfig"):
        plugin.update(cluster, {**given(cluster), **key})
    for it in reversed(cloud.created):
        plugin.delete(it)
        if ROWS[it.type].vanishes:
            assert plugin.read(it) is None
        plugin.delete(it)  # a second deletion is not an error
    assert inventory(aws) == before
    for name in ("admin", "two"):
        aws("iam").delete_role(RoleName=name)
    aws("iam").delete_user(UserName="one")
