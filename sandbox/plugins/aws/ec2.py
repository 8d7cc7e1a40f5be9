"""EC2: VPCs, addresses, security groups, launch templates and key pairs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, GoneError, first, gone, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    REPLACES,
    REQUIRED,
    Misuse,
    Prop,
    block,
    blocks,
    flag,
    mapping,
    number,
    policy,
    text,
    texts,
)
from sandbox.plugins.aws.rows import (
    REGION,
    TAGS,
    Autoname,
    Checked,
    Row,
    at_most_one,
    exactly_one,
    status,
    tag_changes,
    unset,
)
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State


def _tagged(kind: str, want: Checked) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": pairs(want["tagsAll"])}] if want.get("tagsAll") else []


def _retag(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("ec2:DeleteTags", Resources=[identity], Tags=[{"Key": key} for key in removed])
    if tags:
        cloud("ec2:CreateTags", Resources=[identity], Tags=pairs(tags))


def _arn(cloud: Cloud, kind: str, identity: str) -> str:
    return cloud.arn("ec2", f"{kind}/{identity}")


# VPC

VPC_ATTRIBUTES = ("enableDnsSupport", "enableDnsHostnames", "enableNetworkAddressUsageMetrics")


def _create_vpc(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:CreateVpc", want, TagSpecifications=_tagged("vpc", want))["Vpc"]["VpcId"])


def _read_vpc(cloud: Cloud, identity: str, before: Checked) -> State:
    vpc = only(cloud("ec2:DescribeVpcs", VpcIds=[identity])["Vpcs"])
    state: Checked = plain(vpc) | {"tagsAll": unpaired(vpc.get("Tags")), "arn": _arn(cloud, "vpc", identity)}
    for name in VPC_ATTRIBUTES:
        upper = name[0].upper() + name[1:]
        answer = cloud("ec2:DescribeVpcAttribute", VpcId=identity, Attribute=name)
        state[name] = answer.get(upper, {}).get("Value", False)
    in_vpc = {"Name": "vpc-id", "Values": [identity]}

    def its(action: str, key: str, name: str, value: str) -> Mapping[str, Any]:
        return first(cloud(action, Filters=[in_vpc, {"Name": name, "Values": [value]}])[key])

    main = its("ec2:DescribeRouteTables", "RouteTables", "association.main", "true").get("RouteTableId")
    return state | {
        "ownerId": vpc.get("OwnerId") or cloud.account(),
        "mainRouteTableId": main,
        "defaultRouteTableId": main,
        "defaultNetworkAclId": its("ec2:DescribeNetworkAcls", "NetworkAcls", "default", "true").get("NetworkAclId"),
        "defaultSecurityGroupId": its("ec2:DescribeSecurityGroups", "SecurityGroups", "group-name", "default").get(
            "GroupId"
        ),
    }


def _update_vpc(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    for name in VPC_ATTRIBUTES:
        if name in changed:
            upper = name[0].upper() + name[1:]
            cloud("ec2:ModifyVpcAttribute", VpcId=identity, **{upper: {"Value": want[name]}})
    if "instanceTenancy" in changed:
        cloud("ec2:ModifyVpcTenancy", VpcId=identity, InstanceTenancy=want["instanceTenancy"])
    _retag(cloud, identity, have, want, changed)


def _tenancy_forces(state: Checked, want: Checked) -> list[str]:
    """AWS changes a dedicated VPC to the default tenancy, but not the other way."""
    return ["instanceTenancy"] if want.get("instanceTenancy") == "dedicated" else []


# Internet gateway


def _create_gateway(cloud: Cloud, want: Checked) -> str:
    answer = cloud("ec2:CreateInternetGateway", TagSpecifications=_tagged("internet-gateway", want))
    return str(answer["InternetGateway"]["InternetGatewayId"])


def _read_gateway(cloud: Cloud, identity: str, before: Checked) -> State:
    gateway = only(cloud("ec2:DescribeInternetGateways", InternetGatewayIds=[identity])["InternetGateways"])
    attached = first(gateway.get("Attachments"))
    return {
        "arn": _arn(cloud, "internet-gateway", identity),
        "ownerId": gateway.get("OwnerId") or cloud.account(),
        "vpcId": attached.get("VpcId"),
        "tagsAll": unpaired(gateway.get("Tags")),
    }


def _detach(cloud: Cloud, identity: str) -> None:
    if vpc := _read_gateway(cloud, identity, {})["vpcId"]:
        cloud("ec2:DetachInternetGateway", InternetGatewayId=identity, VpcId=vpc)


def _update_gateway(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "vpcId" in changed:
        _detach(cloud, identity)
        if want.get("vpcId"):
            cloud("ec2:AttachInternetGateway", InternetGatewayId=identity, VpcId=want["vpcId"])
    _retag(cloud, identity, have, want, changed)


def _delete_gateway(cloud: Cloud, identity: str, state: Checked) -> None:
    _detach(cloud, identity)
    cloud("ec2:DeleteInternetGateway", InternetGatewayId=identity)


# Subnet

SUBNET_FLAGS = ("mapPublicIpOnLaunch", "assignIpv6AddressOnCreation")


def _create_subnet(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:CreateSubnet", want, TagSpecifications=_tagged("subnet", want))["Subnet"]["SubnetId"])


def _read_subnet(cloud: Cloud, identity: str, before: Checked) -> State:
    subnet = only(cloud("ec2:DescribeSubnets", SubnetIds=[identity])["Subnets"])
    answered = plain(subnet)
    return {
        **answered,
        "arn": subnet.get("SubnetArn") or _arn(cloud, "subnet", identity),
        "ownerId": subnet.get("OwnerId") or cloud.account(),
        "privateDnsHostnameTypeOnLaunch": answered.get("privateDnsNameOptionsOnLaunch", {}).get("hostnameType"),
        "tagsAll": unpaired(subnet.get("Tags")),
    }


def _update_subnet(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    for name in SUBNET_FLAGS:
        if name in changed:
            upper = name[0].upper() + name[1:]
            cloud("ec2:ModifySubnetAttribute", SubnetId=identity, **{upper: {"Value": want[name]}})
    _retag(cloud, identity, have, want, changed)


# Routes


def _read_table(cloud: Cloud, identity: str, before: Checked) -> State:
    table = only(cloud("ec2:DescribeRouteTables", RouteTableIds=[identity])["RouteTables"])
    return {
        "arn": _arn(cloud, "route-table", identity),
        "ownerId": table.get("OwnerId") or cloud.account(),
        "vpcId": table["VpcId"],
        "propagatingVgws": [each["GatewayId"] for each in table.get("PropagatingVgws", [])],
        "routes": [
            {
                "cidrBlock": route.get("DestinationCidrBlock", ""),
                "ipv6CidrBlock": route.get("DestinationIpv6CidrBlock", ""),
                "destinationPrefixListId": route.get("DestinationPrefixListId", ""),
                "gatewayId": route.get("GatewayId", ""),
                "natGatewayId": route.get("NatGatewayId", ""),
            }
            for route in table.get("Routes", [])
            if route.get("GatewayId") != "local" and not route.get("GatewayId", "").startswith("vpce-")
        ],
        "tagsAll": unpaired(table.get("Tags")),
    }


def _create_table(cloud: Cloud, want: Checked) -> str:
    answer = cloud("ec2:CreateRouteTable", want, TagSpecifications=_tagged("route-table", want))
    return str(answer["RouteTable"]["RouteTableId"])


def _create_route(cloud: Cloud, want: Checked) -> str:
    cloud("ec2:CreateRoute", want)
    return _name_route(cloud, want)


def _name_route(cloud: Cloud, state: Checked) -> str:
    return f"r-{state['routeTableId']}{zlib.crc32(state['destinationCidrBlock'].encode())}"


def _place_of_route(identity: str, state: Checked) -> tuple[str, str]:
    """The table and destination of a route; for an import its id has the form TABLE_DESTINATION."""
    if state.get("routeTableId"):
        return state["routeTableId"], state["destinationCidrBlock"]
    if "_" not in identity:
        raise ProviderError(f"the id of a route has the form ROUTETABLEID_DESTINATION, not {identity!r}")
    table, destination = identity.split("_", 1)
    return table, destination


def _read_route(cloud: Cloud, identity: str, before: Checked) -> State:
    table, destination = _place_of_route(identity, before)
    routes = only(cloud("ec2:DescribeRouteTables", RouteTableIds=[table])["RouteTables"]).get("Routes", [])
    route = only(each for each in routes if each.get("DestinationCidrBlock") == destination)
    return {**plain(route), "routeTableId": table}


def _update_route(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("ec2:ReplaceRoute", want)


def _delete_route(cloud: Cloud, identity: str, state: Checked) -> None:
    table, destination = _place_of_route(identity, state)
    cloud("ec2:DeleteRoute", RouteTableId=table, DestinationCidrBlock=destination)


def _associate(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:AssociateRouteTable", want)["AssociationId"])


def _read_association(cloud: Cloud, identity: str, before: Checked) -> State:
    """Find it by its subnet or gateway: its id changes when the route table is replaced."""
    target = before.get("subnetId") or before.get("gatewayId") or identity.split("/")[0]
    name = "association.gateway-id" if target.startswith("igw-") else "association.subnet-id"
    tables = cloud("ec2:DescribeRouteTables", Filters=[{"Name": name, "Values": [target]}])["RouteTables"]
    every = (each for table in tables for each in table.get("Associations", []))
    found: Checked = plain(only(each for each in every if target in (each.get("SubnetId"), each.get("GatewayId"))))
    return found


def _name_association(cloud: Cloud, state: Checked) -> str:
    return str(_read_association(cloud, "", state)["routeTableAssociationId"])


def _update_association(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    now = _read_association(cloud, identity, want)
    parameters = {"AssociationId": now["routeTableAssociationId"], "RouteTableId": want["routeTableId"]}
    cloud("ec2:ReplaceRouteTableAssociation", **parameters)


def _delete_association(cloud: Cloud, identity: str, state: Checked) -> None:
    now = _read_association(cloud, identity, state)
    cloud("ec2:DisassociateRouteTable", AssociationId=now["routeTableAssociationId"])


# Addresses and NAT


def _create_address(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:AllocateAddress", want, TagSpecifications=_tagged("elastic-ip", want))["AllocationId"])


def _read_address(cloud: Cloud, identity: str, before: Checked) -> State:
    address = only(cloud("ec2:DescribeAddresses", AllocationIds=[identity])["Addresses"])
    return {
        **plain(address),
        "arn": _arn(cloud, "elastic-ip", identity),
        "instance": address.get("InstanceId"),
        "networkInterface": address.get("NetworkInterfaceId"),
        "privateIp": address.get("PrivateIpAddress"),
        "networkBorderGroup": address.get("NetworkBorderGroup") or cloud.region,
        "publicDns": f"ec2-{address['PublicIp'].replace('.', '-')}.{cloud.region}.compute.{cloud.dns_suffix}",
        "tagsAll": unpaired(address.get("Tags")),
    }


def _delete_address(cloud: Cloud, identity: str, state: Checked) -> None:
    """Detach the address first, if the last refresh saw it on a NAT gateway. The gateway can be gone already."""
    if association := state.get("associationId"):
        try:
            cloud("ec2:DisassociateAddress", AssociationId=association)
        except ClientError as error:
            if not gone(error):
                raise
    cloud("ec2:ReleaseAddress", AllocationId=identity)


def _create_nat(cloud: Cloud, want: Checked) -> str:
    answer = cloud("ec2:CreateNatGateway", want, TagSpecifications=_tagged("natgateway", want))
    return str(answer["NatGateway"]["NatGatewayId"])


def _read_nat(cloud: Cloud, identity: str, before: Checked) -> State:
    nat = only(cloud("ec2:DescribeNatGateways", NatGatewayIds=[identity])["NatGateways"])
    if nat["State"] == "deleted":
        raise GoneError
    return {
        "autoProvisionZones": "",
        **plain(nat),
        **plain(first(nat.get("NatGatewayAddresses"))),
        "availabilityMode": nat.get("AvailabilityMode") or "zonal",
        "regionalNatGatewayAddresses": [],
        "secondaryAllocationIds": [],
        "secondaryPrivateIpAddresses": [],
        "secondaryPrivateIpAddressCount": 0,
        "tagsAll": unpaired(nat.get("Tags")),
    }


# VPC endpoint


def _create_endpoint(cloud: Cloud, want: Checked) -> str:
    tags = _tagged("vpc-endpoint", want)
    answer = cloud("ec2:CreateVpcEndpoint", want | _document(want), PrivateDnsEnabled=False, TagSpecifications=tags)
    return str(answer["VpcEndpoint"]["VpcEndpointId"])


def _document(want: Checked) -> State:
    return {"policyDocument": want["policy"]} if want.get("policy") else {}


def _read_endpoint(cloud: Cloud, identity: str, before: Checked) -> State:
    endpoint = only(cloud("ec2:DescribeVpcEndpoints", VpcEndpointIds=[identity])["VpcEndpoints"])
    if endpoint["State"] == "deleted":
        raise GoneError
    names = [{"Name": "prefix-list-name", "Values": [endpoint["ServiceName"]]}]
    prefix = first(cloud("ec2:DescribePrefixLists", Filters=names)["PrefixLists"])
    return {
        **plain(endpoint),
        "arn": _arn(cloud, "vpc-endpoint", identity),
        "ownerId": endpoint.get("OwnerId") or cloud.account(),
        "policy": endpoint.get("PolicyDocument"),
        "prefixListId": prefix.get("PrefixListId"),
        "cidrBlocks": prefix.get("Cidrs", []),
        "securityGroupIds": [each["GroupId"] for each in endpoint.get("Groups", [])],
        "serviceRegion": endpoint.get("ServiceRegion") or cloud.region,
        "dnsEntries": plain(endpoint.get("DnsEntries") or []),
        "networkInterfaceIds": endpoint.get("NetworkInterfaceIds") or [],
        "subnetConfigurations": [],
        "requesterManaged": bool(endpoint.get("RequesterManaged")),
        "tagsAll": unpaired(endpoint.get("Tags")),
    }


def _update_endpoint(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    parameters: dict[str, Any] = {}
    if "routeTableIds" in changed:
        has = set(have.get("routeTableIds") or [])
        wanted = set(want.get("routeTableIds") or [])
        parameters |= {"AddRouteTableIds": sorted(wanted - has), "RemoveRouteTableIds": sorted(has - wanted)}
    if "policy" in changed:
        parameters |= {"PolicyDocument": want["policy"]} if want.get("policy") else {"ResetPolicy": True}
    if parameters := {name: value for name, value in parameters.items() if value}:
        cloud("ec2:ModifyVpcEndpoint", VpcEndpointId=identity, **parameters)
    _retag(cloud, identity, have, want, changed)


# Security groups and their rules


def _create_group(cloud: Cloud, want: Checked) -> str:
    named = {"GroupName": want["name"], "TagSpecifications": _tagged("security-group", want)}
    return str(cloud("ec2:CreateSecurityGroup", want, **named)["GroupId"])


def _read_group(cloud: Cloud, identity: str, before: Checked) -> State:
    group = only(cloud("ec2:DescribeSecurityGroups", GroupIds=[identity])["SecurityGroups"])
    return {
        "arn": _arn(cloud, "security-group", identity),
        "name": group["GroupName"],
        "description": group["Description"],
        "ownerId": group.get("OwnerId") or cloud.account(),
        "vpcId": group.get("VpcId"),
        "ingress": [_permission(each, identity) for each in group.get("IpPermissions", [])],
        "egress": [_permission(each, identity) for each in group.get("IpPermissionsEgress", [])],
        "tagsAll": unpaired(group.get("Tags")),
    }


def _permission(rule: dict[str, Any], group: str) -> State:
    sources = [each["GroupId"] for each in rule.get("UserIdGroupPairs", [])]
    return {
        "protocol": rule["IpProtocol"],
        "fromPort": rule.get("FromPort", 0) if rule["IpProtocol"] != "-1" else 0,
        "toPort": rule.get("ToPort", 0) if rule["IpProtocol"] != "-1" else 0,
        "cidrBlocks": [each["CidrIp"] for each in rule.get("IpRanges", [])],
        "ipv6CidrBlocks": [each["CidrIpv6"] for each in rule.get("Ipv6Ranges", [])],
        "prefixListIds": [each["PrefixListId"] for each in rule.get("PrefixListIds", [])],
        "securityGroups": [each for each in sources if each != group],
        "self": group in sources,
        "description": "",
    }


def _finish_group(cloud: Cloud, identity: str) -> None:
    """Revoke the default rule that allows all egress, as the official provider does."""
    group = only(cloud("ec2:DescribeSecurityGroups", GroupIds=[identity])["SecurityGroups"])
    if group.get("IpPermissionsEgress"):
        cloud("ec2:RevokeSecurityGroupEgress", GroupId=identity, IpPermissions=group["IpPermissionsEgress"])


def _delete_group(cloud: Cloud, identity: str, state: Checked) -> None:
    if state.get("revokeRulesOnDelete"):
        group = only(cloud("ec2:DescribeSecurityGroups", GroupIds=[identity])["SecurityGroups"])
        for action, key in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
            if group.get(key):
                cloud(f"ec2:RevokeSecurityGroup{action}", GroupId=identity, IpPermissions=group[key])
    cloud("ec2:DeleteSecurityGroup", GroupId=identity)


RULE_SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


def _create_rule(direction: str) -> Any:
    def create(cloud: Cloud, want: Checked) -> str:
        permission: dict[str, Any] = {"IpProtocol": want["ipProtocol"]}
        permission |= {k: want[v] for k, v in (("FromPort", "fromPort"), ("ToPort", "toPort")) if v in want}
        said = {"Description": want["description"]} if want.get("description") else {}
        for name, key, inner in (
            ("cidrIpv4", "IpRanges", "CidrIp"),
            ("cidrIpv6", "Ipv6Ranges", "CidrIpv6"),
            ("prefixListId", "PrefixListIds", "PrefixListId"),
            ("referencedSecurityGroupId", "UserIdGroupPairs", "GroupId"),
        ):
            if want.get(name):
                permission[key] = [{inner: want[name], **said}]
        answer = cloud(
            f"ec2:AuthorizeSecurityGroup{direction}",
            GroupId=want["securityGroupId"],
            IpPermissions=[permission],
            TagSpecifications=_tagged("security-group-rule", want),
        )
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    return create


def _read_rule(cloud: Cloud, identity: str, before: Checked) -> State:
    rule = only(cloud("ec2:DescribeSecurityGroupRules", SecurityGroupRuleIds=[identity])["SecurityGroupRules"])
    every = rule["IpProtocol"] == "-1"
    return {
        **plain(rule),
        "arn": _arn(cloud, "security-group-rule", identity),
        "securityGroupId": rule["GroupId"],
        "fromPort": None if every else rule.get("FromPort"),
        "toPort": None if every else rule.get("ToPort"),
        "referencedSecurityGroupId": rule.get("ReferencedGroupInfo", {}).get("GroupId"),
        "tagsAll": unpaired(rule.get("Tags")),
    }


def _update_rule(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if changed - {"tags", "tagsAll"}:
        names = ("ipProtocol", "fromPort", "toPort", "description", *RULE_SOURCES)
        rule = {name: want[name] for name in names if name in want}
        if "referencedSecurityGroupId" in rule:
            rule["referencedGroupId"] = rule.pop("referencedSecurityGroupId")
        request = {key[0].upper() + key[1:]: value for key, value in rule.items()}
        cloud(
            "ec2:ModifySecurityGroupRules",
            GroupId=want["securityGroupId"],
            SecurityGroupRules=[{"SecurityGroupRuleId": identity, "SecurityGroupRule": request}],
        )
    _retag(cloud, identity, have, want, changed)


def _delete_rule(direction: str) -> Any:
    def delete(cloud: Cloud, identity: str, state: Checked) -> None:
        group = state.get("securityGroupId") or _read_rule(cloud, identity, state)["securityGroupId"]
        cloud(f"ec2:RevokeSecurityGroup{direction}", GroupId=group, SecurityGroupRuleIds=[identity])

    return delete


def _source_forces(state: Checked, want: Checked) -> list[str]:
    """AWS changes the value of a rule's source, but not its type."""
    old, new = ([name for name in RULE_SOURCES if each.get(name)] for each in (state, want))
    return old + new if old != new else []


