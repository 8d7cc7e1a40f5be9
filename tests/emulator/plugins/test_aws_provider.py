"""The emulated AWS provider and the engine: rejected inputs, names, tags, previews, partial failures, settings."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from botocore.exceptions import ClientError

from sandbox.plugins.wire import UNKNOWN
from tests.emulator.plugins.emulated_provider import Plugin, Refused, Resource, unfinished
from tests.sandbox import listening

Aws = Callable[[str], Any]
VPC = "aws:ec2/vpc:Vpc"
ROLE = "aws:iam/role:Role"
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})


@pytest.fixture
def create(plugin: Plugin) -> Iterator[Callable[..., Resource]]:
    """Creates resources, and deletes them after the test."""
    created: list[Resource] = []

    def create_one(kind: str, name: str, **inputs: Any) -> Resource:
        created.append(plugin.create(kind, name, inputs))
        return created[-1]

    yield create_one
    for each in reversed(created):
        plugin.delete(each)


@pytest.fixture
def other(aws_config: dict[str, Any]) -> Iterator[Callable[..., Plugin]]:
    """Starts a provider with other settings."""
    started: list[Plugin] = []

    def start(environment: Mapping[str, str] | None = None, **settings: Any) -> Plugin:
        started.append(Plugin(aws_config | settings, environment))
        return started[-1]

    yield start
    for each in started:
        each.close()


def error_of(call: Callable[[], Any]) -> str:
    """The one line that a user reads."""
    with pytest.raises((grpc.RpcError, Refused)) as caught:
        call()
    error = caught.value
    line = error.details() if isinstance(error, grpc.RpcError) else str(error)
    assert line
    assert "\n" not in line
    assert "Traceback" not in line
    return str(line)


# Refusals


@pytest.mark.parametrize(
    ("kind", "inputs", "message"),
    [
        (
            "aws:ec2/instance:Instance",
            {},
            "aws:ec2/instance:Instance is not a resource type of",
        ),
        (
            VPC,
            {"cidrBlock": "10.0.0.0/16", "ipv6CidrBlock": "::/56"},
            "ipv6CidrBlock: is not supported by the emulated AWS provider, because no program has sent it."
            " Add it to aws:ec2/vpc:Vpc in sandbox/plugins/aws/ec2.py",
        ),
        ("aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/24"}, "vpcId: is required"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": "perhaps"}, "enableDnsSupport: 'perhaps' is not a flag"),
        (ROLE, {"assumeRolePolicy": "{"}, "assumeRolePolicy: not JSON"),
        (
            "aws:eks/cluster:Cluster",
            {"roleArn": "r", "vpcConfig": {"subnetIds": [], "controlPlaneEgressMode": "x"}},
            "vpcConfig.controlPlaneEgressMode: is not supported",
        ),
        (
            "aws:ec2/route:Route",
            {"routeTableId": "r", "destinationCidrBlock": "0.0.0.0/0"},
            "give exactly one of gatewayId, natGatewayId",
        ),
        (
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"securityGroupId": "sg", "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0", "fromPort": 1, "toPort": 2},
            "must not be set when ipProtocol",
        ),
    ],
)
def test_unsupported_inputs_are_rejected(plugin: Plugin, kind: str, inputs: dict[str, Any], message: str) -> None:
    assert message in error_of(lambda: plugin.check(kind, "it", inputs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "mine"}, "aws:profile is not supported"),
        ({"accessKey": None}, "aws:accessKey is not set"),
        ({"endpoints": [{"ec2": "https://ec2.eu-west-1.amazonaws.com"}]}, "only connects to this machine"),
        ({"endpoints": [{"ec2": "http://127.0.0.1:1"}, {"ec2": "http://127.0.0.1:1"}]}, "'ec2' twice"),
        ({"endpoints": [{"sqs": "http://127.0.0.1:1"}]}, "'sqs', which is not one of"),
    ],
)
def test_invalid_settings_are_rejected(aws_config: dict[str, Any], change: dict[str, Any], message: str) -> None:
    assert message in error_of(lambda: Plugin(aws_config | change))


def test_errors_of_aws_are_one_line_with_the_code(plugin: Plugin) -> None:
    message = error_of(
        lambda: plugin.create("aws:ec2/subnet:Subnet", "it", {"vpcId": "vpc-0", "cidrBlock": "10.0.0.0/24"})
    )
    assert message.startswith("CreateSubnet: InvalidVpcID.NotFound: ")


# Names, tags, regions


@pytest.mark.parametrize(
    ("kind", "name", "inputs", "pattern"),
    [
        ("aws:s3/bucket:Bucket", "bucket", {}, "data-bucket-[0-9a-f]{7}"),
        (ROLE, "name", {"assumeRolePolicy": TRUST}, "Data-Bucket-[0-9a-f]{7}"),
        ("aws:kms/alias:Alias", "name", {"targetKeyId": "k"}, "alias/Data-Bucket-[0-9a-f]{7}"),
        ("aws:ec2/keyPair:KeyPair", "keyName", {"publicKey": "k"}, "Data-Bucket-[0-9a-f]{7}"),
    ],
)
def test_generated_names_have_the_logical_name_and_seven_digits(
    plugin: Plugin, kind: str, name: str, inputs: dict[str, Any], pattern: str
) -> None:
    assert re.fullmatch(pattern, plugin.check(kind, "Data-Bucket", inputs)[name])


def test_generated_names_are_kept_and_given_names_delete_first(plugin: Plugin) -> None:
    bucket = "aws:s3/bucket:Bucket"
    assert len(plugin.check(bucket, "x" * 99, {})["bucket"]) == 63
    first = plugin.check(bucket, "it", {})
    assert plugin.check(bucket, "it", {"tags": {"a": "b"}}, first)["bucket"] == first["bucket"]
    for named in ({}, {"name": "mine"}):
        it = plugin.check(ROLE, "it", {"assumeRolePolicy": TRUST, **named})
        answer = plugin.diff(Resource(ROLE, "it", "id", it, it), {"assumeRolePolicy": TRUST, "path": "/new/", **named})
        assert answer.deleteBeforeReplace is bool(named)


def test_default_tags_are_shown_separately_and_their_change_updates_the_resources(
    create: Callable[..., Resource], aws: Aws, other: Callable[..., Plugin]
) -> None:
    given = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "one"}}
    it = create(VPC, "it", **given)
    assert (it.state["tags"], it.state["tagsAll"]) == ({"Name": "one"}, {"Name": "one", "project": "paddle"})
    changing = other(defaultTags={"tags": {"stack": "dev"}})
    assert changing.changes(it, given) == {"tagsAll.project": "DELETE", "tagsAll.stack": "ADD"}
    changed = changing.update(it, given)
    assert (changed.state["tags"], changed.state["tagsAll"]) == ({"Name": "one"}, {"Name": "one", "stack": "dev"})
    real = aws("ec2").describe_vpcs(VpcIds=[it.id])["Vpcs"][0]["Tags"]
    assert {each["Key"]: each["Value"] for each in real} == changed.state["tagsAll"]


def test_ignored_changes_are_not_differences(create: Callable[..., Resource], plugin: Plugin) -> None:
    it = create(VPC, "it", cidrBlock="10.0.0.0/16")
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "x"}, "enableDnsHostnames": True}
    answer = plugin.diff(it, inputs, ("tags", "tagsAll"))
    assert list(answer.detailedDiff) == ["enableDnsHostnames"]


# Previews


def test_preview_shows_inputs_and_unknown_outputs(plugin: Plugin, aws: Aws) -> None:
    before = len(aws("ec2").describe_vpcs()["Vpcs"])
    planned = plugin.create(VPC, "it", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "x"}}, preview=True).state
    assert planned["cidrBlock"] == "10.0.0.0/16"
    assert planned["tagsAll"] == {"Name": "x", "project": "paddle"}
    assert planned["arn"] is UNKNOWN
    assert planned["enableDnsHostnames"] is UNKNOWN
    assert len(aws("ec2").describe_vpcs()["Vpcs"]) == before


def test_unknown_inputs_are_accepted_and_force_replacements(create: Callable[..., Resource], plugin: Plugin) -> None:
    table = create("aws:ec2/routeTable:RouteTable", "it", vpcId=create(VPC, "vpc", cidrBlock="10.0.0.0/16").id)
    assert plugin.create(table.type, "other", {"vpcId": UNKNOWN}, preview=True).state["vpcId"] is UNKNOWN
    assert plugin.changes(table, {"vpcId": UNKNOWN}) == {"vpcId": "UPDATE_REPLACE"}
    assert plugin.check(table.type, "it", {"vpcId": "v", "tags": UNKNOWN})["tagsAll"] is UNKNOWN


def test_preview_of_a_new_template_version_is_unknown(create: Callable[..., Resource], plugin: Plugin) -> None:
    it = create("aws:ec2/launchTemplate:LaunchTemplate", "it", keyName="one")
    changed = {"keyName": "two"}
    planned = plugin.update(it, changed, preview=True).state
    assert planned["latestVersion"] is UNKNOWN
    assert planned["arn"] == it.state["arn"]
    assert plugin.changes(it, changed) == dict.fromkeys(("keyName", "latestVersion", "defaultVersion"), "UPDATE")
    assert plugin.update(it, {"keyName": "one"}, preview=True).state["latestVersion"] == 1
    assert plugin.changes(it, {"keyName": "one"}) == {}


@pytest.mark.parametrize("name", ["securityGroupRule", "bucket"])
def test_a_type_of_the_plugin_framework_is_found_by_the_id_in_its_state(
    name: str, create: Callable[..., Resource], plugin: Plugin
) -> None:
    if name == "bucket":
        bucket = create("aws:s3/bucket:Bucket", "it")
        rules = [{"id": "all", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": 1}}]
        it = create(
            "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "it", bucket=bucket.id, rules=rules
        )
    else:
        group = create("aws:ec2/securityGroup:SecurityGroup", "it", vpcId=create(VPC, "it", cidrBlock="10.0.0.0/16").id)
        given = {"securityGroupId": group.id, "ipProtocol": "-1", "cidrIpv4": "10.0.0.0/8"}
        it = create("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "it", **given)
    inputs = {name: value for name, value in it.state.items() if name != "id"}
    assert plugin.read(Resource(it.type, it.name, it.id, it.inputs, inputs)) is None
    found = plugin.read(Resource(it.type, it.name, "another", it.inputs, it.state))
    assert found is not None
    assert found.state == it.state


def test_a_topic_is_created_only_if_there_is_none_of_its_name(plugin: Plugin, other: Callable[..., Plugin]) -> None:
    """Pulumi's build of the provider asks for the ARN that the topic would have."""
    topic = plugin.create("aws:sns/topic:Topic", "it", {"name": "existing"})
    message = error_of(lambda: other(skipRequestingAccountId="false").create(topic.type, "it", {"name": "existing"}))
    assert message == "SNS Topic (existing) already exists"
    plugin.delete(topic)


