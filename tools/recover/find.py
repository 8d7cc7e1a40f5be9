"""Finds the AWS resource that an interrupted engine created, by names, parents and tags from the engine's state."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

Inputs = Mapping[str, Any]
Client = Callable[[str], Any]  # a boto3 client by the name of its service
Finder = Callable[[Client, Inputs], Iterable[str]]

# Types whose ID follows from their inputs, and that `pulumi up` can create again: their names are random, or the
# call replaces what exists. `pulumi refresh` drops the resource again if it does not exist.
NAMED: Mapping[str, str] = {
    "aws:ec2/keyPair:KeyPair": "{keyName}",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "{fileSystemId}",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "{clusterName}#{principalArn}#{policyArn}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:s3/bucket:Bucket": "{bucket}",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "{bucket}",
    "aws:s3/bucketPolicy:BucketPolicy": "{bucket}",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "{bucket}",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "{bucket}",
    "aws:s3/bucketVersioning:BucketVersioning": "{bucket}",
}


def find(client: Client, type_: str, inputs: Inputs, tags: Mapping[str, str]) -> list[str] | None:
    """The IDs of the resources with these inputs, or None if the type is not known here."""
    if type_ in NAMED:
        return [NAMED[type_].format_map(inputs)]
    if type_ not in SEARCHED:
        return None
    try:
        return list(SEARCHED[type_](client, {**inputs, "tags": {**(inputs.get("tags") or {}), **tags}}))
    except ClientError as error:
        # The resource or its parent does not exist.
        if any(word in error.response["Error"]["Code"] for word in ("NotFound", "NoSuch")):
            return []
        raise


def _filters(**values: str) -> list[dict[str, Any]]:
    return [{"Name": name.replace("_", "-"), "Values": [value]} for name, value in values.items()]


def _tags(inputs: Inputs) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in inputs["tags"].items()]


def listed(client: Client, service: str, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
    """All pages of a list operation."""
    caller = client(service)
    if not caller.can_paginate(operation):
        return list(getattr(caller, operation)(**arguments)[key])
    return [each for page in caller.get_paginator(operation).paginate(**arguments) for each in page[key]]


def _backup_policy(client: Client, inputs: Inputs) -> Iterable[str]:
    # EFS answers PolicyNotFound if the policy was never set. The official provider cannot read such a policy.
    client("efs").describe_backup_policy(FileSystemId=inputs["fileSystemId"])
    return [inputs["fileSystemId"]]


def _access_entries(client: Client, inputs: Inputs) -> Iterable[str]:
    cluster, principal = inputs["clusterName"], inputs["principalArn"]
    client("eks").describe_access_entry(clusterName=cluster, principalArn=principal)
    return [f"{cluster}:{principal}"]


def _access_points(client: Client, inputs: Inputs) -> Iterable[str]:
    points = listed(client, "efs", "describe_access_points", "AccessPoints", FileSystemId=inputs["fileSystemId"])
    return [each["AccessPointId"] for each in points if has_tags(each.get("Tags"), inputs["tags"])]


def _addons(client: Client, inputs: Inputs) -> Iterable[str]:
    cluster, name = inputs["clusterName"], inputs["addonName"]
    client("eks").describe_addon(clusterName=cluster, addonName=name)
    return [f"{cluster}:{name}"]


def _addresses(client: Client, inputs: Inputs) -> Iterable[str]:
    return [
        each["AllocationId"] for each in listed(client, "ec2", "describe_addresses", "Addresses", Filters=_tags(inputs))
    ]


def _aliases(client: Client, inputs: Inputs) -> Iterable[str]:
    found = listed(client, "kms", "list_aliases", "Aliases", KeyId=inputs["targetKeyId"])
    return [each["AliasName"] for each in found if each["AliasName"] == inputs["name"]]


def _associations(client: Client, inputs: Inputs) -> Iterable[str]:
    tables = listed(client, "ec2", "describe_route_tables", "RouteTables", RouteTableIds=[inputs["routeTableId"]])
    return [
        each["RouteTableAssociationId"]
        for table in tables
        for each in table["Associations"]
        if each.get("SubnetId") == inputs.get("subnetId")
    ]


def _budgets(client: Client, inputs: Inputs) -> Iterable[str]:
    client("budgets").describe_budget(AccountId=inputs["accountId"], BudgetName=inputs["name"])
    return [f"{inputs['accountId']}:{inputs['name']}"]


def _clusters(client: Client, inputs: Inputs) -> Iterable[str]:
    found = client("eks").describe_cluster(name=inputs["name"])["cluster"]
    own = [{"Key": key, "Value": value} for key, value in (found.get("tags") or {}).items()]
    return [found["name"]] if has_tags(own, inputs["tags"]) else []


def _endpoints(client: Client, inputs: Inputs) -> Iterable[str]:
    filters = _filters(vpc_id=inputs["vpcId"], service_name=inputs["serviceName"])
    found = listed(client, "ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=filters)
    return [each["VpcEndpointId"] for each in found if each["State"] not in ("deleting", "deleted")]


def _file_systems(client: Client, inputs: Inputs) -> Iterable[str]:
    found = listed(client, "efs", "describe_file_systems", "FileSystems", CreationToken=inputs["creationToken"])
    return [each["FileSystemId"] for each in found]


def _identity_providers(client: Client, inputs: Inputs) -> Iterable[str]:
    caller = client("sts").get_caller_identity()
    provider = f"oidc-provider/{inputs['url'].removeprefix('https://')}"
    arn = f"arn:{caller['Arn'].split(':')[1]}:iam::{caller['Account']}:{provider}"
    client("iam").get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    return [arn]


def _internet_gateways(client: Client, inputs: Inputs) -> Iterable[str]:
    found = listed(client, "ec2", "describe_internet_gateways", "InternetGateways", Filters=_tags(inputs))
    return [each["InternetGatewayId"] for each in found]


def _keys(client: Client, inputs: Inputs) -> Iterable[str]:
    kms = client("kms")
    for each in listed(client, "kms", "list_keys", "Keys"):
        described = kms.describe_key(KeyId=each["KeyId"])["KeyMetadata"]
        if described["KeyManager"] != "CUSTOMER" or described["KeyState"] == "PendingDeletion":
            continue
        tags = kms.list_resource_tags(KeyId=each["KeyId"])["Tags"]
        if has_tags([{"Key": tag["TagKey"], "Value": tag["TagValue"]} for tag in tags], inputs["tags"]):
            yield each["KeyId"]


def _launch_templates(client: Client, inputs: Inputs) -> Iterable[str]:
    found = listed(client, "ec2", "describe_launch_templates", "LaunchTemplates")
    return [each["LaunchTemplateId"] for each in found if each["LaunchTemplateName"] == inputs["name"]]


def _log_groups(client: Client, inputs: Inputs) -> Iterable[str]:
    logs = client("logs")
    for each in listed(client, "logs", "describe_log_groups", "logGroups", logGroupNamePrefix=inputs["name"]):
        if each["logGroupName"] == inputs["name"]:
            own = logs.list_tags_for_resource(resourceArn=each["arn"].removesuffix(":*")).get("tags") or {}
            if has_tags([{"Key": key, "Value": value} for key, value in own.items()], inputs["tags"]):
                yield each["logGroupName"]


def _mount_targets(client: Client, inputs: Inputs) -> Iterable[str]:
    found = listed(client, "efs", "describe_mount_targets", "MountTargets", FileSystemId=inputs["fileSystemId"])
    return [each["MountTargetId"] for each in found if each["SubnetId"] == inputs["subnetId"]]


def _nat_gateways(client: Client, inputs: Inputs) -> Iterable[str]:
    filters = [*_filters(subnet_id=inputs["subnetId"]), *_tags(inputs)]
    found = listed(client, "ec2", "describe_nat_gateways", "NatGateways", Filters=filters)
    return [each["NatGatewayId"] for each in found if each["State"] in ("pending", "available")]


def _node_groups(client: Client, inputs: Inputs) -> Iterable[str]:
    cluster, name = inputs["clusterName"], inputs["nodeGroupName"]
    client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=name)
    return [f"{cluster}:{name}"]


def _records(client: Client, inputs: Inputs) -> Iterable[str]:
    zone, name, kind = inputs["zoneId"], inputs["name"], inputs["type"]
    first = {"StartRecordName": name, "StartRecordType": kind, "MaxItems": "1"}
    for each in client("route53").list_resource_record_sets(HostedZoneId=zone, **first)["ResourceRecordSets"]:
        if (each["Name"].rstrip("."), each["Type"]) == (name.rstrip("."), kind):
            yield f"{zone}_{name}_{kind}"


def _route_tables(client: Client, inputs: Inputs) -> Iterable[str]:
    filters = [*_filters(vpc_id=inputs["vpcId"]), *_tags(inputs)]
    return [
        each["RouteTableId"] for each in listed(client, "ec2", "describe_route_tables", "RouteTables", Filters=filters)
    ]


def _routes(client: Client, inputs: Inputs) -> Iterable[str]:
    table, destination = inputs["routeTableId"], inputs["destinationCidrBlock"]
    tables = listed(client, "ec2", "describe_route_tables", "RouteTables", RouteTableIds=[table])
    if any(each.get("DestinationCidrBlock") == destination for found in tables for each in found["Routes"]):
        # The ID that the provider gives to a route.
        yield f"r-{table}{zlib.crc32(destination.encode())}"


def _rules(client: Client, inputs: Inputs, egress: bool) -> Iterable[str]:
    filters = _filters(group_id=inputs["securityGroupId"])
    ports = (-1, -1) if inputs["ipProtocol"] == "-1" else (inputs.get("fromPort"), inputs.get("toPort"))
    for each in listed(client, "ec2", "describe_security_group_rules", "SecurityGroupRules", Filters=filters):
        source = (
            each.get("CidrIpv4"),
            each.get("CidrIpv6"),
            each.get("PrefixListId"),
            (each.get("ReferencedGroupInfo") or {}).get("GroupId"),
        )
        wanted = tuple(inputs.get(key) for key in ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId"))
        same_ports = each["IpProtocol"] == "-1" or (each.get("FromPort"), each.get("ToPort")) == ports
        if (
            each["IsEgress"] == egress
            and each["IpProtocol"] == inputs["ipProtocol"]
            and same_ports
            and source == wanted
        ):
            yield each["SecurityGroupRuleId"]


def _security_groups(client: Client, inputs: Inputs) -> Iterable[str]:
    filters = _filters(vpc_id=inputs["vpcId"], group_name=inputs["name"])
    return [
        each["GroupId"] for each in listed(client, "ec2", "describe_security_groups", "SecurityGroups", Filters=filters)
    ]


def _subnets(client: Client, inputs: Inputs) -> Iterable[str]:
    filters = _filters(vpc_id=inputs["vpcId"], cidr_block=inputs["cidrBlock"])
    return [each["SubnetId"] for each in listed(client, "ec2", "describe_subnets", "Subnets", Filters=filters)]


def _topics(client: Client, inputs: Inputs) -> Iterable[str]:
    caller, sns = client("sts").get_caller_identity(), client("sns")
    arn = f"arn:{caller['Arn'].split(':')[1]}:sns:{sns.meta.region_name}:{caller['Account']}:{inputs['name']}"
    sns.get_topic_attributes(TopicArn=arn)
    return [arn]


def _vpcs(client: Client, inputs: Inputs) -> Iterable[str]:
    return [each["VpcId"] for each in listed(client, "ec2", "describe_vpcs", "Vpcs", Filters=_tags(inputs))]


def _zones(client: Client, inputs: Inputs) -> Iterable[str]:
    wanted = {each["vpcId"] for each in inputs.get("vpcs") or []}
    for each in listed(client, "route53", "list_hosted_zones", "HostedZones"):
        identity = each["Id"].rpartition("/")[2]
        if each["Name"].rstrip(".") != inputs["name"]:
            continue
        vpcs = {vpc["VPCId"] for vpc in client("route53").get_hosted_zone(Id=identity).get("VPCs") or []}
        if vpcs == wanted:
            yield identity


def has_tags(tags: Iterable[Mapping[str, str]] | None, wanted: Mapping[str, str]) -> bool:
    have = {tag["Key"]: tag["Value"] for tag in tags or ()}
    return bool(wanted) and wanted.items() <= have.items()


SEARCHED: Mapping[str, Finder] = {
    "aws:budgets/budget:Budget": _budgets,
    "aws:cloudwatch/logGroup:LogGroup": _log_groups,
    "aws:ec2/eip:Eip": _addresses,
    "aws:ec2/internetGateway:InternetGateway": _internet_gateways,
    "aws:ec2/launchTemplate:LaunchTemplate": _launch_templates,
    "aws:ec2/natGateway:NatGateway": _nat_gateways,
    "aws:ec2/route:Route": _routes,
    "aws:ec2/routeTable:RouteTable": _route_tables,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _associations,
    "aws:ec2/securityGroup:SecurityGroup": _security_groups,
    "aws:ec2/subnet:Subnet": _subnets,
    "aws:ec2/vpc:Vpc": _vpcs,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoints,
    "aws:efs/accessPoint:AccessPoint": _access_points,
    "aws:efs/backupPolicy:BackupPolicy": _backup_policy,
    "aws:efs/fileSystem:FileSystem": _file_systems,
    "aws:efs/mountTarget:MountTarget": _mount_targets,
    "aws:eks/accessEntry:AccessEntry": _access_entries,
    "aws:eks/addon:Addon": _addons,
    "aws:eks/cluster:Cluster": _clusters,
    "aws:eks/nodeGroup:NodeGroup": _node_groups,
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": _identity_providers,
    "aws:kms/alias:Alias": _aliases,
    "aws:kms/key:Key": _keys,
    "aws:route53/record:Record": _records,
    "aws:route53/zone:Zone": _zones,
    "aws:sns/topic:Topic": _topics,
    # AWS lists a new subscription without its ARN. `pulumi up` gets the same subscription again.
    "aws:sns/topicSubscription:TopicSubscription": lambda client, inputs: [],
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": lambda client, inputs: _rules(client, inputs, True),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": lambda client, inputs: _rules(client, inputs, False),
}