def _check_rule(given: Checked) -> list[Misuse]:
    ports = ("fromPort", "toPort")
    if given.get("ipProtocol") == "-1" and any(given.get(name) not in (None, -1) for name in ports):
        return [Misuse("fromPort", 'must not be set when ipProtocol is "-1"')]
    return exactly_one(*RULE_SOURCES)(given)


# Launch template

LAUNCH: dict[str, Prop] = {
    "blockDeviceMappings": blocks(
        {
            "deviceName": text(),
            "ebs": block(
                {
                    "deleteOnTermination": text(),
                    "encrypted": text(),
                    "iops": number(COMPUTED),
                    "kmsKeyId": text(),
                    "throughput": number(COMPUTED),
                    "volumeSize": number(COMPUTED),
                    "volumeType": text(COMPUTED),
                }
            ),
        },
        kind="list",
    ),
    "ebsOptimized": text(),
    "iamInstanceProfile": block({"arn": text(), "name": text()}),
    "imageId": text(),
    "instanceType": text(),
    "keyName": text(),
    "metadataOptions": block(
        {
            "httpEndpoint": text(COMPUTED),
            "httpProtocolIpv6": text(COMPUTED),
            "httpPutResponseHopLimit": number(COMPUTED),
            "httpTokens": text(COMPUTED),
            "instanceMetadataTags": text(COMPUTED),
        },
        COMPUTED,
    ),
    "monitoring": block({"enabled": flag()}),
    "tagSpecifications": blocks({"resourceType": text(), "tags": mapping()}, kind="list"),
    "userData": text(),
    "vpcSecurityGroupIds": texts(),
}