# Partial failures


def test_partly_created_resource_is_stored(create: Callable[..., Resource], plugin: Plugin) -> None:
    gateway = "aws:ec2/internetGateway:InternetGateway"
    # The gateway is created first and then attached, here to a VPC that does not exist.
    with pytest.raises(grpc.RpcError) as caught:
        plugin.create(gateway, "it", {"vpcId": "vpc-0"})
    left = unfinished(caught.value)
    assert left.id.startswith("igw-")
    assert "InvalidVpcID.NotFound" in left.reasons[0]
    state = plugin.read(Resource(gateway, "it", left.id, {}, {}))
    assert state
    vpc = create(VPC, "vpc", cidrBlock="10.0.0.0/16").id
    repaired = plugin.update(state, {"vpcId": vpc})
    assert repaired.state["vpcId"] == vpc
    plugin.delete(repaired)


def test_partly_updated_resource_is_stored(create: Callable[..., Resource], plugin: Plugin) -> None:
    it = create(ROLE, "it", assumeRolePolicy=TRUST, description="old")
    change = {"assumeRolePolicy": TRUST, "description": "new", "permissionsBoundary": "no ARN"}
    with pytest.raises(grpc.RpcError) as caught:
        plugin.update(it, change)
    left = unfinished(caught.value)
    assert left.id == it.id
    assert left.properties["description"] == "new"


