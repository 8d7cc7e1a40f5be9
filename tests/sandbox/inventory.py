"""Lists all resources of an AWS account, with API calls to each service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Client = Callable[[str], Any]


ACCOUNT = "123456789012"


def inventory(client: Client) -> dict[str, list[str]]:
    """The IDs of all resources in one region that cost money or can block a later deployment."""
    ec2, eks, iam, kms = client("ec2"), client("eks"), client("iam"), client("kms")
    clusters = eks.list_clusters()["clusters"]
    zones = [zone["Id"] for zone in client("route53").list_hosted_zones()["HostedZones"]]
    file_systems = [each["FileSystemId"] for each in client("efs").describe_file_systems()["FileSystems"]]
    keys = [key["KeyId"] for key in kms.list_keys()["Keys"]]
    aliases = [each["AliasName"] for each in kms.list_aliases()["Aliases"]]
    found = {
        "vpcs": [each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"]],
        "subnets": [each["SubnetId"] for each in ec2.describe_subnets()["Subnets"]],
        "route tables": [each["RouteTableId"] for each in ec2.describe_route_tables()["RouteTables"]],
        "gateways": [each["InternetGatewayId"] for each in ec2.describe_internet_gateways()["InternetGateways"]],
        "nat gateways": [
            each["NatGatewayId"] for each in ec2.describe_nat_gateways()["NatGateways"] if each["State"] != "deleted"
        ],
        "addresses": [each["AllocationId"] for each in ec2.describe_addresses()["Addresses"]],
        "endpoints": [
            each["VpcEndpointId"] for each in ec2.describe_vpc_endpoints()["VpcEndpoints"] if each["State"] != "deleted"
        ],
        "security groups": [each["GroupId"] for each in ec2.describe_security_groups()["SecurityGroups"]],
        "rules": [each["SecurityGroupRuleId"] for each in ec2.describe_security_group_rules()["SecurityGroupRules"]],
        "interfaces": [each["NetworkInterfaceId"] for each in ec2.describe_network_interfaces()["NetworkInterfaces"]],
        "launch templates": [each["LaunchTemplateId"] for each in ec2.describe_launch_templates()["LaunchTemplates"]],
        "key pairs": [each["KeyPairId"] for each in ec2.describe_key_pairs()["KeyPairs"]],
        "clusters": clusters,
        "node groups": [each for name in clusters for each in eks.list_nodegroups(clusterName=name)["nodegroups"]],
        "file systems": file_systems,
        "mount targets": [
            each["MountTargetId"]
            for name in file_systems
            for each in client("efs").describe_mount_targets(FileSystemId=name)["MountTargets"]
        ],
        # A destroyed key waits for its deletion and cannot be used.
        "keys": [key for key in keys if kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] != "PendingDeletion"],
        "aliases": [name for name in aliases if not name.startswith("alias/aws/")],
        "roles": [each["RoleName"] for each in iam.list_roles()["Roles"]],
        "policies": [each["Arn"] for each in iam.list_policies(Scope="Local")["Policies"]],
        "identity providers": [
            each["Arn"] for each in iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        ],
        "log groups": [each["logGroupName"] for each in client("logs").describe_log_groups()["logGroups"]],
        "buckets": [each["Name"] for each in client("s3").list_buckets()["Buckets"]],
        "topics": [each["TopicArn"] for each in client("sns").list_topics()["Topics"]],
        "budgets": [each["BudgetName"] for each in client("budgets").describe_budgets(AccountId=ACCOUNT)["Budgets"]],
        "zones": zones,
        "records": [
            f"{zone} {each['Name']} {each['Type']}"
            for zone in zones
            for each in client("route53").list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
        ],
    }
    return {kind: sorted(ids) for kind, ids in found.items()}


def added(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, int]:
    """How many resources of each kind were added."""
    counts = {kind: len(set(ids) - set(before[kind])) for kind, ids in after.items()}
    return {kind: count for kind, count in counts.items() if count}
