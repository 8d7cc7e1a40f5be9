"""Resources with the tags of a stack that its state does not contain: Pulumi does not know and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tools import pulumi_state
from tools.pulumi_state import Deployment, Resource
from tools.recover.find import Client, has_tags, listed

Cost = Literal["costs money", "can cost money", "costs nothing"]
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


@dataclass(frozen=True)
class Kind:
    """A type of resource. `arn` is the start of its ARNs without partition, region and account.

    `type` is its type in Pulumi, or empty: EC2 creates and deletes instances and volumes for the node groups.
    """

    arn: str
    type: str
    cost: Cost


KINDS = (
    Kind("ec2:elastic-ip/", "aws:ec2/eip:Eip", "costs money"),
    Kind("ec2:instance/", "", "costs money"),
    Kind("ec2:natgateway/", "aws:ec2/natGateway:NatGateway", "costs money"),
    Kind("ec2:volume/", "", "costs money"),
    Kind("eks:cluster/", "aws:eks/cluster:Cluster", "costs money"),
    Kind("eks:nodegroup/", NODE_GROUP, "costs money"),
    Kind("elasticfilesystem:file-system/", "aws:efs/fileSystem:FileSystem", "costs money"),
    Kind("kms:key/", "aws:kms/key:Key", "costs money"),
    Kind("logs:log-group:", "aws:cloudwatch/logGroup:LogGroup", "costs money"),
    Kind("route53:hostedzone/", "aws:route53/zone:Zone", "costs money"),
    Kind("s3:", "aws:s3/bucket:Bucket", "costs money"),
    # Gateway endpoints cost nothing, interface endpoints cost money.
    Kind("ec2:vpc-endpoint/", "aws:ec2/vpcEndpoint:VpcEndpoint", "can cost money"),
    Kind("ec2:internet-gateway/", "aws:ec2/internetGateway:InternetGateway", "costs nothing"),
    Kind("ec2:key-pair/", "aws:ec2/keyPair:KeyPair", "costs nothing"),
    Kind("ec2:launch-template/", "aws:ec2/launchTemplate:LaunchTemplate", "costs nothing"),
    Kind("ec2:route-table/", "aws:ec2/routeTable:RouteTable", "costs nothing"),
    Kind("ec2:security-group/", "aws:ec2/securityGroup:SecurityGroup", "costs nothing"),
    Kind("ec2:security-group-rule/", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "costs nothing"),
    Kind("ec2:security-group-rule/", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "costs nothing"),
    Kind("ec2:subnet/", "aws:ec2/subnet:Subnet", "costs nothing"),
    Kind("ec2:vpc/", "aws:ec2/vpc:Vpc", "costs nothing"),
    Kind("eks:access-entry/", "aws:eks/accessEntry:AccessEntry", "costs nothing"),
    Kind("eks:addon/", "aws:eks/addon:Addon", "costs nothing"),
    Kind("elasticfilesystem:access-point/", "aws:efs/accessPoint:AccessPoint", "costs nothing"),
    Kind("iam:oidc-provider/", "aws:iam/openIdConnectProvider:OpenIdConnectProvider", "costs nothing"),
    Kind("sns:", "aws:sns/topic:Topic", "costs nothing"),
)
COSTS: tuple[Cost, ...] = ("costs money", "can cost money", "costs nothing")


@dataclass(frozen=True)
class Unrecorded:
    arn: str
    cost: Cost

    @property
    def line(self) -> str:
        return f"  {self.arn}: {self.cost}"


def search_unrecorded(client: Client, deployment: Deployment, tags: Mapping[str, str]) -> list[Unrecorded]:
    """What has these tags and is not in the state, with what costs money first."""
    # A component has no ID, but its outputs can contain the ARN of a child.
    resources = [each for each in pulumi_state.resources(deployment) if each.get("id")]
    known = set(_known(resources))
    found = []
    for arn, own_tags in [*_tagged(client, tags), *_zones(client, tags)]:
        service, resource = _parts(arn)
        kinds = [kind for kind in KINDS if f"{service}:{resource}".startswith(kind.arn)]
        identity = _identity(service, resource, kinds)
        if ("", arn) in known or (NODE_GROUP, _node_group(own_tags)) in known:
            continue
        if any((kind.type, identity) in known for kind in kinds):
            continue
        if _exists(client, f"{service}:{resource}", identity):
            found.append(Unrecorded(arn, kinds[0].cost if kinds else "can cost money"))
    return sorted(found, key=lambda each: (COSTS.index(each.cost), each.arn))


def _known(resources: Iterable[Resource]) -> Iterator[tuple[str, str]]:
    """Type and ID of each resource of the state, and its ARNs without a type."""
    for each in resources:
        outputs = each.get("outputs") or {}
        yield each["type"], each["id"]
        yield "", each["id"]
        yield from (("", outputs[name]) for name in ("arn", "accessEntryArn") if outputs.get(name))
        # The ARN of a key pair ends with this ID or with its name.
        if outputs.get("keyPairId"):
            yield each["type"], outputs["keyPairId"]


def _tagged(client: Client, tags: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    filters = [{"Key": key, "Values": [value]} for key, value in tags.items()]
    api = "resourcegroupstaggingapi"
    for each in listed(client, api, "get_resources", "ResourceTagMappingList", TagFilters=filters):
        yield each["ResourceARN"], {tag["Key"]: tag["Value"] for tag in each["Tags"]}


def _zones(client: Client, tags: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Zones belong to no region, so the list of tagged resources of a region does not contain them."""
    for zone in listed(client, "route53", "list_hosted_zones", "HostedZones"):
        identity = zone["Id"].rpartition("/")[2]
        own = client("route53").list_tags_for_resource(ResourceType="hostedzone", ResourceId=identity)
        if has_tags(own["ResourceTagSet"]["Tags"], tags):
            yield f"arn:aws:route53:::hostedzone/{identity}", {}