def test_bucket_with_objects_is_deleted_only_with_force_destroy(plugin: Plugin, aws: Aws) -> None:
    kept = plugin.create("aws:s3/bucket:Bucket", "it", {})
    aws("s3").put_object(Bucket=kept.id, Key="a/b", Body=b"one")
    assert "BucketNotEmpty" in error_of(lambda: plugin.delete(kept))
    plugin.delete(plugin.update(kept, {"forceDestroy": True}))
    assert plugin.read(kept) is None


@pytest.mark.parametrize("cancelled", [False, True])
def test_deletion_waits_while_another_resource_uses_it_or_until_it_is_cancelled(
    create: Callable[..., Resource], other: Callable[..., Plugin], cancelled: bool
) -> None:
    own = other()
    vpc = create(VPC, "vpc", cidrBlock="10.0.0.0/16")
    subnet = create("aws:ec2/subnet:Subnet", "it", vpcId=vpc.id, cidrBlock="10.0.1.0/24")
    deletion = own.begin_delete(vpc)
    with pytest.raises(grpc.FutureTimeoutError):
        deletion.result(timeout=0.5)
    if cancelled:
        own.cancel()
        with pytest.raises(grpc.RpcError, match="cancelled while waiting"):
            deletion.result(timeout=60)
    else:
        own.delete(subnet)
        deletion.result(timeout=60)
        assert own.read(vpc) is None


