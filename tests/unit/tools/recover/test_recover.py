"""Recover finds every type of AWS resource, and adopts exactly what the state does not contain."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import WaiterError

from tests.unit.conftest import RunStack
from tests.unit.program import stack_files
from tools.recover.__main__ import lines, revoke_default_rules, search, wait_until_ready
from tools.recover.find import NAMED, SEARCHED, find
from tools.recover.state import adopt, object_id

ADMIN = "arn:aws:iam::123456789012:role/admin"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
VPC = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Network$aws:ec2/vpc:Vpc::vpc"
KEY = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Encryption$aws:kms/key:Key::key"
DEFAULT_PROVIDER = {
    "urn": "urn:pulumi:dev::paddle-on-aws::pulumi:providers:aws::default_7_51_1",
    "type": "pulumi:providers:aws",
    "id": "0",
    "inputs": {"region": "us-west-2"},
}
PROVIDER = {
    "urn": "urn:pulumi:dev::paddle-on-aws::pulumi:providers:aws::aws",
    "type": "pulumi:providers:aws",
    "id": "1",
    "inputs": {"region": "us-west-2", "defaultTags": '{"tags": {"project": "paddle-on-aws", "stack": "dev"}}'},
}

TAGS = {"project": "paddle-on-aws", "stack": "dev"}


def operation(urn: str, type_: str, kind: str = "creating", **inputs: Any) -> dict[str, Any]:
    return {"type": kind, "resource": {"urn": urn, "type": type_, "custom": True, "inputs": inputs}}


def deployment(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [DEFAULT_PROVIDER, PROVIDER], "pending_operations": list(operations)}


class Vpcs:
    """An EC2 client with two VPCs. It records the filters of each call."""

    def __init__(self) -> None:
        self.filters: list[Any] = []

    def can_paginate(self, operation: str) -> bool:
        return False

    def describe_vpcs(self, **arguments: Any) -> dict[str, Any]:
        self.filters = arguments["Filters"]
        return {"Vpcs": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2"}]}


@pytest.mark.parametrize("stack", stack_files())
def test_every_type_of_the_program_can_be_found(program: RunStack, stack: str) -> None:
    more = {"sshPublicKey": SSH_KEY, "apiAccessCidrs": ["8.8.8.0/24"], "admins": [ADMIN], "natGateways": "single"}
    notify = {"email": "team@example.com", "monthlyBudget": 400}
    graph = program({**more, "notify": notify, "export": {"enabled": True}}, stack=stack)
    types = {each.type for each in graph.resources.values() if each.custom and each.type.startswith("aws:")}
    assert types
    assert types - NAMED.keys() - SEARCHED.keys() == set()


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
    assert (first["id"], first.get("delete"), first["outputs"]) == ("vpc-1", None, {"cidrBlock": "10.0.0.0/16"})
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


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_a_resource_that_was_not_created_is_not_waited_for(code: str) -> None:
    group = "urn:pulumi:dev::paddle-on-aws::aws:eks/nodeGroup:NodeGroup::workers"
    inputs = {"clusterName": "paddle", "nodeGroupName": "workers-1"}
    exported = deployment(operation(group, "aws:eks/nodeGroup:NodeGroup", **inputs))
    waiter = mock.Mock()
    waiter.return_value.get_waiter.return_value.wait.side_effect = WaiterError(
        "NodegroupActive", "failed", {"Error": {"Code": code}}
    )
    if code == "ResourceNotFoundException":
        wait_until_ready(waiter, exported, {group: ["paddle:workers-1"]})
    else:
        with pytest.raises(WaiterError):
            wait_until_ready(waiter, exported, {group: ["paddle:workers-1"]})


@pytest.mark.parametrize(
    ("tags", "adopted"), [(TAGS, ["paddle"]), ({**TAGS, "stack": "prod"}, []), ({"project": "paddle-on-aws"}, [])]
)
def test_a_cluster_with_the_same_name_belongs_to_the_stack_only_with_its_tags(
    tags: dict[str, str], adopted: list[str]
) -> None:
    eks = mock.Mock()
    eks.return_value.describe_cluster.return_value = {"cluster": {"name": "paddle", "tags": tags}}
    assert find(eks, "aws:eks/cluster:Cluster", {"name": "paddle"}, TAGS) == adopted


@pytest.mark.parametrize(("rules", "revoked"), [([{"IpProtocol": "-1"}], True), ([], False)])
def test_the_default_rule_of_an_unfinished_security_group_is_revoked(rules: list[Any], revoked: bool) -> None:
    ec2 = mock.Mock()
    ec2.describe_security_groups.return_value = {"SecurityGroups": [{"IpPermissionsEgress": rules}]}
    pending = deployment(operation("group", "aws:ec2/securityGroup:SecurityGroup", name="g", vpcId="vpc-1"))
    assert "sg-1: add to the state if it exists, without the rule" in lines(pending, {"group": ["sg-1"]})[0]
    revoke_default_rules(lambda _: ec2, pending, {"group": ["sg-1"], "vpc": ["vpc-1"]})
    calls = [mock.call(GroupId="sg-1", IpPermissions=rules)] if revoked else []
    assert ec2.revoke_security_group_egress.mock_calls == calls
