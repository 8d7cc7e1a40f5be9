"""The one KMS key, and exactly who may use it."""

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, allow, document
from settings.region import RegionSupport
from settings.schema import Settings

ADMINISTER = (
    "kms:CancelKeyDeletion",
    "kms:CreateAlias",
    "kms:DeleteAlias",
    "kms:DescribeKey",
    "kms:DisableKey",
    "kms:DisableKeyRotation",
    "kms:EnableKey",
    "kms:EnableKeyRotation",
    "kms:GetKeyPolicy",
    "kms:GetKeyRotationStatus",
    "kms:ListGrants",
    "kms:ListKeyPolicies",
    "kms:ListResourceTags",
    "kms:PutKeyPolicy",
    "kms:RevokeGrant",
    "kms:RotateKeyOnDemand",
    "kms:ScheduleKeyDeletion",
    "kms:TagResource",
    "kms:UntagResource",
    "kms:UpdateAlias",
    "kms:UpdateKeyDescription",
)
USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def key_policy(account: str, partition: str, region: str, log_group: str) -> list[Statement]:
    """Who may do what with the key. In a key policy the resource "*" is the key itself: AWS has no other."""
    root = f"arn:{partition}:iam::{account}:root"
    scaling = (
        f"arn:{partition}:iam::{account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    )
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    # By condition: KMS refuses a principal that does not exist yet, and a new account has no such role.
    by_scaling = {"StringEquals": {"aws:PrincipalArn": scaling}}

    logs = f"arn:{partition}:logs:{region}:{account}:log-group:{log_group}"
    for_logs = {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": logs}}

    def through(service: str) -> dict[str, dict[str, str]]:
        endpoint = f"{service}.{region}.amazonaws.com"
        return {"StringEquals": {"kms:CallerAccount": account, "kms:ViaService": endpoint}}

    return [
        allow("AccountAdmins", ADMINISTER, "*", principal={"AWS": root}),
        # EKS needs no more than a grant, which it makes in the name of whoever creates the cluster.
        allow("Eks", ("kms:CreateGrant",), "*", for_aws, {"AWS": root}),
        allow("Efs", (*USE, "kms:CreateGrant"), "*", through("elasticfilesystem"), {"AWS": root}),
        allow("S3", USE, "*", through("s3"), {"AWS": root}),
        allow("Logs", USE, "*", for_logs, {"Service": f"logs.{region}.amazonaws.com"}),
        allow("WorkerDisks", USE, "*", by_scaling, {"AWS": "*"}),
        allow("WorkerDiskGrants", ("kms:CreateGrant",), "*", {**by_scaling, **for_aws}, {"AWS": "*"}),
    ]


class Encryption(pulumi.ComponentResource):
    key: aws.kms.Key

    def __init__(self, settings: Settings, region_support: RegionSupport, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Encryption", "encryption", None, opts)
        self.key = aws.kms.Key(
            "key",
            description=f"{settings.cluster_name}: Kubernetes secrets, logs, file system, bucket and workers' disks",
            enable_key_rotation=True,
            deletion_window_in_days=30 if settings.retain_data else 7,
            policy=document(
                *key_policy(region_support.account, region_support.partition, settings.region, settings.log_group),
            ),
            opts=pulumi.ResourceOptions(parent=self, protect=settings.retain_data),
        )
        aws.kms.Alias(
            "key-alias",
            name=f"alias/{settings.cluster_name}",
            target_key_id=self.key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"key_arn": self.key.arn})