def test_unreachable_aws_is_an_error_and_not_a_deleted_resource(other: Callable[..., Plugin]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        lost = other(endpoints=[dict.fromkeys(("ec2", "sts"), nobody)])
        message = error_of(lambda: lost.read(Resource(VPC, "it", "vpc-1", {}, {"cidrBlock": "10.0.0.0/16"})))
    assert "AWS cannot be reached" in message
    assert nobody in message


# The process


def test_the_users_aws_settings_are_not_read(other: Callable[..., Plugin], tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("no configuration at all")
    (tmp_path / ".aws/credentials").write_text("[default\n")
    hostile = {"HOME": str(tmp_path), "AWS_PROFILE": "missing", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    hostile |= {"AWS_REGION": "nowhere", "HTTP_PROXY": "http://127.0.0.1:1", "AWS_CA_BUNDLE": "/nowhere"}
    own = other(os.environ | hostile)
    assert own.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == "123456789012"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_provider_ends_when_the_engine_stops_it(other: Callable[..., Plugin], number: signal.Signals) -> None:
    own = other()
    own.process.send_signal(number)
    assert own.process.wait(3) == 0


def test_the_provider_listens_only_on_loopback(plugin: Plugin) -> None:
    everybody = (address.split(":") for address in listening.everybody())
    addresses = {host for host, port in everybody if int(port, 16) == plugin.port}
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 as IPv4 and in IPv6 form


# Functions


def asked(function: str) -> str:
    module, _, name = function.partition("/")
    return f"aws:{module}/{name}:{name}"


def zones(kind: str) -> dict[str, Any]:
    return {"filters": [{"name": "zone-type", "values": [kind]}]}


SERVICES = "/aws/service/global-infrastructure/regions/us-west-1/services"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/none"
USER = "arn:aws:iam::123456789012:user/deployer"
EVERY_ZONE = {"names": ["eu-west-1a", "eu-west-1b", "eu-west-1c"], "zoneIds": ["euw1-az3", "euw1-az1", "euw1-az2"]}
GPU = {"supportedArchitectures": ["x86_64"], "gpuses": [{"count": 1, "manufacturer": "NVIDIA"}]}
STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        ("index/getAvailabilityZones", zones("availability-zone"), EVERY_ZONE),
        ("index/getAvailabilityZones", zones("local-zone"), {"names": []}),
        ("ec2/getInstanceType", {"instanceType": "g5.xlarge"}, {**GPU, "defaultVcpus": 4, "memorySize": 16384}),
        ("ec2/getInstanceType", {"instanceType": "m6g.large"}, {"supportedArchitectures": ["arm64"], "gpuses": []}),
        ("ssm/getParameter", {"name": f"{SERVICES}/route53"}, {"insecureValue": "route53", "type": "String"}),
        ("servicequotas/getServiceQuota", {"serviceCode": "ec2", "quotaCode": "L-1216C47A"}, {"quotaName": STANDARD}),
        ("iam/getSessionContext", {"arn": USER}, {"issuerArn": USER}),
    ],
)
def test_functions_answer_like_aws(
    plugin: Plugin, function: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = plugin.invoke(asked(function), **given)
    assert {name: found[name] for name in expected} == expected
    assert found.get("value", 1001) > 1000


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        ("ec2/getInstanceType", {"instanceType": "m0.none"}, "InvalidInstanceType"),
        ("ec2/getSubnet", {"cidrBlock": "10.99.0.0/24"}, "no matching EC2 Subnet found"),
        ("servicequotas/getServiceQuota", {"serviceCode": "ec2", "quotaCode": "L-0"}, "NoSuchResource"),
        ("ssm/getParameter", {"name": "/none"}, "reading SSM Parameter (/none): couldn't find resource"),
        ("iam/getRole", {"name": "nobody"}, "reading IAM Role (nobody): couldn't find resource"),
        ("iam/getUser", {"userName": "nobody"}, "reading IAM User (nobody): couldn't find resource"),
        ("kms/getKey", {"keyId": KEY}, f"reading KMS Key ({KEY}): couldn't find resource"),
        ("ec2/getAmi", {}, "aws:ec2/getAmi:getAmi is not a function"),
        ("index/getPartition", {"other": 1}, "other: is not supported"),
        ("index/getPartition", {"other": 1}, "Add it to INVOKES in sandbox/plugins/aws/invokes.py"),
    ],
)
def test_functions_report_what_is_missing_and_what_is_not_supported(
    plugin: Plugin, function: str, given: dict[str, Any], message: str
) -> None:
    assert message in error_of(lambda: plugin.invoke(asked(function), **given))