def _template_data(want: Checked) -> State:
    """The data of a version; the SDK has texts where the API has booleans."""
    data = {name: want[name] for name in LAUNCH if want.get(name) is not None}
    if "ebsOptimized" in data:
        data["ebsOptimized"] = data["ebsOptimized"] == "true"
    if "vpcSecurityGroupIds" in data:
        data["securityGroupIds"] = data.pop("vpcSecurityGroupIds")
    if "tagSpecifications" in data:
        data["tagSpecifications"] = [each | {"tags": _low_pairs(each)} for each in data["tagSpecifications"]]
    if "blockDeviceMappings" in data:
        data["blockDeviceMappings"] = [_with_flags(each) for each in data["blockDeviceMappings"]]
    return data


def _low_pairs(specification: Checked) -> list[dict[str, str]]:
    return pairs(specification.get("tags") or {}, "key", "value")


def _with_flags(device: Checked) -> State:
    ebs = device.get("ebs") or {}
    flags = {name: ebs[name] == "true" for name in ("deleteOnTermination", "encrypted") if name in ebs}
    return device | {"ebs": ebs | flags}


def _create_template(cloud: Cloud, want: Checked) -> str:
    answer = cloud(
        "ec2:CreateLaunchTemplate",
        {"launchTemplateData": _template_data(want), "versionDescription": want.get("description")},
        LaunchTemplateName=want["name"],
        TagSpecifications=_tagged("launch-template", want),
    )
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def _read_template(cloud: Cloud, identity: str, before: Checked) -> State:
    template = only(cloud("ec2:DescribeLaunchTemplates", LaunchTemplateIds=[identity])["LaunchTemplates"])
    latest = str(template["LatestVersionNumber"])
    versions = cloud("ec2:DescribeLaunchTemplateVersions", LaunchTemplateId=identity, Versions=[latest])
    version = versions["LaunchTemplateVersions"][0]
    data: Checked = plain(version["LaunchTemplateData"])
    if "ebsOptimized" in data:
        data["ebsOptimized"] = str(data["ebsOptimized"]).lower()
    for device in data.get("blockDeviceMappings", []):
        for name in ("deleteOnTermination", "encrypted"):
            if name in device.get("ebs", {}):
                device["ebs"][name] = str(device["ebs"][name]).lower()
    for specification in data.get("tagSpecifications", []):
        specification["tags"] = unpaired(specification.get("tags"), "key", "value")
    return {
        **data,
        "vpcSecurityGroupIds": data.get("securityGroupIds"),
        "arn": _arn(cloud, "launch-template", identity),
        "name": template["LaunchTemplateName"],
        "description": version.get("VersionDescription"),
        "defaultVersion": template["DefaultVersionNumber"],
        "latestVersion": template["LatestVersionNumber"],
        "tagsAll": unpaired(template.get("Tags")),
    }


