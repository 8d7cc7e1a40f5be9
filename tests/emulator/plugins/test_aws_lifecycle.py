"""Every type of the emulated AWS provider: create, read, update, drift, import and delete on a moto server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from sandbox.plugins.aws.props import LOCAL
from sandbox.plugins.aws.table import ROWS
from tests.emulator.plugins import sdk_outputs
from tests.emulator.plugins.emulated_provider import Plugin, Resource
from tests.sandbox.inventory import inventory

Aws = Callable[[str], Any]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJm6pF0kY0Qd2u8t0e3H7lZ7mS0q1w9cWJ2o5c8kqg3b"
CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
WORKER_POLICY = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"


def document(principal: Any = None, action: str = "sts:AssumeRole", resource: str = "", sid: str = "One") -> str:
    statement: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": action}
    statement |= {"Principal": principal} if principal else {}
    statement |= {"Resource": resource} if resource else {}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


TRUST = document({"Service": "ec2.amazonaws.com"})
KEY_POLICY = document({"AWS": "arn:aws:iam::123456789012:root"}, "kms:*", "*")


def warning(percent: int) -> dict[str, Any]:
    return {
        "comparisonOperator": "GREATER_THAN",
        "notificationType": "ACTUAL",
        "threshold": percent,
        "thresholdType": "PERCENTAGE",
        "subscriberEmailAddresses": ["team@example.com"],
    }


def unsubscribe(aws: Aws, it: Resource) -> None:
    """As the recipient does: only a confirmed subscription can be ended."""
    aws("sns").confirm_subscription(TopicArn=it.state["topic"], Token=it.id)
    aws("sns").unsubscribe(SubscriptionArn=it.id)


@dataclass
class Surroundings:
    """The resources that a tested one needs: created at first use, deleted in reverse order at the end."""

    plugin: Plugin
    aws: Aws
    created: dict[str, Resource] = field(default_factory=dict)

    def get(self, name: str, kind: str, /, **inputs: Any) -> Resource:
        if name not in self.created:
            self.created[name] = self.plugin.create(kind, name, inputs)
        return self.created[name]

    def delete_all(self) -> None:
        for resource in reversed(self.created.values()):
            self.plugin.delete(resource)
        for user in self.aws("iam").list_users()["Users"]:
            self.aws("iam").delete_user(UserName=user["UserName"])

    @property
    def user(self) -> str:
        """An IAM user. The provider does not have this type."""
        return str(self.aws("iam").create_user(UserName="deployer")["User"]["UserName"])

    @property
    def vpc(self) -> str:
        return self.get("vpc", "aws:ec2/vpc:Vpc", cidrBlock="10.0.0.0/16").id

    @property
    def subnet(self) -> str:
        inputs = {"vpcId": self.vpc, "cidrBlock": "10.0.1.0/24", "availabilityZone": "eu-west-1a"}
        return self.get("subnet", "aws:ec2/subnet:Subnet", **inputs).id

    @property
    def other_subnet(self) -> str:
        inputs = {"vpcId": self.vpc, "cidrBlock": "10.0.2.0/24", "availabilityZone": "eu-west-1b"}
        return self.get("other", "aws:ec2/subnet:Subnet", **inputs).id

    @property
    def gateway(self) -> str:
        return self.get("gateway", "aws:ec2/internetGateway:InternetGateway", vpcId=self.vpc).id

    @property
    def table(self) -> str:
        return self.get("table", "aws:ec2/routeTable:RouteTable", vpcId=self.vpc).id

    @property
    def other_table(self) -> str:
        return self.get("other-table", "aws:ec2/routeTable:RouteTable", vpcId=self.vpc).id

    @property
    def group(self) -> str:
        return self.get("group", "aws:ec2/securityGroup:SecurityGroup", vpcId=self.vpc).id

    @property
    def address(self) -> str:
        return self.get("address", "aws:ec2/eip:Eip", domain="vpc").id

    @property
    def template(self) -> Resource:
        return self.get("template", "aws:ec2/launchTemplate:LaunchTemplate", keyName="mine")

    @property
    def key(self) -> str:
        return str(self.get("key", "aws:kms/key:Key", policy=KEY_POLICY).state["arn"])

    @property
    def bucket(self) -> str:
        return self.get("Bucket", "aws:s3/bucket:Bucket", forceDestroy=True).id

    @property
    def topic(self) -> str:
        return self.get("topic", "aws:sns/topic:Topic").id

    @property
    def role(self) -> Resource:
        return self.get("role", "aws:iam/role:Role", assumeRolePolicy=TRUST)

    @property
    def file_system(self) -> str:
        return self.get("files", "aws:efs/fileSystem:FileSystem", encrypted=True).id

    @property
    def zone(self) -> str:
        return self.get("zone", "aws:route53/zone:Zone", name="paddle", vpcs=[{"vpcId": self.vpc}]).id

    @property
    def cluster(self) -> str:
        network = {"subnetIds": [self.subnet, self.other_subnet]}
        access = {"authenticationMode": "API"}
        inputs = {"roleArn": self.role.state["arn"], "vpcConfig": network, "accessConfig": access}
        return self.get("cluster", "aws:eks/cluster:Cluster", **inputs).id


@dataclass(frozen=True)
class Case:
    """One type: the first inputs, a change in place, and a change made outside Pulumi."""

    inputs: Callable[[Surroundings], dict[str, Any]]
    changed: Callable[[Surroundings], dict[str, Any]] | None
    drift: Callable[[Aws, Resource], Any]
    # The property that shows the drift; None if the resource is deleted.
    seen: str | None


def retag(aws: Aws, it: Resource) -> Any:
    return aws("ec2").create_tags(Resources=[it.id], Tags=[{"Key": "by", "Value": "hand"}])


def tags(inputs: Callable[[Surroundings], dict[str, Any]], drift: Callable[[Aws, Resource], Any] = retag) -> Case:
    """A type whose only changeable property is its tags."""
    return Case(inputs, lambda w: {"tags": {"Name": "new"}}, drift, "tags")


def rule(direction: str) -> Case:
    return Case(
        lambda w: {
            "securityGroupId": w.group,
            "ipProtocol": "tcp",
            "fromPort": 22,
            "toPort": 22,
            "cidrIpv4": "10.0.0.0/8",
        },
        lambda w: {"cidrIpv4": "10.0.0.0/16", "toPort": 23},
        lambda aws, it: getattr(aws("ec2"), f"revoke_security_group_{direction}")(
            GroupId=it.state["securityGroupId"], SecurityGroupRuleIds=[it.id]
        ),
        None,
    )


def put_route(aws: Aws, it: Resource) -> Any:
    where = {"RouteTableId": it.state["routeTableId"], "DestinationCidrBlock": it.state["destinationCidrBlock"]}
    return aws("ec2").delete_route(**where)


def new_version(aws: Aws, it: Resource) -> Any:
    return aws("ec2").create_launch_template_version(LaunchTemplateId=it.id, LaunchTemplateData={"KeyName": "other"})


def change_record(aws: Aws, it: Resource) -> Any:
    record = {"Name": "efs.paddle", "Type": "CNAME", "TTL": 5, "ResourceRecords": [{"Value": "elsewhere"}]}
    changes = {"Changes": [{"Action": "UPSERT", "ResourceRecordSet": record}]}
    return aws("route53").change_resource_record_sets(HostedZoneId=it.state["zoneId"], ChangeBatch=changes)


CASES: dict[str, Case] = {
    "aws:ec2/vpc:Vpc": Case(
        lambda w: {"cidrBlock": "10.0.0.0/16", "enableDnsHostnames": True, "tags": {"Name": "one"}},
        lambda w: {"enableDnsHostnames": False, "enableDnsSupport": False, "tags": {"Name": "two"}},
        lambda aws, it: aws("ec2").modify_vpc_attribute(VpcId=it.id, EnableDnsSupport={"Value": True}),
        "enableDnsSupport",
    ),
    "aws:ec2/internetGateway:InternetGateway": Case(
        lambda w: {"vpcId": w.vpc},
        lambda w: {"tags": {"Name": "new"}},
        lambda aws, it: aws("ec2").detach_internet_gateway(InternetGatewayId=it.id, VpcId=it.state["vpcId"]),
        "vpcId",
    ),
    "aws:ec2/subnet:Subnet": Case(
        lambda w: {"vpcId": w.vpc, "cidrBlock": "10.0.9.0/24", "availabilityZone": "eu-west-1c"},
        lambda w: {"mapPublicIpOnLaunch": True, "tags": {"Name": "new"}},
        lambda aws, it: aws("ec2").modify_subnet_attribute(SubnetId=it.id, MapPublicIpOnLaunch={"Value": False}),
        "mapPublicIpOnLaunch",
    ),
    "aws:ec2/routeTable:RouteTable": tags(lambda w: {"vpcId": w.vpc}),
    "aws:ec2/route:Route": Case(
        lambda w: {"routeTableId": w.table, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": w.gateway},
        None,
        put_route,
        None,
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Case(
        lambda w: {"routeTableId": w.table, "subnetId": w.subnet},
        lambda w: {"routeTableId": w.other_table},
        lambda aws, it: [
            aws("ec2").disassociate_route_table(AssociationId=each["RouteTableAssociationId"])
            for table in aws("ec2").describe_route_tables(RouteTableIds=[it.state["routeTableId"]])["RouteTables"]
            for each in table["Associations"]
        ],
        None,
    ),
    "aws:ec2/eip:Eip": tags(lambda w: {"domain": "vpc"}),
    "aws:ec2/natGateway:NatGateway": tags(lambda w: {"subnetId": w.subnet, "allocationId": w.address}),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Case(
        lambda w: {"vpcId": w.vpc, "serviceName": "com.amazonaws.eu-west-1.s3", "routeTableIds": [w.table]},
        lambda w: {"routeTableIds": [w.table, w.other_table]},
        lambda aws, it: aws("ec2").modify_vpc_endpoint(
            VpcEndpointId=it.id, RemoveRouteTableIds=[it.state["routeTableIds"][0]]
        ),
        "routeTableIds",
    ),
    "aws:ec2/securityGroup:SecurityGroup": tags(lambda w: {"vpcId": w.vpc, "description": "workers"}),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": rule("ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": rule("egress"),
    "aws:ec2/launchTemplate:LaunchTemplate": Case(
        lambda w: {
            "updateDefaultVersion": True,
            "vpcSecurityGroupIds": [w.group],
            "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
            "blockDeviceMappings": [
                {"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp3", "volumeSize": 50, "encrypted": "true"}}
            ],
            "tagSpecifications": [{"resourceType": "instance", "tags": {"Name": "worker"}}],
        },
        lambda w: {"keyName": "mine", "tagSpecifications": [{"resourceType": "volume", "tags": {"Name": "disk"}}]},
        new_version,
        "keyName",
    ),
    "aws:ec2/keyPair:KeyPair": tags(
        lambda w: {"publicKey": KEY},
        lambda aws, it: aws("ec2").create_tags(
            Resources=[it.state["keyPairId"]], Tags=[{"Key": "by", "Value": "hand"}]
        ),
    ),
    "aws:kms/key:Key": Case(
        lambda w: {"policy": KEY_POLICY, "enableKeyRotation": True, "deletionWindowInDays": 7},
        lambda w: {
            "policy": document({"AWS": "arn:aws:iam::123456789012:root"}, "kms:*", "*", "Two"),
            "description": "new",
            "enableKeyRotation": False,
            "tags": {"Name": "new"},
        },
        lambda aws, it: aws("kms").enable_key_rotation(KeyId=it.id),
        "enableKeyRotation",
    ),
    "aws:kms/alias:Alias": Case(
        lambda w: {"name": "alias/paddle", "targetKeyId": w.key},
        lambda w: {"targetKeyId": w.get("key-2", "aws:kms/key:Key").id},
        lambda aws, it: aws("kms").delete_alias(AliasName=it.id),
        None,
    ),
    "aws:s3/bucket:Bucket": Case(
        lambda w: {"forceDestroy": True},
        lambda w: {"tags": {"Name": "new"}},
        lambda aws, it: aws("s3").delete_bucket_tagging(Bucket=it.id),
        "tags",
    ),
    "aws:s3/bucketVersioning:BucketVersioning": Case(
        lambda w: {"bucket": w.bucket, "versioningConfiguration": {"status": "Enabled"}},
        lambda w: {"versioningConfiguration": {"status": "Suspended"}},
        lambda aws, it: aws("s3").put_bucket_versioning(Bucket=it.id, VersioningConfiguration={"Status": "Enabled"}),
        "versioningConfiguration",
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": Case(
        lambda w: {"bucket": w.bucket, "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]},
        lambda w: {
            "rules": [
                {
                    "applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": w.key},
                    "bucketKeyEnabled": True,
                }
            ]
        },
        lambda aws, it: aws("s3").put_bucket_encryption(
            Bucket=it.id,
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
            },
        ),
        "rules",
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": Case(
        lambda w: {"bucket": w.bucket, "blockPublicAcls": True},
        lambda w: {"blockPublicPolicy": True},
        lambda aws, it: aws("s3").delete_public_access_block(Bucket=it.id),
        None,
    ),
    "aws:s3/bucketPolicy:BucketPolicy": Case(
        lambda w: {"bucket": w.bucket, "policy": document("*", "s3:GetObject", f"arn:aws:s3:::{w.bucket}/*")},
        lambda w: {"policy": document("*", "s3:PutObject", f"arn:aws:s3:::{w.bucket}/*")},
        lambda aws, it: aws("s3").put_bucket_policy(
            Bucket=it.id, Policy=document("*", "s3:*", f"arn:aws:s3:::{it.id}/*")
        ),
        "policy",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": Case(
        lambda w: {
            "bucket": w.bucket,
            "rules": [
                {
                    "id": "tidy",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "noncurrentVersionExpiration": {"noncurrentDays": 30},
                    "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7},
                }
            ],
        },
        lambda w: {
            "rules": [{"id": "tidy", "status": "Disabled", "noncurrentVersionExpiration": {"noncurrentDays": 9}}]
        },
        lambda aws, it: aws("s3").delete_bucket_lifecycle(Bucket=it.id),
        None,
    ),
    "aws:eks/cluster:Cluster": Case(
        lambda w: {
            "name": "c",
            "version": "1.34",
            "roleArn": w.role.state["arn"],
            "vpcConfig": {
                "subnetIds": [w.subnet, w.other_subnet],
                "securityGroupIds": [w.group],
                "publicAccessCidrs": ["10.0.0.0/8"],
            },
            "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
            "enabledClusterLogTypes": ["audit", "api"],
        },
        lambda w: {
            "version": "1.35",
            "vpcConfig": {
                "subnetIds": [w.other_subnet, w.subnet],
                "securityGroupIds": [w.group],
                "endpointPrivateAccess": True,
                "publicAccessCidrs": ["10.0.0.0/16"],
            },
            "accessConfig": {"authenticationMode": "API"},
            "encryptionConfig": {"provider": {"keyArn": w.key}, "resources": ["secrets"]},
            "enabledClusterLogTypes": ["scheduler"],
            "tags": {"Name": "new"},
        },
        lambda aws, it: aws("eks").update_cluster_config(
            name=it.id, resourcesVpcConfig={"publicAccessCidrs": ["0.0.0.0/0"]}
        ),
        "vpcConfig",
    ),
    "aws:eks/nodeGroup:NodeGroup": Case(
        lambda w: {
            "clusterName": w.cluster,
            "nodeRoleArn": w.role.state["arn"],
            "subnetIds": [w.subnet, w.other_subnet],
            "instanceTypes": ["m6i.large"],
            "capacityType": "SPOT",
            "scalingConfig": {"desiredSize": 3, "minSize": 3, "maxSize": 3},
            "updateConfig": {"maxUnavailable": 1},
            "launchTemplate": {"id": w.template.id, "version": 1},
        },
        lambda w: {
            "scalingConfig": {"desiredSize": 4, "minSize": 4, "maxSize": 4},
            "updateConfig": {"maxUnavailable": 2},
            "tags": {"Name": "new"},
        },
        lambda aws, it: aws("eks").update_nodegroup_config(
            clusterName=it.state["clusterName"],
            nodegroupName=it.state["nodeGroupName"],
            scalingConfig={"desiredSize": 1, "minSize": 1, "maxSize": 1},
        ),
        "scalingConfig",
    ),
    "aws:eks/addon:Addon": Case(
        lambda w: {
            "clusterName": w.cluster,
            "addonName": "vpc-cni",
            "resolveConflictsOnCreate": "OVERWRITE",
        },
        lambda w: {"configurationValues": "{}", "serviceAccountRoleArn": w.role.state["arn"]},
        lambda aws, it: aws("eks").delete_addon(clusterName=it.state["clusterName"], addonName=it.state["addonName"]),
        None,
    ),
    "aws:eks/accessEntry:AccessEntry": Case(
        lambda w: {"clusterName": w.cluster, "principalArn": w.role.state["arn"]},
        lambda w: {"tags": {"Name": "new"}},
        lambda aws, it: aws("eks").delete_access_entry(
            clusterName=it.state["clusterName"], principalArn=it.state["principalArn"]
        ),
        None,
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Case(
        lambda w: {
            "clusterName": w.cluster,
            "principalArn": w.get(
                "entry",
                "aws:eks/accessEntry:AccessEntry",
                clusterName=w.cluster,
                principalArn=w.role.state["arn"],
            ).state["principalArn"],
            "policyArn": CLUSTER_ADMIN,
            "accessScope": {"type": "cluster"},
        },
        None,
        lambda aws, it: aws("eks").disassociate_access_policy(
            clusterName=it.state["clusterName"], principalArn=it.state["principalArn"], policyArn=CLUSTER_ADMIN
        ),
        None,
    ),
    "aws:iam/role:Role": Case(
        lambda w: {"assumeRolePolicy": TRUST},
        lambda w: {
            "assumeRolePolicy": document({"Service": "eks.amazonaws.com"}),
            "description": "new",
            "maxSessionDuration": 7200,
            "permissionsBoundary": WORKER_POLICY,
            "tags": {"Name": "new"},
        },
        lambda aws, it: aws("iam").update_assume_role_policy(RoleName=it.id, PolicyDocument=TRUST),
        "assumeRolePolicy",
    ),
    "aws:iam/rolePolicy:RolePolicy": Case(
        lambda w: {"role": w.role.id, "policy": document(action="s3:GetObject", resource="*")},
        lambda w: {"policy": document(action="s3:PutObject", resource="*")},
        lambda aws, it: aws("iam").delete_role_policy(RoleName=it.state["role"], PolicyName=it.state["name"]),
        None,
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Case(
        lambda w: {"role": w.role.id, "policyArn": WORKER_POLICY},
        None,
        lambda aws, it: aws("iam").detach_role_policy(RoleName=it.state["role"], PolicyArn=WORKER_POLICY),
        None,
    ),
    "aws:iam/userPolicyAttachment:UserPolicyAttachment": Case(
        lambda w: {"user": w.user, "policyArn": WORKER_POLICY},
        None,
        lambda aws, it: aws("iam").detach_user_policy(UserName=it.state["user"], PolicyArn=WORKER_POLICY),
        None,
    ),
    "aws:iam/policy:Policy": Case(
        lambda w: {"policy": document(action="s3:GetObject", resource="*")},
        lambda w: {"policy": document(action="s3:PutObject", resource="*"), "tags": {"Name": "new"}},
        lambda aws, it: aws("iam").create_policy_version(
            PolicyArn=it.id, PolicyDocument=document(action="s3:ListBucket", resource="*"), SetAsDefault=True
        ),
        "policy",
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": Case(
        lambda w: {"url": "https://oidc.eks.eu-west-1.amazonaws.com/id/A", "clientIdLists": ["sts.amazonaws.com"]},
        lambda w: {"clientIdLists": ["other"], "tags": {"Name": "new"}},
        lambda aws, it: aws("iam").add_client_id_to_open_id_connect_provider(
            OpenIDConnectProviderArn=it.id, ClientID="third"
        ),
        "clientIdLists",
    ),
    "aws:cloudwatch/logGroup:LogGroup": Case(
        lambda w: {"name": "/aws/eks/c/cluster", "retentionInDays": 30},
        lambda w: {"retentionInDays": 0, "tags": {"Name": "new"}},
        lambda aws, it: aws("logs").put_retention_policy(logGroupName=it.id, retentionInDays=7),
        "retentionInDays",
    ),
    "aws:efs/fileSystem:FileSystem": Case(
        lambda w: {"encrypted": True, "kmsKeyId": w.key, "throughputMode": "elastic", "tags": {"Name": "one"}},
        lambda w: {"tags": {"Name": "two"}},
        lambda aws, it: aws("efs").tag_resource(ResourceId=it.id, Tags=[{"Key": "by", "Value": "hand"}]),
        "tags",
    ),
    "aws:efs/mountTarget:MountTarget": Case(
        lambda w: {"fileSystemId": w.file_system, "subnetId": w.subnet, "securityGroups": [w.group]},
        None,
        lambda aws, it: aws("efs").delete_mount_target(MountTargetId=it.id),
        None,
    ),
    "aws:efs/accessPoint:AccessPoint": Case(
        lambda w: {
            "fileSystemId": w.file_system,
            "posixUser": {"uid": 1000, "gid": 1000},
            "rootDirectory": {
                "path": "/paddle",
                "creationInfo": {"ownerUid": 1000, "ownerGid": 1000, "permissions": "0755"},
            },
        },
        lambda w: {"tags": {"Name": "new"}},
        lambda aws, it: aws("efs").delete_access_point(AccessPointId=it.id),
        None,
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": Case(
        lambda w: {
            "fileSystemId": w.file_system,
            "policy": document({"AWS": "*"}, "elasticfilesystem:ClientMount", "*"),
        },
        lambda w: {"policy": document({"AWS": "*"}, "elasticfilesystem:ClientWrite", "*")},
        lambda aws, it: aws("efs").delete_file_system_policy(FileSystemId=it.id),
        None,
    ),
    "aws:efs/backupPolicy:BackupPolicy": Case(
        lambda w: {"fileSystemId": w.file_system, "backupPolicy": {"status": "ENABLED"}},
        lambda w: {"backupPolicy": {"status": "DISABLED"}},
        lambda aws, it: aws("efs").put_backup_policy(FileSystemId=it.id, BackupPolicy={"Status": "ENABLED"}),
        "backupPolicy",
    ),
    "aws:route53/zone:Zone": Case(
        lambda w: {"name": "paddle", "comment": "names", "vpcs": [{"vpcId": w.vpc}]},
        lambda w: {"comment": "new", "tags": {"Name": "new"}},
        lambda aws, it: aws("route53").update_hosted_zone_comment(Id=it.id, Comment="by hand"),
        "comment",
    ),
    "aws:route53/record:Record": Case(
        lambda w: {
            "zoneId": w.zone,
            "name": "efs.paddle",
            "type": "CNAME",
            "ttl": 300,
            "records": ["fs.amazonaws.com"],
        },
        lambda w: {"ttl": 60, "records": ["other.amazonaws.com"]},
        change_record,
        "records",
    ),
    "aws:sns/topic:Topic": Case(
        lambda w: {"name": "messages", "kmsMasterKeyId": w.key},
        lambda w: {"kmsMasterKeyId": "alias/other", "tags": {"Name": "new"}},
        lambda aws, it: aws("sns").set_topic_attributes(
            TopicArn=it.id, AttributeName="KmsMasterKeyId", AttributeValue="alias/third"
        ),
        "kmsMasterKeyId",
    ),
    "aws:sns/topicSubscription:TopicSubscription": Case(
        lambda w: {"topic": w.topic, "protocol": "email", "endpoint": "team@example.com"},
        None,
        unsubscribe,
        None,
    ),
    "aws:budgets/budget:Budget": Case(
        lambda w: {
            "name": "project-dev",
            "accountId": "123456789012",
            "budgetType": "COST",
            "timeUnit": "MONTHLY",
            "limitAmount": "400",
            "limitUnit": "USD",
            "costFilters": [{"name": "TagKeyValue", "values": ["user:stack$dev"]}],
            "notifications": [warning(80), warning(100)],
        },
        lambda w: {"limitAmount": "500", "notifications": [warning(90)], "tags": {"Name": "new"}},
        lambda aws, it: aws("budgets").delete_budget(AccountId="123456789012", BudgetName="project-dev"),
        None,
    ),
}

every_type = pytest.mark.parametrize("kind", CASES)


@pytest.fixture(scope="module")
def world(plugin: Plugin, aws: Aws) -> Iterator[Surroundings]:
    created = Surroundings(plugin, aws)
    yield created
    created.delete_all()


def test_every_type_has_a_case() -> None:
    assert CASES.keys() == ROWS.keys()


def top(paths: Any) -> set[str]:
    return {path.split(".")[0].split("[")[0] for path in paths}


def check_outputs(it: Resource) -> None:
    """Each output has the type that the SDK declares, and no input is missing."""
    declared, state = sdk_outputs.outputs(it.type), dict(it.state)
    assert state.pop("id") == it.id
    wrong = [each for name in state for each in sdk_outputs.mismatches(declared[name], state[name], name)]
    assert wrong == []
    # Only an address in use has this output.
    assert set(ROWS[it.type].outputs) - {"associationId"} <= state.keys()


@every_type
def test_lifecycle(kind: str, plugin: Plugin, world: Surroundings, aws: Aws) -> None:
    """Create, read, change, detect and repair drift, import, delete."""
    case = CASES[kind]
    inputs = case.inputs(world)
    change = case.changed(world) if case.changed else {}
    before = inventory(aws)
    it = plugin.create(kind, "it", inputs)

    check_outputs(it)
    assert plugin.changes(it, inputs) == {}
    assert plugin.read(it) == it

    if change:
        inputs = {**inputs, **change}
        planned = plugin.changes(it, inputs)
        new = {name for name in change if it.state.get(name) != change[name]}
        assert top(planned) - {"tagsAll"} == new | set(ROWS[kind].renewed)
        assert not any(each.endswith("REPLACE") for each in planned.values())
        it = plugin.update(it, inputs)
        assert plugin.changes(it, inputs) == {}
        assert plugin.read(it) == it

    case.drift(aws, it)
    drifted = plugin.read(it)
    if case.seen is None:
        assert drifted is None
        it = plugin.create(kind, "it", inputs)
    else:
        assert drifted
        assert drifted.state != it.state
        assert case.seen in top(plugin.changes(drifted, inputs))
        it = plugin.update(drifted, inputs)
    assert plugin.changes(it, inputs) == {}

    imported = plugin.imported(kind, "it", import_id(it))
    assert imported
    assert imported.id == it.id
    # AWS does not store the provider's own options.
    local = {name for name, prop in ROWS[kind].inputs.items() if LOCAL in prop.how}
    assert top(plugin.changes(imported, inputs)) <= local | set(ROWS[kind].renewed)

    plugin.delete(it)
    if ROWS[kind].vanishes:
        assert plugin.read(it) is None
    plugin.delete(it)  # a second deletion is not an error
    assert inventory(aws) == before


def import_id(it: Resource) -> str:
    """The ID for an import; two types need another ID than their own."""
    if it.type == "aws:ec2/route:Route":
        return f"{it.state['routeTableId']}_{it.state['destinationCidrBlock']}"
    if it.type == "aws:ec2/routeTableAssociation:RouteTableAssociation":
        return f"{it.state['subnetId']}/{it.state['routeTableId']}"
    return it.id


def test_the_key_of_a_cluster_cannot_change(plugin: Plugin, world: Surroundings, aws: Aws) -> None:
    """The official provider ignores another key. This provider compares the result with the request, and fails."""

    def encrypted(key: str) -> dict[str, Any]:
        given = CASES["aws:eks/cluster:Cluster"].inputs(world)
        return {**given, "encryptionConfig": {"provider": {"keyArn": key}, "resources": ["secrets"]}}

    other = aws("kms").create_key()["KeyMetadata"]["Arn"]
    it = plugin.create("aws:eks/cluster:Cluster", "it", encrypted(world.key))
    with pytest.raises(grpc.RpcError, match="encryptionConfig"):
        plugin.update(it, encrypted(other))
    (found,) = aws("eks").describe_cluster(name=it.id)["cluster"]["encryptionConfig"]
    assert found["provider"]["keyArn"] == world.key
    plugin.delete(it)
    aws("kms").schedule_key_deletion(KeyId=other.rpartition("/")[2])
