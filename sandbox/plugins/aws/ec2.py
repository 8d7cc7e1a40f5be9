"""EC2: VPCs, addresses, security groups, launch templates and key pairs."""

from __future__ import annotations

import zlib
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
    text,
    texts,
)
from sandbox.plugins.aws.rows import (
    TAGS,
    Autoname,
    Checked,
    Row,
    exactly_one,
    status,
    tag_changes,
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

VPC_ATTRIBUTES = ("enableDnsSupport", "enableDnsHostnames")


def _create_vpc(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:CreateVpc", want, TagSpecifications=_tagged("vpc", want))["Vpc"]["VpcId"])


def _read_vpc(cloud: Cloud, identity: str, before: Checked) -> State:
    vpc = only(cloud("ec2:DescribeVpcs", VpcIds=[identity])["Vpcs"])
    state: Checked = plain(vpc) | {"tagsAll": unpaired(vpc.get("Tags")), "arn": _arn(cloud, "vpc", identity)}
    for name in VPC_ATTRIBUTES:
        upper = name[0].upper() + name[1:]
        answer = cloud("ec2:DescribeVpcAttribute", VpcId=identity, Attribute=name)
        state[name] = answer.get(upper, {}).get("Value", False)
    return state


def _update_vpc(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    for name in VPC_ATTRIBUTES:
        if name in changed:
            upper = name[0].upper() + name[1:]
            cloud("ec2:ModifyVpcAttribute", VpcId=identity, **{upper: {"Value": want[name]}})
    _retag(cloud, identity, have, want, changed)


# Internet gateway


def _create_gateway(cloud: Cloud, want: Checked) -> str:
    answer = cloud("ec2:CreateInternetGateway", TagSpecifications=_tagged("internet-gateway", want))
    return str(answer["InternetGateway"]["InternetGatewayId"])


def _read_gateway(cloud: Cloud, identity: str, before: Checked) -> State:
    gateway = only(cloud("ec2:DescribeInternetGateways", InternetGatewayIds=[identity])["InternetGateways"])
    attached = first(gateway.get("Attachments"))
    return {
        "arn": _arn(cloud, "internet-gateway", identity),
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


def _create_subnet(cloud: Cloud, want: Checked) -> str:
    return str(cloud("ec2:CreateSubnet", want, TagSpecifications=_tagged("subnet", want))["Subnet"]["SubnetId"])


def _read_subnet(cloud: Cloud, identity: str, before: Checked) -> State:
    subnet = only(cloud("ec2:DescribeSubnets", SubnetIds=[identity])["Subnets"])
    return {**plain(subnet), "arn": _arn(cloud, "subnet", identity), "tagsAll": unpaired(subnet.get("Tags"))}


def _update_subnet(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "mapPublicIpOnLaunch" in changed:
        value = {"Value": want["mapPublicIpOnLaunch"]}
        cloud("ec2:ModifySubnetAttribute", SubnetId=identity, MapPublicIpOnLaunch=value)
    _retag(cloud, identity, have, want, changed)


# Routes


def _read_table(cloud: Cloud, identity: str, before: Checked) -> State:
    table = only(cloud("ec2:DescribeRouteTables", RouteTableIds=[identity])["RouteTables"])
    return {
        "arn": _arn(cloud, "route-table", identity),
        "vpcId": table["VpcId"],
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
    """Find it by its subnet: its id changes when the route table is replaced."""
    subnet = before.get("subnetId") or identity.split("/")[0]
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    tables = cloud("ec2:DescribeRouteTables", Filters=filters)["RouteTables"]
    every = (each for table in tables for each in table.get("Associations", []))
    found: Checked = plain(only(each for each in every if each.get("SubnetId") == subnet))
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
        **plain(nat),
        **plain(first(nat.get("NatGatewayAddresses"))),
        "tagsAll": unpaired(nat.get("Tags")),
    }


# VPC endpoint


def _create_endpoint(cloud: Cloud, want: Checked) -> str:
    tags = _tagged("vpc-endpoint", want)
    answer = cloud("ec2:CreateVpcEndpoint", want, VpcEndpointType="Gateway", TagSpecifications=tags)
    return str(answer["VpcEndpoint"]["VpcEndpointId"])


def _read_endpoint(cloud: Cloud, identity: str, before: Checked) -> State:
    endpoint = only(cloud("ec2:DescribeVpcEndpoints", VpcEndpointIds=[identity])["VpcEndpoints"])
    if endpoint["State"] == "deleted":
        raise GoneError
    return {
        **plain(endpoint),
        "arn": _arn(cloud, "vpc-endpoint", identity),
        "tagsAll": unpaired(endpoint.get("Tags")),
    }


def _update_endpoint(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "routeTableIds" in changed:
        has, wanted = set(have.get("routeTableIds") or []), set(want.get("routeTableIds") or [])
        tables = {"AddRouteTableIds": sorted(wanted - has), "RemoveRouteTableIds": sorted(has - wanted)}
        given = {name: value for name, value in tables.items() if value}
        cloud("ec2:ModifyVpcEndpoint", VpcEndpointId=identity, **given)
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
        "vpcId": group.get("VpcId"),
        "tagsAll": unpaired(group.get("Tags")),
    }


def _finish_group(cloud: Cloud, identity: str) -> None:
    """Revoke the default rule that allows all egress, as the official provider does."""
    group = only(cloud("ec2:DescribeSecurityGroups", GroupIds=[identity])["SecurityGroups"])
    if group.get("IpPermissionsEgress"):
        cloud("ec2:RevokeSecurityGroupEgress", GroupId=identity, IpPermissions=group["IpPermissionsEgress"])


def _delete_group(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("ec2:DeleteSecurityGroup", GroupId=identity)


RULE_SOURCES = ("cidrIpv4", "referencedSecurityGroupId")


def _create_rule(direction: str) -> Any:
    def create(cloud: Cloud, want: Checked) -> str:
        permission: dict[str, Any] = {"IpProtocol": want["ipProtocol"]}
        permission |= {k: want[v] for k, v in (("FromPort", "fromPort"), ("ToPort", "toPort")) if v in want}
        if want.get("cidrIpv4"):
            permission["IpRanges"] = [{"CidrIp": want["cidrIpv4"]}]
        else:
            permission["UserIdGroupPairs"] = [{"GroupId": want["referencedSecurityGroupId"]}]
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
        names = ("ipProtocol", "fromPort", "toPort", *RULE_SOURCES)
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
                    "kmsKeyId": text(),
                    "volumeSize": number(COMPUTED),
                    "volumeType": text(COMPUTED),
                }
            ),
        },
        kind="list",
    ),
    "keyName": text(),
    "metadataOptions": block(
        {
            "httpEndpoint": text(COMPUTED),
            "httpPutResponseHopLimit": number(COMPUTED),
            "httpTokens": text(COMPUTED),
        },
        COMPUTED,
    ),
    "tagSpecifications": blocks({"resourceType": text(), "tags": mapping()}, kind="list"),
    "vpcSecurityGroupIds": texts(),
}


def _template_data(want: Checked) -> State:
    """The data of a version; the SDK has texts where the API has booleans."""
    data = {name: want[name] for name in LAUNCH if want.get(name) is not None}
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
        {"launchTemplateData": _template_data(want)},
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
        "defaultVersion": template["DefaultVersionNumber"],
        "latestVersion": template["LatestVersionNumber"],
        "tagsAll": unpaired(template.get("Tags")),
    }