def _update_template(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if changed & (LAUNCH.keys() | {"description"}):
        given = {"launchTemplateData": _template_data(want), "versionDescription": want.get("description")}
        answer = cloud("ec2:CreateLaunchTemplateVersion", given, LaunchTemplateId=identity)
        latest = answer["LaunchTemplateVersion"]["VersionNumber"]
        if want.get("updateDefaultVersion"):
            cloud("ec2:ModifyLaunchTemplate", LaunchTemplateId=identity, DefaultVersion=str(latest))
    if "defaultVersion" in changed:
        cloud("ec2:ModifyLaunchTemplate", LaunchTemplateId=identity, DefaultVersion=str(want["defaultVersion"]))
    _retag(cloud, identity, have, want, changed)


# Key pair


def _create_key_pair(cloud: Cloud, want: Checked) -> str:
    parameters = {"PublicKeyMaterial": want["publicKey"].encode(), "TagSpecifications": _tagged("key-pair", want)}
    return str(cloud("ec2:ImportKeyPair", want, **parameters)["KeyName"])


def _read_key_pair(cloud: Cloud, identity: str, before: Checked) -> State:
    pair = only(cloud("ec2:DescribeKeyPairs", KeyNames=[identity], IncludePublicKey=True)["KeyPairs"])
    return {
        **plain(pair),
        "arn": _arn(cloud, "key-pair", identity),
        "fingerprint": pair["KeyFingerprint"],
        # AWS returns the key with another comment.
        "publicKey": before.get("publicKey") or pair.get("PublicKey"),
        "tagsAll": unpaired(pair.get("Tags")),
    }


def _update_key_pair(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    _retag(cloud, have["keyPairId"], have, want, changed)


def _delete_by(action: str, parameter: str) -> Any:
    def delete(cloud: Cloud, identity: str, state: Checked) -> None:
        cloud(action, **{parameter: identity})

    return delete


def _delete_endpoint(cloud: Cloud, identity: str, state: Checked) -> None:
    failed = cloud("ec2:DeleteVpcEndpoints", VpcEndpointIds=[identity]).get("Unsuccessful")
    if failed:
        raise ProviderError(f"ec2:DeleteVpcEndpoints: {failed[0]['Error'].get('Message', 'no reason given')}")


RULE_INPUTS: dict[str, Prop] = {
    "securityGroupId": text(REQUIRED | REPLACES),
    "ipProtocol": text(REQUIRED),
    "fromPort": number(),
    "toPort": number(),
    "cidrIpv4": text(),
    "cidrIpv6": text(),
    "prefixListId": text(),
    "referencedSecurityGroupId": text(),
    "description": text(),
    **TAGS,
    **REGION,
}

ROWS = [
    Row(
        "aws:ec2/vpc:Vpc",
        inputs={
            "cidrBlock": text(REPLACES | COMPUTED),
            "instanceTenancy": text(default="default"),
            "enableDnsSupport": flag(default=True),
            "enableDnsHostnames": flag(COMPUTED),
            "enableNetworkAddressUsageMetrics": flag(COMPUTED),
            **TAGS,
            **REGION,
        },
        outputs=[
            *("arn", "defaultNetworkAclId", "defaultRouteTableId", "defaultSecurityGroupId", "dhcpOptionsId"),
            *("ipv6AssociationId", "ipv6CidrBlock", "ipv6CidrBlockNetworkBorderGroup", "mainRouteTableId", "ownerId"),
        ],
        unset=unset("ipv6IpamPoolId", flags="assignGeneratedIpv6CidrBlock", numbers="ipv6NetmaskLength"),
        schema_version=1,
        create=_create_vpc,
        read=_read_vpc,
        update=_update_vpc,
        delete=_delete_by("ec2:DeleteVpc", "VpcId"),
        forces=_tenancy_forces,
    ),
    Row(
        "aws:ec2/internetGateway:InternetGateway",
        inputs={"vpcId": text(COMPUTED), **TAGS, **REGION},
        outputs=["arn", "ownerId"],
        create=_create_gateway,
        read=_read_gateway,
        update=_update_gateway,
        delete=_delete_gateway,
    ),
    Row(
        "aws:ec2/subnet:Subnet",
        inputs={
            "vpcId": text(REQUIRED | REPLACES),
            "cidrBlock": text(REPLACES | COMPUTED),
            "availabilityZone": text(REPLACES | COMPUTED),
            "availabilityZoneId": text(REPLACES | COMPUTED),
            "mapPublicIpOnLaunch": flag(default=False),
            "assignIpv6AddressOnCreation": flag(default=False),
            **TAGS,
            **REGION,
        },
        outputs=["arn", "ipv6CidrBlock", "ipv6CidrBlockAssociationId", "ownerId", "privateDnsHostnameTypeOnLaunch"],
        unset=unset(
            "customerOwnedIpv4Pool outpostArn",
            flags="enableDns64 enableResourceNameDnsARecordOnLaunch enableResourceNameDnsAaaaRecordOnLaunch"
            " ipv6Native mapCustomerOwnedIpOnLaunch",
            numbers="enableLniAtDeviceIndex",
        ),
        schema_version=1,
        create=_create_subnet,
        read=_read_subnet,
        update=_update_subnet,
        delete=_delete_by("ec2:DeleteSubnet", "SubnetId"),
        check=at_most_one("availabilityZone", "availabilityZoneId"),
    ),
    Row(
        "aws:ec2/routeTable:RouteTable",
        inputs={"vpcId": text(REQUIRED | REPLACES), **TAGS, **REGION},
        outputs=["arn", "ownerId", "propagatingVgws", "routes"],
        create=_create_table,
        read=_read_table,
        update=_retag,
        delete=_delete_by("ec2:DeleteRouteTable", "RouteTableId"),
    ),
    Row(
        "aws:ec2/route:Route",
        inputs={
            "routeTableId": text(REQUIRED | REPLACES),
            "destinationCidrBlock": text(REQUIRED | REPLACES),
            "gatewayId": text(),
            "natGatewayId": text(),
            **REGION,
        },
        outputs=["instanceId", "instanceOwnerId", "networkInterfaceId", "origin", "state"],
        unset=unset(
            "carrierGatewayId coreNetworkArn egressOnlyGatewayId gatewayId localGatewayId natGatewayId odbNetworkArn"
            " transitGatewayId vpcEndpointId vpcPeeringConnectionId"
        ),
        create=_create_route,
        read=_read_route,
        update=_update_route,
        delete=_delete_route,
        known_as=_name_route,
        check=exactly_one("gatewayId", "natGatewayId"),
    ),
    Row(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        inputs={
            "routeTableId": text(REQUIRED),
            "subnetId": text(REPLACES),
            "gatewayId": text(REPLACES),
            **REGION,
        },
        outputs=[],
        unset=unset("gatewayId subnetId"),
        create=_associate,
        read=_read_association,
        update=_update_association,
        delete=_delete_association,
        known_as=_name_association,
        check=exactly_one("subnetId", "gatewayId"),
    ),
    Row(
        "aws:ec2/eip:Eip",
        inputs={"domain": text(REPLACES | COMPUTED), **TAGS, **REGION},
        outputs=[
            *("allocationId", "arn", "associationId", "carrierIp", "customerOwnedIp", "instance", "ipamPoolId"),
            *("networkBorderGroup", "networkInterface", "privateDns", "privateIp", "ptrRecord", "publicDns"),
            *("publicIp", "publicIpv4Pool"),
        ],
        unset=unset("customerOwnedIpv4Pool"),
        create=_create_address,
        read=_read_address,
        update=_retag,
        delete=_delete_address,
    ),
    Row(
        "aws:ec2/natGateway:NatGateway",
        inputs={
            "subnetId": text(REPLACES),
            "allocationId": text(REPLACES),
            "connectivityType": text(REPLACES, default="public"),
            "privateIp": text(REPLACES | COMPUTED),
            **TAGS,
            **REGION,
        },
        outputs=[
            *("associationId", "autoProvisionZones", "autoScalingIps", "availabilityMode", "networkInterfaceId"),
            *("publicIp", "regionalNatGatewayAddresses", "regionalNatGatewayAutoMode", "routeTableId"),
            *("secondaryAllocationIds", "secondaryPrivateIpAddressCount", "secondaryPrivateIpAddresses", "vpcId"),
        ],
        unset=unset("allocationId subnetId"),
        create=_create_nat,
        read=_read_nat,
        update=_retag,
        delete=_delete_by("ec2:DeleteNatGateway", "NatGatewayId"),
        ready=status("state", "available", "failed"),
    ),
    Row(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        inputs={
            "vpcId": text(REQUIRED | REPLACES),
            "serviceName": text(REPLACES),
            "vpcEndpointType": text(REPLACES, default="Gateway"),
            "routeTableIds": texts(COMPUTED),
            "policy": policy(COMPUTED),
            **TAGS,
            **REGION,
        },
        outputs=[
            *("arn", "cidrBlocks", "dnsEntries", "ipAddressType", "networkInterfaceIds", "ownerId"),
            *("prefixListId", "privateDnsEnabled", "requesterManaged", "securityGroupIds", "serviceRegion", "state"),
            *("subnetConfigurations", "subnetIds"),
        ],
        withheld=["dnsOptions"],
        unset=unset("resourceConfigurationArn serviceNetworkArn", flags="privateDnsEnabled"),
        create=_create_endpoint,
        read=_read_endpoint,
        update=_update_endpoint,
        delete=_delete_endpoint,
        ready=status("state", "available", "failed", "rejected"),
    ),
    Row(
        "aws:ec2/securityGroup:SecurityGroup",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "description": text(REPLACES, default="Managed by Pulumi"),
            "vpcId": text(REPLACES | COMPUTED),
            "revokeRulesOnDelete": flag(LOCAL, default=False),
            **TAGS,
            **REGION,
        },
        outputs=["arn", "egress", "ingress", "namePrefix", "ownerId"],
        autoname=Autoname(),
        schema_version=1,
        create=_create_group,
        finish=_finish_group,
        read=_read_group,
        update=_retag,
        delete=_delete_group,
    ),
    *(
        Row(
            f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule",
            inputs=RULE_INPUTS,
            outputs=["arn", "securityGroupRuleId"],
            create=_create_rule(direction),
            read=_read_rule,
            update=_update_rule,
            delete=_delete_rule(direction),
            check=_check_rule,
            forces=_source_forces,
        )
        for direction in ("Ingress", "Egress")
    ),
    Row(
        "aws:ec2/launchTemplate:LaunchTemplate",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "description": text(),
            "defaultVersion": number(COMPUTED),
            "updateDefaultVersion": flag(LOCAL),
            **LAUNCH,
            **TAGS,
            **REGION,
        },
        outputs=["arn", "latestVersion", "namePrefix"],
        renewed=["latestVersion", "defaultVersion"],
        autoname=Autoname(),
        unset=unset(
            "description ebsOptimized imageId instanceInitiatedShutdownBehavior instanceType kernelId keyName ramDiskId"
            " userData",
            flags="disableApiStop disableApiTermination",
            lists="blockDeviceMappings licenseSpecifications networkInterfaces secondaryInterfaces securityGroupNames"
            " tagSpecifications vpcSecurityGroupIds",
        ),
        schema_version=1,
        create=_create_template,
        read=_read_template,
        update=_update_template,
        delete=_delete_by("ec2:DeleteLaunchTemplate", "LaunchTemplateId"),
        check=at_most_one("defaultVersion", "updateDefaultVersion"),
    ),
    Row(
        "aws:ec2/keyPair:KeyPair",
        inputs={
            "keyName": text(REPLACES | COMPUTED),
            "publicKey": text(REQUIRED | REPLACES),
            **TAGS,
            **REGION,
        },
        outputs=["arn", "fingerprint", "keyNamePrefix", "keyPairId", "keyType"],
        autoname=Autoname("keyName"),
        schema_version=1,
        create=_create_key_pair,
        read=_read_key_pair,
        update=_update_key_pair,
        delete=_delete_by("ec2:DeleteKeyPair", "KeyName"),
    ),
]
