"""Recover lists what has the tags of the stack and is not in its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

from tests.unit.tools.recover.states import PROVIDER, deployment, types_of_the_program
from tools.recover import __main__ as program
from tools.recover.find import find
from tools.recover.unrecorded import KINDS, search_unrecorded

TAGS = {"project": "paddle-on-aws", "stack": "dev"}
EC2, EKS = "arn:aws:ec2:us-west-2:123456789012:", "arn:aws:eks:us-west-2:123456789012:"
# Types without tags, and types that GetResources does not list. They cost nothing.
NOT_LISTED = {
    "aws:budgets/budget:Budget",
    "aws:ec2/route:Route",
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    "aws:efs/backupPolicy:BackupPolicy",
    "aws:efs/fileSystemPolicy:FileSystemPolicy",
    "aws:efs/mountTarget:MountTarget",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    "aws:iam/role:Role",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:kms/alias:Alias",
    "aws:route53/record:Record",
    "aws:sns/topicSubscription:TopicSubscription",
}


def client(arns: Mapping[str, Mapping[str, str]], **answers: Any) -> Any:
    """Clients of all services. GetResources returns these ARNs with these tags; the other answers are by operation."""
    own = mock.Mock(spec=["can_paginate", "get_resources", *DEFAULT, *answers])
    own.can_paginate.return_value = False
    tagged = [
        {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        for arn, tags in arns.items()
    ]
    own.get_resources.return_value = {"ResourceTagMappingList": tagged}
    for operation, answer in {**DEFAULT, **answers}.items():
        getattr(own, operation).return_value = answer
    return own


DEFAULT: Mapping[str, Any] = {
    "list_hosted_zones": {"HostedZones": []},
    "describe_nat_gateways": {"NatGateways": [{"State": "available"}]},
    "describe_instances": {"Reservations": [{"Instances": [{"State": {"Name": "running"}}]}]},
    "describe_volumes": {"Volumes": [{"State": "available"}]},
    "describe_vpc_endpoints": {"VpcEndpoints": [{"VpcEndpointId": "vpce-1", "State": "available"}]},
    "describe_key": {"KeyMetadata": {"KeyState": "Enabled"}},
}


def found(own: Any, *resources: dict[str, Any]) -> list[str]:
    state = {**deployment(), "resources": [PROVIDER, *resources]}
    return [each.line for each in search_unrecorded(lambda service: own, state, TAGS)]


def test_only_the_tags_of_the_stack_are_searched() -> None:
    own = client({})
    assert found(own) == []
    filters = own.get_resources.call_args.kwargs["TagFilters"]
    assert filters == [{"Key": "project", "Values": ["paddle-on-aws"]}, {"Key": "stack", "Values": ["dev"]}]


def test_what_the_state_contains_is_known_by_its_id_or_arn() -> None:
    own = client(
        {
            f"{EC2}vpc/vpc-1": {},
            f"{EC2}vpc/vpc-2": {},
            f"{EKS}nodegroup/paddle/workers-1/0a": {},
            f"{EKS}nodegroup/paddle/workers-2/0b": {},
            f"{EKS}access-entry/paddle/role/123456789012/a/1": {},
        }
    )
    lines = found(
        own,
        {"type": "aws:ec2/vpc:Vpc", "urn": "a", "id": "vpc-1"},
        {"type": "aws:eks/nodeGroup:NodeGroup", "urn": "b", "id": "paddle:workers-1"},
        {
            "type": "aws:eks/accessEntry:AccessEntry",
            "urn": "c",
            "id": "paddle:arn:aws:iam::123456789012:role/a",
            "outputs": {"accessEntryArn": f"{EKS}access-entry/paddle/role/123456789012/a/1"},
        },
    )
    assert lines == [f"  {EKS}nodegroup/paddle/workers-2/0b: costs money", f"  {EC2}vpc/vpc-2: costs nothing"]


def test_the_outputs_of_a_component_do_not_make_its_child_known() -> None:
    component = {"type": "paddle:infra:Bucket", "urn": "a", "outputs": {"arn": "arn:aws:s3:::bucket-1"}}
    assert found(client({"arn:aws:s3:::bucket-1": {}}), component) == ["  arn:aws:s3:::bucket-1: costs money"]


def test_instances_of_a_known_node_group_are_known() -> None:
    ours = {"eks:cluster-name": "paddle", "eks:nodegroup-name": "workers"}
    own = client({f"{EC2}instance/i-1": ours, f"{EC2}instance/i-2": {**ours, "eks:nodegroup-name": "other"}})
    group = {"type": "aws:eks/nodeGroup:NodeGroup", "urn": "a", "id": "paddle:workers"}
    assert found(own, group) == [f"  {EC2}instance/i-2: costs money"]


def test_what_aws_has_deleted_is_not_listed() -> None:
    arns = [f"{EC2}natgateway/nat-1", f"{EC2}instance/i-1", f"{EC2}volume/vol-1", f"{EC2}vpc-endpoint/vpce-1"]
    gone = client(
        {arn: {} for arn in [*arns, "arn:aws:kms:us-west-2:123456789012:key/1"]},
        describe_nat_gateways={"NatGateways": [{"State": "deleted"}]},
        describe_instances={"Reservations": [{"Instances": [{"State": {"Name": "terminated"}}]}]},
        describe_volumes={"Volumes": [{"State": "in-use"}]},
        describe_vpc_endpoints={"VpcEndpoints": [{"VpcEndpointId": "vpce-1", "State": "deleting"}]},
        describe_key={"KeyMetadata": {"KeyState": "PendingDeletion"}},
    )
    assert found(gone) == []
    assert len(found(client({arn: {} for arn in arns}))) == 4


def test_what_costs_money_comes_first_and_an_unknown_type_can_cost_money() -> None:
    lines = found(
        client({f"{EC2}{each}": {} for each in ("internet-gateway/igw-1", "natgateway/nat-1", "snapshot/snap-1")})
    )
    assert [line.rpartition(": ")[2] for line in lines] == ["costs money", "can cost money", "costs nothing"]


def test_an_id_of_another_type_does_not_make_a_resource_known() -> None:
    namespace = {"type": "kubernetes:core/v1:Namespace", "urn": "a", "id": "paddle"}
    assert found(client({f"{EKS}cluster/paddle": {}}), namespace) == [f"  {EKS}cluster/paddle: costs money"]


def test_a_key_pair_is_known_by_the_id_that_its_name_is_not() -> None:
    pair = {"type": "aws:ec2/keyPair:KeyPair", "urn": "a", "id": "ssh-1", "outputs": {"keyPairId": "key-1"}}
    assert found(client({f"{EC2}key-pair/key-1": {}}), pair) == []
    assert found(client({f"{EC2}key-pair/key-2": {}}), pair) == [f"  {EC2}key-pair/key-2: costs nothing"]


def test_a_zone_is_found_by_its_own_tags() -> None:
    tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    own = client({}, list_hosted_zones={"HostedZones": [{"Id": "/hostedzone/Z1", "Name": "paddle."}]})
    own.list_tags_for_resource = mock.Mock(return_value={"ResourceTagSet": {"Tags": tags}})
    assert found(own) == ["  arn:aws:route53:::hostedzone/Z1: costs money"]
    own.list_tags_for_resource.return_value = {"ResourceTagSet": {"Tags": tags[:1]}}
    assert found(own) == []


def test_every_type_of_the_program_is_known_or_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    types = types_of_the_program(monkeypatch)
    parts_of_bucket = {each for each in types if each.startswith("aws:s3/bucket") and each != "aws:s3/bucket:Bucket"}
    assert types - parts_of_bucket - NOT_LISTED - {kind.type for kind in KINDS} == set()


def test_a_log_group_with_the_same_name_belongs_to_the_stack_only_with_its_tags() -> None:
    group = {"logGroupName": "/aws/eks/paddle/cluster", "arn": "arn:aws:logs:us-west-2:1:log-group:name:*"}
    own = client({}, describe_log_groups={"logGroups": [group]}, list_tags_for_resource={"tags": {}})
    inputs = {"name": "/aws/eks/paddle/cluster"}
    assert find(lambda service: own, "aws:cloudwatch/logGroup:LogGroup", inputs, TAGS) == []
    own.list_tags_for_resource.return_value = {"tags": TAGS}
    assert find(lambda service: own, "aws:cloudwatch/logGroup:LogGroup", inputs, TAGS) == [inputs["name"]]
    own.list_tags_for_resource.assert_called_with(resourceArn="arn:aws:logs:us-west-2:1:log-group:name")


def test_an_alias_belongs_to_the_stack_only_if_it_names_its_key() -> None:
    own = client({}, list_aliases={"Aliases": [{"AliasName": "alias/other"}]})
    inputs = {"name": "alias/paddle", "targetKeyId": "key-1"}
    assert find(lambda service: own, "aws:kms/alias:Alias", inputs, TAGS) == []
    own.list_aliases.assert_called_with(KeyId="key-1")


def test_the_list_has_only_what_has_both_tags_of_the_owner() -> None:
    own = client({f"{EC2}vpc/vpc-1": {}})
    tags = '{"tags": {"project": "paddle-on-aws", "stack": "dev", "team": "nlp"}}'
    provider = {**PROVIDER, "inputs": {"defaultTags": tags}}
    lines = program.unrecorded_lines(lambda service: own, "dev", {"resources": [provider]})
    assert f"  {EC2}vpc/vpc-1: costs nothing" in lines
    filters = own.get_resources.call_args.kwargs["TagFilters"]
    assert filters == [{"Key": "project", "Values": ["paddle-on-aws"]}, {"Key": "stack", "Values": ["dev"]}]
    own.get_resources.reset_mock()
    one = {**PROVIDER, "inputs": {"defaultTags": '{"tags": {"stack": "dev"}}'}}
    for resources in ([one], []):
        (line,) = program.unrecorded_lines(lambda service: own, "dev", {"resources": resources})
        assert "cannot search" in line
    own.get_resources.assert_not_called()


def test_the_credentials_are_those_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    session = mock.Mock()
    answer = {"AccessKeyId": "id", "SecretAccessKey": "key", "SessionToken": "token"}
    session.return_value.client.return_value.assume_role.return_value = {"Credentials": answer}
    monkeypatch.setattr("boto3.Session", session)
    role = '[{"roleArn": "arn:aws:iam::123456789012:role/deploy"}]'
    program.session({"region": "us-west-2", "profile": "work", "assumeRoles": role})
    assert session.call_args_list == [
        mock.call(profile_name="work", region_name="us-west-2"),
        mock.call("id", "key", "token", region_name="us-west-2"),
    ]
    program.session({"region": "us-west-2"})
    assert session.call_args == mock.call(profile_name=None, region_name="us-west-2")
    with pytest.raises(program.RecoverError, match="aws:profile is a secret"):
        program.session({"profile": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}})