@pytest.mark.parametrize(
    ("region", "kind", "zones"),
    [
        ("us-west-2", "availability-zone-id", {"usw2-az1", "usw2-az2", "usw2-az3"}),
        # A region without data: every zone offers every type.
        ("cn-north-1", "availability-zone", {"cn-north-1a", "cn-north-1b"}),
    ],
)
def test_offerings_are_pairs_of_zone_and_instance_type(
    other: Callable[..., Plugin], region: str, kind: str, zones: set[str]
) -> None:
    types = ["m6i.large", "m4.large"]
    token = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
    filters = [{"name": "instance-type", "values": types}]
    found = other(region=region).invoke(token, filters=filters, locationType=kind)
    pairs = set(zip(found["locations"], found["instanceTypes"], strict=True))
    everywhere = {(zone, each) for zone in zones for each in types}
    assert pairs == everywhere | ({("usw2-az4", "m6i.large")} if region == "us-west-2" else set())


def test_a_subnet_is_found_by_its_range_and_its_tags(plugin: Plugin, create: Callable[..., Resource]) -> None:
    token, here = "aws:ec2/getSubnet:getSubnet", {"cidrBlock": "10.18.0.0/24"}
    made = [
        create("aws:ec2/subnet:Subnet", "it", vpcId=create(VPC, "it", cidrBlock="10.18.0.0/16").id, tags=tags, **here)
        for tags in ({}, {"stack": "dev"})
    ]
    found = plugin.invoke(token, **here, tags={"stack": "dev"})
    assert (found["id"], found["availabilityZone"]) == (made[1].id, made[1].state["availabilityZone"])
    assert "multiple EC2 Subnets" in error_of(lambda: plugin.invoke(token, **here))
    assert "no matching EC2 Subnet" in error_of(lambda: plugin.invoke(token, **here, tags={"stack": "prod"}))


def test_the_session_of_a_role_has_the_arn_of_the_role(plugin: Plugin, aws: Aws) -> None:
    aws("iam").create_role(RoleName="ci", Path="/team/", AssumeRolePolicyDocument="{}")
    found = plugin.invoke(asked("iam/getSessionContext"), arn="arn:aws:sts::123456789012:assumed-role/ci/run-1")
    assert found["issuerArn"] == "arn:aws:iam::123456789012:role/team/ci"


def test_a_key_has_its_state_and_type(plugin: Plugin, aws: Aws) -> None:
    key = aws("kms").create_key(KeySpec="RSA_2048", KeyUsage="SIGN_VERIFY")["KeyMetadata"]["Arn"]
    aws("kms").disable_key(KeyId=key.rpartition("/")[2])
    found = plugin.invoke(asked("kms/getKey"), keyId=key)
    expected = {"arn": key, "keyManager": "CUSTOMER", "keyState": "Disabled"}
    expected |= {"keySpec": "RSA_2048", "keyUsage": "SIGN_VERIFY"}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("creator_is_admin", [True, False])
def test_the_access_entry_of_the_creator_has_no_tags(
    plugin: Plugin, aws: Aws, create: Callable[..., Resource], creator_is_admin: bool
) -> None:
    vpc, role = create(VPC, "it", cidrBlock="10.7.0.0/16").id, create(ROLE, "it", assumeRolePolicy=TRUST)
    subnets = [
        create("aws:ec2/subnet:Subnet", "it", vpcId=vpc, cidrBlock=f"10.7.{i}.0/24", availabilityZone=zone).id
        for i, zone in enumerate(("eu-west-1a", "eu-west-1b"))
    ]
    access = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": creator_is_admin}
    network = {"subnetIds": subnets}
    cluster = create("aws:eks/cluster:Cluster", "it", roleArn=role.state["arn"], vpcConfig=network, accessConfig=access)
    token, eks = "aws:eks/getAccessEntry:getAccessEntry", aws("eks")
    given = {"clusterName": cluster.id, "principalArn": "arn:aws:iam::123456789012:user/deployer"}
    if creator_is_admin:
        assert plugin.invoke(token, **given)["tags"] == {}
        with pytest.raises(ClientError, match="already in use"):
            eks.create_access_entry(**given)
    else:
        assert "couldn't find resource" in error_of(lambda: plugin.invoke(token, **given))
        eks.create_access_entry(**given, tags={"project": "paddle-on-aws"})
        assert plugin.invoke(token, **given)["tags"] == {"project": "paddle-on-aws"}
