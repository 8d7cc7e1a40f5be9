"""How the AWS stand-in deals with the engine: refusals, names, tags, previews, failures half-way, settings."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandbox.plugins.aws.props import UNKNOWN
from tests.sandbox import listening
from tests.sandbox.plugins.emulated_provider import Plugin, Refused, Resource, unfinished

Aws = Callable[[str], Any]
VPC = "aws:ec2/vpc:Vpc"
ROLE = "aws:iam/role:Role"
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})


@pytest.fixture
def made(plugin: Plugin) -> Iterator[Callable[..., Resource]]:
    """Makes resources, and unmakes them after the test."""
    kept: list[Resource] = []

    def make(kind: str, name: str, **inputs: Any) -> Resource:
        kept.append(plugin.create(kind, name, inputs))
        return kept[-1]

    yield make
    for each in reversed(kept):
        plugin.delete(each)


def refusal(call: Callable[[], Any]) -> str:
    """The one line that a person would read."""
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
    ("kind", "inputs", "told"),
    [
        ("aws:ec2/instance:Instance", {}, "aws:ec2/instance:Instance is not a resource type that"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "ipv6CidrBlock": "::/56"}, "ipv6CidrBlock: not known"),
        ("aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/24"}, "vpcId: required, and not given"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": "perhaps"}, "enableDnsSupport: 'perhaps' is not a flag"),
        (ROLE, {"assumeRolePolicy": "{"}, "assumeRolePolicy: not JSON"),
        (
            "aws:eks/cluster:Cluster",
            {"roleArn": "r", "vpcConfig": {"subnetIds": [], "controlPlaneEgressMode": "x"}},
            "vpcConfig.controlPlaneEgressMode: not known",
        ),
        (
            "aws:ec2/route:Route",
            {"routeTableId": "r", "destinationCidrBlock": "0.0.0.0/0"},
            "give exactly one of gatewayId, natGatewayId",
        ),
        (
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"securityGroupId": "sg", "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0", "fromPort": 1, "toPort": 2},
            "leave ports out",
        ),
        (
            "aws:ec2/subnet:Subnet",
            {"vpcId": "v", "availabilityZone": "a", "availabilityZoneId": "b"},
            "availabilityZoneId: conflicts with availabilityZone",
        ),
    ],
)
def test_what_is_not_known_is_refused(plugin: Plugin, kind: str, inputs: dict[str, Any], told: str) -> None:
    assert told in refusal(lambda: plugin.check(kind, "it", inputs))


def test_an_unknown_function_is_refused(plugin: Plugin) -> None:
    assert "aws:ec2/getAmi:getAmi is not a function" in refusal(lambda: plugin.invoke("aws:ec2/getAmi:getAmi"))


def test_an_unknown_argument_of_a_function_is_refused(plugin: Plugin) -> None:
    told = refusal(lambda: plugin.invoke("aws:index/getPartition:getPartition", other=1))
    assert "other: not known" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"profile": "mine"}, "aws:profile is not a setting"),
        ({"accessKey": None}, "aws:accessKey is not set"),
        ({"endpoints": [{"ec2": "https://ec2.eu-west-1.amazonaws.com"}]}, "this machine only"),
        ({"endpoints": [{"ec2": "http://127.0.0.1:1"}, {"ec2": "http://127.0.0.1:1"}]}, "'ec2' twice"),
        ({"endpoints": [{"sqs": "http://127.0.0.1:1"}]}, "'sqs', which the stand-in does not use"),
    ],
)
def test_settings_are_refused(aws_config: dict[str, Any], change: dict[str, Any], told: str) -> None:
    assert told in refusal(lambda: Plugin(aws_config | change))


def test_an_error_of_aws_is_one_line_with_its_code(plugin: Plugin) -> None:
    told = refusal(lambda: plugin.create("aws:ec2/subnet:Subnet", "it", {"vpcId": "vpc-0", "cidrBlock": "10.0.0.0/24"}))
    assert told.startswith("CreateSubnet: InvalidVpcID.NotFound: ")


# Names, tags, regions


def test_names_are_made_of_the_logical_name_and_seven_digits(plugin: Plugin) -> None:
    names = {
        kind: plugin.check(kind, "Data-Bucket", inputs)[name]
        for kind, name, inputs in (
            ("aws:s3/bucket:Bucket", "bucket", {}),
            (ROLE, "name", {"assumeRolePolicy": TRUST}),
            ("aws:kms/alias:Alias", "name", {"targetKeyId": "k"}),
            ("aws:ec2/keyPair:KeyPair", "keyName", {"publicKey": "k"}),
        )
    }
    assert re.fullmatch("data-bucket-[0-9a-f]{7}", names["aws:s3/bucket:Bucket"])
    assert re.fullmatch("Data-Bucket-[0-9a-f]{7}", names[ROLE])
    assert re.fullmatch("alias/Data-Bucket-[0-9a-f]{7}", names["aws:kms/alias:Alias"])
    assert re.fullmatch("Data-Bucket-[0-9a-f]{7}", names["aws:ec2/keyPair:KeyPair"])
    assert len(plugin.check("aws:s3/bucket:Bucket", "x" * 99, {})["bucket"]) == 63


def test_a_made_name_is_kept_and_a_given_one_is_not_doubled(plugin: Plugin) -> None:
    bucket = "aws:s3/bucket:Bucket"
    first = plugin.check(bucket, "it", {})
    assert plugin.check(bucket, "it", {"tags": {"a": "b"}}, first)["bucket"] == first["bucket"]
    it = Resource(bucket, "it", "id", first, {"bucket": first["bucket"]})
    assert plugin.diff(it, {"objectLockEnabled": True}).deleteBeforeReplace is False
    given = Resource(bucket, "it", "id", plugin.check(bucket, "it", {"bucket": "mine"}), {"bucket": "mine"})
    assert plugin.diff(given, {"bucket": "mine", "objectLockEnabled": True}).deleteBeforeReplace is True


def test_default_tags_are_put_on_and_told_apart(made: Callable[..., Resource], aws: Aws, plugin: Plugin) -> None:
    it = made(VPC, "it", cidrBlock="10.0.0.0/16", tags={"Name": "one"})
    assert it.state["tags"] == {"Name": "one"}
    assert it.state["tagsAll"] == {"Name": "one", "project": "paddle"}
    real = aws("ec2").describe_vpcs(VpcIds=[it.id])["Vpcs"][0]["Tags"]
    assert {each["Key"]: each["Value"] for each in real} == it.state["tagsAll"]


def test_changed_default_tags_change_what_bears_them(made: Callable[..., Resource], aws_config: dict[str, Any]) -> None:
    it = made(VPC, "it", cidrBlock="10.0.0.0/16")
    other = Plugin(aws_config | {"defaultTags": {"tags": {"stack": "dev"}}})
    try:
        assert other.changes(it, {"cidrBlock": "10.0.0.0/16"}) == {"tagsAll.project": "DELETE", "tagsAll.stack": "ADD"}
        changed = other.update(it, {"cidrBlock": "10.0.0.0/16"})
        assert changed.state["tagsAll"] == {"stack": "dev"}
        assert changed.state["tags"] == {}
    finally:
        other.close()


def test_a_resource_can_stand_in_another_region(made: Callable[..., Resource], aws: Callable[..., Any]) -> None:
    it = made("aws:ec2/eip:Eip", "it", domain="vpc", region="us-west-2")
    assert it.state["region"] == "us-west-2"
    held = aws("ec2", "us-west-2").describe_addresses()["Addresses"]
    assert it.id in [each["AllocationId"] for each in held]


def test_ignored_changes_are_no_difference(made: Callable[..., Resource], plugin: Plugin) -> None:
    it = made(VPC, "it", cidrBlock="10.0.0.0/16")
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "x"}, "enableDnsHostnames": True}
    answer = plugin.diff(it, inputs, ("tags", "tagsAll"))
    assert list(answer.detailedDiff) == ["enableDnsHostnames"]


# Previews


def test_a_preview_knows_what_is_asked_and_nothing_else(plugin: Plugin, aws: Aws) -> None:
    before = len(aws("ec2").describe_vpcs()["Vpcs"])
    planned = plugin.preview(VPC, "it", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "x"}})
    assert planned["cidrBlock"] == "10.0.0.0/16"
    assert planned["tagsAll"] == {"Name": "x", "project": "paddle"}
    assert planned["arn"] is UNKNOWN
    assert planned["enableDnsHostnames"] is UNKNOWN
    assert len(aws("ec2").describe_vpcs()["Vpcs"]) == before


def test_what_is_not_known_yet_passes_and_replaces(made: Callable[..., Resource], plugin: Plugin) -> None:
    table = made("aws:ec2/routeTable:RouteTable", "it", vpcId=made(VPC, "vpc", cidrBlock="10.0.0.0/16").id)
    assert plugin.preview(table.type, "other", {"vpcId": UNKNOWN})["vpcId"] is UNKNOWN
    assert plugin.changes(table, {"vpcId": UNKNOWN}) == {"vpcId": "UPDATE_REPLACE"}
    assert plugin.check(table.type, "it", {"vpcId": "v", "tags": UNKNOWN})["tagsAll"] is UNKNOWN


def test_a_new_version_of_a_template_is_not_known_in_a_preview(made: Callable[..., Resource], plugin: Plugin) -> None:
    it = made("aws:ec2/launchTemplate:LaunchTemplate", "it", instanceType="m6i.large")
    planned = plugin.preview_update(it, {"instanceType": "m6i.xlarge"})
    assert planned["latestVersion"] is UNKNOWN
    assert planned["arn"] == it.state["arn"]
    assert plugin.preview_update(it, {"instanceType": "m6i.large"})["latestVersion"] == 1


# Failures half-way


def test_what_exists_is_remembered_when_its_creation_fails_half_way(plugin: Plugin, aws: Aws) -> None:
    vpc = plugin.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    # The gateway is made first and attached then, to a VPC that is not there.
    with pytest.raises(grpc.RpcError) as caught:
        plugin.create("aws:ec2/internetGateway:InternetGateway", "it", {"vpcId": "vpc-0"})
    left = unfinished(caught.value)
    assert left.id.startswith("igw-")
    assert "InvalidVpcID.NotFound" in left.reasons[0]
    state = plugin.read(Resource("aws:ec2/internetGateway:InternetGateway", "it", left.id, {}, {}))
    assert state
    mended = plugin.update(state, {"vpcId": vpc.id})
    assert mended.state["vpcId"] == vpc.id
    plugin.delete(mended)
    plugin.delete(vpc)


def test_what_an_update_did_is_remembered_when_it_fails_half_way(made: Callable[..., Resource], plugin: Plugin) -> None:
    it = made(ROLE, "it", assumeRolePolicy=TRUST, description="old")
    change = {"assumeRolePolicy": TRUST, "description": "new", "permissionsBoundary": "no ARN"}
    with pytest.raises(grpc.RpcError) as caught:
        plugin.update(it, change)
    left = unfinished(caught.value)
    assert left.id == it.id
    assert left.properties["description"] == "new"


def test_a_full_bucket_goes_with_all_its_versions_only_when_told(plugin: Plugin, aws: Aws) -> None:
    kept = plugin.create("aws:s3/bucket:Bucket", "it", {})
    versioning = {"bucket": kept.id, "versioningConfiguration": {"status": "Enabled"}}
    plugin.create("aws:s3/bucketVersioning:BucketVersioning", "it", versioning)
    for body in (b"one", b"two"):
        aws("s3").put_object(Bucket=kept.id, Key="a/b", Body=body)
    aws("s3").delete_object(Bucket=kept.id, Key="a/b")
    assert "BucketNotEmpty" in refusal(lambda: plugin.delete(kept))
    plugin.delete(plugin.update(kept, {"forceDestroy": True}))
    assert plugin.read(kept) is None


def test_a_deletion_waits_for_what_still_holds_on(plugin: Plugin, aws: Aws) -> None:
    vpc = plugin.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    subnet = plugin.create("aws:ec2/subnet:Subnet", "it", {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24"})
    gone = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    deletion = plugin.begin_delete(vpc)
    gone.wait()
    assert not deletion.done()
    aws("ec2").delete_subnet(SubnetId=subnet.id)
    deletion.result(timeout=15)
    assert plugin.read(vpc) is None


def test_cancel_ends_a_wait(plugin: Plugin, aws_config: dict[str, Any]) -> None:
    own = Plugin(aws_config)
    vpc = own.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    subnet = own.create("aws:ec2/subnet:Subnet", "it", {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24"})
    deletion = own.begin_delete(vpc)
    time.sleep(0.3)
    began = time.monotonic()
    own.cancel()
    with pytest.raises(grpc.RpcError, match="stopped while waiting"):
        deletion.result(timeout=10)
    assert time.monotonic() - began < 5
    own.close()
    plugin.delete(subnet)
    plugin.delete(vpc)


def test_an_aws_that_is_down_is_an_error_and_nothing_is_taken_for_gone(aws_config: dict[str, Any]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    lost = Plugin(aws_config | {"endpoints": [dict.fromkeys(("ec2", "sts"), nobody)]})
    try:
        told = refusal(lambda: lost.read(Resource(VPC, "it", "vpc-1", {}, {"cidrBlock": "10.0.0.0/16"})))
        assert "AWS cannot be reached" in told
        assert nobody in told
    finally:
        lost.close()


# The process


def test_the_persons_own_aws_is_neither_read_nor_touched(aws_config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("no configuration at all")
    (tmp_path / ".aws/credentials").write_text("[default\n")
    poison = {"HOME": str(tmp_path), "AWS_PROFILE": "missing", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    poison |= {"AWS_REGION": "nowhere", "HTTP_PROXY": "http://127.0.0.1:1", "AWS_CA_BUNDLE": "/nowhere"}
    own = Plugin(aws_config, environment=os.environ | poison)
    try:
        assert own.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == "123456789012"
    finally:
        own.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_when_the_engine_says_so(aws_config: dict[str, Any], number: signal.Signals) -> None:
    own = Plugin(aws_config)
    own.process.send_signal(number)
    assert own.process.wait(3) == 0


def test_it_listens_on_loopback_only(plugin: Plugin) -> None:
    everybody = (address.split(":") for address in listening.everybody())
    addresses = {host for host, port in everybody if int(port, 16) == plugin.port}
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, as IPv4 or within IPv6


# Functions


def test_functions_answer_what_aws_says(plugin: Plugin) -> None:
    caller = plugin.invoke("aws:index/getCallerIdentity:getCallerIdentity")
    assert caller["accountId"] == "123456789012"
    assert caller["arn"].startswith("arn:aws:sts::123456789012:")
    partition = plugin.invoke("aws:index/getPartition:getPartition")
    assert (partition["partition"], partition["dnsSuffix"]) == ("aws", "amazonaws.com")
    assert partition["reverseDnsPrefix"] == "com.amazonaws"


def test_zones_are_filtered_and_sorted(plugin: Plugin) -> None:
    token = "aws:index/getAvailabilityZones:getAvailabilityZones"
    every = plugin.invoke(token, filters=[{"name": "zone-type", "values": ["availability-zone"]}])
    assert every["names"] == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    assert every["zoneIds"] == ["euw1-az3", "euw1-az1", "euw1-az2"]
    assert plugin.invoke(token, filters=[{"name": "zone-type", "values": ["local-zone"]}])["names"] == []
    assert plugin.invoke(token, excludeNames=["eu-west-1b"], region="eu-west-1")["names"] == [
        "eu-west-1a",
        "eu-west-1c",
    ]


def test_instance_types_tell_architecture_and_gpus(plugin: Plugin) -> None:
    token = "aws:ec2/getInstanceType:getInstanceType"
    with_gpu = plugin.invoke(token, instanceType="g5.xlarge")
    assert with_gpu["supportedArchitectures"] == ["x86_64"]
    assert with_gpu["gpuses"] == [{"count": 1, "manufacturer": "NVIDIA", "memorySize": 22888, "name": "A10G"}]
    assert (with_gpu["defaultVcpus"], with_gpu["memorySize"], with_gpu["totalInstanceStorage"]) == (4, 16384, 250)
    arm = plugin.invoke(token, instanceType="m6g.large")
    assert (arm["supportedArchitectures"], arm["gpuses"], arm["totalGpuMemory"]) == (["arm64"], [], 0)
    assert "InvalidInstanceType" in refusal(lambda: plugin.invoke(token, instanceType="m0.none"))


def test_a_regions_services_are_all_pages(plugin: Plugin) -> None:
    path = "/aws/service/global-infrastructure/regions/us-west-1/services"
    found = plugin.invoke("aws:ssm/getParametersByPath:getParametersByPath", path=path)
    assert len(found["names"]) == len(set(found["names"])) > 100
    assert {f"{path}/{name}" for name in ("ec2", "efs", "eks", "kms", "s3", "route53")} <= set(found["names"])
    assert found["values"] == [name.rpartition("/")[2] for name in found["names"]]
