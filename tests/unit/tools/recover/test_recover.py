"""Recover finds every type of AWS resource, and adopts exactly what the state does not contain."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError

from tests.unit.tools.recover.states import TAGS, deployment, operation, types_of_the_program
from tools.recover.__main__ import UNKNOWN, compare, lines, revoke_default_rules, search
from tools.recover.find import NAMED, SEARCHED, find
from tools.recover.state import adopt, object_id

VPC = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Network$aws:ec2/vpc:Vpc::vpc"
KEY = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Encryption$aws:kms/key:Key::key"


class Vpcs:
    """An EC2 client with two VPCs. It records the filters of each call."""

    def __init__(self) -> None:
        self.filters: list[Any] = []

    def can_paginate(self, operation: str) -> bool:
        return False

    def describe_vpcs(self, **arguments: Any) -> dict[str, Any]:
        self.filters = arguments["Filters"]
        return {"Vpcs": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2"}]}


def test_every_type_of_the_program_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert types_of_the_program(monkeypatch) - NAMED.keys() - SEARCHED.keys() == set()


def test_an_unknown_type_is_not_guessed() -> None:
    assert find(lambda service: None, "aws:sqs/queue:Queue", {}, {}) is None


def test_only_resources_with_the_tags_of_the_stack_are_found() -> None:
    client = Vpcs()
    found = search(lambda service: client, deployment(operation(VPC, "aws:ec2/vpc:Vpc", tags={"Name": "v"})))
    assert found == {VPC: ["vpc-1", "vpc-2"]}
    assert {each["Name"]: each["Values"] for each in client.filters} == {
        "tag:Name": ["v"],
        "tag:project": ["paddle-on-aws"],
        "tag:stack": ["dev"],
    }


def test_a_resource_in_the_state_is_not_found_again() -> None:
    exported = deployment(operation(VPC, "aws:ec2/vpc:Vpc"))
    exported["resources"].append({"urn": VPC, "type": "aws:ec2/vpc:Vpc", "id": "vpc-1"})
    assert search(lambda service: Vpcs(), exported) == {VPC: ["vpc-2"]}


def test_the_first_resource_is_adopted_and_the_others_are_deleted() -> None:
    adopted = adopt(deployment(operation(VPC, "aws:ec2/vpc:Vpc", cidrBlock="10.0.0.0/16")), {VPC: ["vpc-1", "vpc-2"]})
    assert adopted["pending_operations"] == []
    *_, first, second = adopted["resources"]
    assert (first["id"], first.get("delete")) == ("vpc-1", None)
    assert first["outputs"] == {"cidrBlock": "10.0.0.0/16", "id": "vpc-1"}
    assert (second["id"], second["delete"]) == ("vpc-2", True)


def test_an_unfinished_replacement_is_deleted() -> None:
    exported = deployment(operation(VPC, "aws:ec2/vpc:Vpc"))
    exported["resources"].append({"urn": VPC, "type": "aws:ec2/vpc:Vpc", "id": "vpc-0"})
    assert adopt(exported, {VPC: ["vpc-1"]})["resources"][-1]["delete"] is True
    assert lines(exported, {VPC: ["vpc-1"]}) == ["  aws:ec2/vpc:Vpc vpc: vpc-1: a second one, `pulumi up` deletes it"]


@pytest.mark.parametrize("kind", ["updating", "deleting", "reading"])
def test_other_operations_are_left_to_the_refresh(kind: str) -> None:
    exported = deployment(operation(KEY, "aws:kms/key:Key", kind))
    assert adopt(exported, {})["resources"] == exported["resources"]
    assert lines(exported, {}) == []


JOB = "urn:pulumi:dev::paddle-on-aws::paddle:workloads:TrainingJob$kubernetes:batch/v1:Job::paddle-cluster-job"
JOB_TYPE = "kubernetes:batch/v1:Job"
JOB_INPUTS = {"metadata": {"name": "paddle-cluster-job", "namespace": "training"}}


def test_a_job_that_may_be_running_is_adopted_and_not_created_again() -> None:
    exported = deployment(operation(JOB, JOB_TYPE, metadata=JOB_INPUTS["metadata"]))
    found = search(lambda service: None, exported)
    assert found == {JOB: ["training/paddle-cluster-job"]}
    assert lines(exported, found) == [
        f"  {JOB_TYPE} paddle-cluster-job: training/paddle-cluster-job: add to the state if it exists"
    ]
    adopted = adopt(exported, found)["resources"][-1]
    assert (adopted["id"], adopted["outputs"], adopted.get("delete")) == (found[JOB][0], JOB_INPUTS, None)


def test_a_job_that_replaces_a_deleted_one_takes_its_place() -> None:
    exported = deployment(operation(JOB, JOB_TYPE, metadata=JOB_INPUTS["metadata"]))
    old = {"urn": JOB, "type": JOB_TYPE, "id": "training/paddle-cluster-job", "pendingReplacement": True}
    later = {"urn": KEY, "type": "aws:kms/key:Key", "id": "key-1", "dependencies": [JOB]}
    exported["resources"] += [old, later]
    *_, adopted, last = adopt(exported, search(lambda service: None, exported))["resources"]
    assert (adopted["urn"], adopted.get("pendingReplacement"), adopted.get("delete")) == (JOB, None, None)
    assert last == later


def test_an_object_without_a_namespace_is_known_by_its_name() -> None:
    assert object_id({"metadata": {"name": "efsvol"}}) == "efsvol"


@pytest.mark.parametrize(
    ("code", "found"), [("ResourceNotFoundException", []), ("NoSuchHostedZone", []), ("AccessDeniedException", None)]
)
def test_a_resource_that_was_not_created_is_not_found(code: str, found: list[str] | None) -> None:
    eks = mock.Mock()
    eks.return_value.describe_nodegroup.side_effect = ClientError({"Error": {"Code": code}}, "DescribeNodegroup")
    group = ("aws:eks/nodeGroup:NodeGroup", {"clusterName": "paddle", "nodeGroupName": "workers-1"}, TAGS)
    if found is None:
        with pytest.raises(ClientError):
            find(eks, *group)
    else:
        assert find(eks, *group) == found


@pytest.mark.parametrize(
    ("tags", "adopted"), [(TAGS, ["paddle"]), ({**TAGS, "stack": "prod"}, []), ({"project": "paddle-on-aws"}, [])]
)
def test_a_cluster_with_the_same_name_belongs_to_the_stack_only_with_its_tags(
    tags: dict[str, str], adopted: list[str]
) -> None:
    eks = mock.Mock()
    eks.return_value.describe_cluster.return_value = {"cluster": {"name": "paddle", "tags": tags}}
    assert find(eks, "aws:eks/cluster:Cluster", {"name": "paddle"}, TAGS) == adopted


OURS = {"IsEgress": True, "IpProtocol": "-1", "Tags": [{"Key": "stack", "Value": "dev"}]}
DEFAULT = {"IsEgress": True, "IpProtocol": "-1", "Tags": []}


@pytest.mark.parametrize(("rules", "revoked"), [([OURS, DEFAULT], True), ([OURS], False), ([], False)])
def test_the_default_rule_of_an_unfinished_security_group_is_revoked(rules: list[Any], revoked: bool) -> None:
    ec2 = mock.Mock()
    ec2.can_paginate.return_value = False
    ec2.describe_security_group_rules.return_value = {"SecurityGroupRules": rules}
    pending = deployment(operation("group", "aws:ec2/securityGroup:SecurityGroup", name="g", vpcId="vpc-1"))
    assert "sg-1: add to the state if it exists, without the rule" in lines(pending, {"group": ["sg-1"]})[0]
    revoke_default_rules(lambda _: ec2, pending, {"group": ["sg-1"], "vpc": ["vpc-1"]})
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    calls = [mock.call(GroupId="sg-1", IpPermissions=everything)] if revoked else []
    assert ec2.revoke_security_group_egress.mock_calls == calls


def compared(monkeypatch: pytest.MonkeyPatch, *creates: dict[str, Any], failed: str = "") -> None:
    """Compare AWS, which has two VPCs and a mount target, with a preview."""

    def preview(stack: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert arguments == ("preview", "--json")
        steps = [{"op": "create", "newState": each["resource"]} for each in creates]
        output = json.dumps({"steps": steps, "diagnostics": [{"severity": "error", "message": "error: no cluster\n"}]})
        return subprocess.CompletedProcess([], bool(failed), output if failed != "no output" else "", failed)

    aws = mock.Mock()
    aws.can_paginate.return_value = False
    aws.describe_vpcs.return_value = {"Vpcs": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2"}]}
    aws.describe_mount_targets.return_value = {"MountTargets": [{"MountTargetId": "fsmt-1", "SubnetId": "subnet-1"}]}
    monkeypatch.setattr("tools.recover.__main__.run", preview)
    compare(lambda _: aws, "dev", {"deployment": deployment()}, False, "")


MOUNT, MOUNT_TYPE = (
    "urn:pulumi:dev::paddle-on-aws::x$aws:efs/mountTarget:MountTarget::mount",
    "aws:efs/mountTarget:MountTarget",
)


def test_what_up_would_create_a_second_time_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mount = operation(MOUNT, MOUNT_TYPE, fileSystemId="fs-1", subnetId="subnet-1")
    role = operation("role", "aws:iam/role:Role", name="role-1a2b3c4")
    job = operation(JOB, JOB_TYPE, metadata=JOB_INPUTS["metadata"])
    compared(monkeypatch, mount, role, job)
    assert capsys.readouterr().out == (
        "`pulumi up` would create these resources of stack dev, but AWS has them:\n"
        "  aws:efs/mountTarget:MountTarget mount: fsmt-1\n"
        "If they do not belong to a stack with the same name in another backend, add them to the state:\n"
        "  make recover STACK=dev ADOPT=1\n"
    )


@pytest.mark.parametrize(
    "create",
    [
        operation(MOUNT, MOUNT_TYPE, fileSystemId="fs-1", subnetId="subnet-2"),
        operation(MOUNT, MOUNT_TYPE, fileSystemId="fs-1", subnetId="subnet-1", securityGroups=[UNKNOWN]),
        operation(VPC, "aws:ec2/vpc:Vpc", tags={}),
    ],
    ids=["AWS does not have it", "an input is not known yet", "AWS has two"],
)
def test_what_cannot_be_recognised_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], create: dict[str, Any]
) -> None:
    compared(monkeypatch, create)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("failed", "reason"), [("no output", "no output"), ("half of the output", "no cluster")])
def test_a_failed_preview_is_reported_and_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failed: str, reason: str
) -> None:
    mount = operation(MOUNT, MOUNT_TYPE, fileSystemId="fs-1", subnetId="subnet-1")
    compared(monkeypatch, mount, failed=failed)
    said = capsys.readouterr().out
    assert said.startswith(
        f"`pulumi preview` failed, so `recover` does not know all that `pulumi up` would create: {reason}\n"
    )
    assert ("mount: fsmt-1" in said) == (failed != "no output")