def _update_template(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if changed & LAUNCH.keys():
        given = {"launchTemplateData": _template_data(want)}
        answer = cloud("ec2:CreateLaunchTemplateVersion", given, LaunchTemplateId=identity)
        latest = answer["LaunchTemplateVersion"]["VersionNumber"]
        if want.get("updateDefaultVersion"):
            cloud("ec2:ModifyLaunchTemplate", LaunchTemplateId=identity, DefaultVersion=str(latest))
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
    "referencedSecurityGroupId": text(),
    **TAGS,
}

ROWS = [
    Row(
        "aws:ec2/vpc:Vpc",
        inputs={
            "cidrBlock": text(REPLACES | COMPUTED),
            "enableDnsSupport": flag(default=True),
            "enableDnsHostnames": flag(COMPUTED),
            **TAGS,
        },
        outputs=["arn"],
        create=_create_vpc,
        read=_read_vpc,
        update=_update_vpc,
        delete=_delete_by("ec2:DeleteVpc", "VpcId"),
    ),
    Row(
        "aws:ec2/internetGateway:InternetGateway",
        inputs={"vpcId": text(COMPUTED), **TAGS},
        outputs=["arn"],
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
            "mapPublicIpOnLaunch": flag(default=False),
            **TAGS,
        },
        outputs=["arn"],
        create=_create_subnet,
        read=_read_subnet,
        update=_update_subnet,
        delete=_delete_by("ec2:DeleteSubnet", "SubnetId"),
    ),
    Row(
        "aws:ec2/routeTable:RouteTable",
        inputs={"vpcId": text(REQUIRED | REPLACES), **TAGS},
        outputs=["arn"],
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
        },
        outputs=["state"],
        create=_create_route,
        read=_read_route,
        update=_update_route,
        delete=_delete_route,
        known_as=_name_route,
        check=exactly_one("gatewayId", "natGatewayId"),
    ),
    Row(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        inputs={"routeTableId": text(REQUIRED), "subnetId": text(REQUIRED | REPLACES)},
        outputs=[],
        create=_associate,
        read=_read_association,
        update=_update_association,
        delete=_delete_association,
        known_as=_name_association,
    ),
    Row(
        "aws:ec2/eip:Eip",
        inputs={"domain": text(REPLACES | COMPUTED), **TAGS},
        outputs=["allocationId", "arn", "associationId", "publicIp"],
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
            **TAGS,
        },
        outputs=["publicIp"],
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
            "routeTableIds": texts(COMPUTED),
            **TAGS,
        },
        outputs=["arn"],
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
            **TAGS,
        },
        outputs=["arn"],
        autoname=Autoname(),
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
            framework=True,
        )
        for direction in ("Ingress", "Egress")
    ),
    Row(
        "aws:ec2/launchTemplate:LaunchTemplate",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "updateDefaultVersion": flag(LOCAL),
            **LAUNCH,
            **TAGS,
        },
        outputs=["arn", "defaultVersion", "latestVersion"],
        renewed=["latestVersion", "defaultVersion"],
        autoname=Autoname(),
        create=_create_template,
        read=_read_template,
        update=_update_template,
        delete=_delete_by("ec2:DeleteLaunchTemplate", "LaunchTemplateId"),
    ),
    Row(
        "aws:ec2/keyPair:KeyPair",
        inputs={
            "keyName": text(REPLACES | COMPUTED),
            "publicKey": text(REQUIRED | REPLACES),
            **TAGS,
        },
        outputs=["arn", "keyPairId"],
        autoname=Autoname("keyName"),
        create=_create_key_pair,
        read=_read_key_pair,
        update=_update_key_pair,
        delete=_delete_by("ec2:DeleteKeyPair", "KeyName"),
    ),
]