def _parts(arn: str) -> tuple[str, str]:
    _, _, service, _, _, resource = arn.split(":", 5)
    return service, resource


def _identity(service: str, resource: str, kinds: Iterable[Kind]) -> str:
    """The ID in the state of Pulumi."""
    start = next((kind.arn for kind in kinds), "")
    identity = f"{service}:{resource}".removeprefix(start)
    return ":".join(identity.split("/")[:2]) if start in ("eks:nodegroup/", "eks:addon/") else identity


def _node_group(tags: Mapping[str, str]) -> str:
    """The ID of the node group that an instance belongs to."""
    return f"{tags.get('eks:cluster-name')}:{tags.get('eks:nodegroup-name')}"


def _exists(client: Client, resource: str, identity: str) -> bool:
    """AWS lists some resources for a while after their deletion. An attached volume is deleted with its instance."""
    ec2 = client("ec2")
    match resource.partition("/")[0]:
        case "ec2:instance":
            filters = [{"Name": "instance-id", "Values": [identity]}]
            reservations = ec2.describe_instances(Filters=filters)["Reservations"]
            states = {instance["State"]["Name"] for found in reservations for instance in found["Instances"]}
            return bool(states - {"shutting-down", "terminated"})
        case "ec2:volume":
            filters = [{"Name": "volume-id", "Values": [identity]}]
            return any(found["State"] == "available" for found in ec2.describe_volumes(Filters=filters)["Volumes"])
        case "ec2:natgateway":
            filters = [{"Name": "nat-gateway-id", "Values": [identity]}]
            gateways = ec2.describe_nat_gateways(Filters=filters)["NatGateways"]
            return any(found["State"] in ("available", "pending") for found in gateways)
        case "ec2:vpc-endpoint":
            endpoints = listed(client, "ec2", "describe_vpc_endpoints", "VpcEndpoints")
            states = {found["State"] for found in endpoints if found["VpcEndpointId"] == identity}
            return bool(states - {"deleting", "deleted"})
        case "kms:key":
            state = client("kms").describe_key(KeyId=identity)["KeyMetadata"]["KeyState"]
            return bool(state != "PendingDeletion")
        case _:
            return True
