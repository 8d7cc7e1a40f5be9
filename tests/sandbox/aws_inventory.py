"""What an AWS holds, asked of AWS itself: ids by kind, so that two inventories can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Kind: service, action, where the items are, what names one.
LISTED = {
    "VPC": ("ec2", "describe_vpcs", "Vpcs", "VpcId"),
    "subnet": ("ec2", "describe_subnets", "Subnets", "SubnetId"),
    "internet gateway": ("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "route table": ("ec2", "describe_route_tables", "RouteTables", "RouteTableId"),
    "network ACL": ("ec2", "describe_network_acls", "NetworkAcls", "NetworkAclId"),
    "network interface": ("ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    "address": ("ec2", "describe_addresses", "Addresses", "AllocationId"),
    "VPC endpoint": ("ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    "security group": ("ec2", "describe_security_groups", "SecurityGroups", "GroupId"),
    "security group rule": ("ec2", "describe_security_group_rules", "SecurityGroupRules", "SecurityGroupRuleId"),
    "launch template": ("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    "key pair": ("ec2", "describe_key_pairs", "KeyPairs", "KeyName"),
    "KMS alias": ("kms", "list_aliases", "Aliases", "AliasName"),
    "bucket": ("s3", "list_buckets", "Buckets", "Name"),
    "role": ("iam", "list_roles", "Roles", "RoleName"),
    "OIDC provider": ("iam", "list_open_id_connect_providers", "OpenIDConnectProviderList", "Arn"),
    "log group": ("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "file system": ("efs", "describe_file_systems", "FileSystems", "FileSystemId"),
    "access point": ("efs", "describe_access_points", "AccessPoints", "AccessPointId"),
    "zone": ("route53", "list_hosted_zones", "HostedZones", "Id"),
}


def inventory(aws: Callable[[str], Any]) -> dict[str, list[str]]:
    found = {
        kind: sorted(str(each[name]) for each in getattr(aws(service), action)()[items])
        for kind, (service, action, items, name) in LISTED.items()
    }
    nats = aws("ec2").describe_nat_gateways()["NatGateways"]
    keys = [aws("kms").describe_key(KeyId=each["KeyId"])["KeyMetadata"] for each in aws("kms").list_keys()["Keys"]]
    # AWS shows both for a while after their end.
    found["NAT gateway"] = sorted(each["NatGatewayId"] for each in nats if each["State"] != "deleted")
    found["KMS key"] = sorted(each["KeyId"] for each in keys if each["KeyState"] != "PendingDeletion")
    found["cluster"] = sorted(aws("eks").list_clusters()["clusters"])
    return found
