"""The KMS key of the stack, and the policy that says who can use it."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, allow, document
from infra.naming import prefix

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
    """The key policy. In a key policy, the resource "*" means the key itself."""
    root = f"arn:{partition}:iam::{account}:root"
    scaling = (
        f"arn:{partition}:iam::{account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    )
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    # A condition instead of a principal: a new account has no such role, and KMS rejects principals that do not exist.
    by_scaling = {"StringEquals": {"aws:PrincipalArn": scaling}}

    logs = f"arn:{partition}:logs:{region}:{account}:log-group:{log_group}"
    for_logs = {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": logs}}

    def through(service: str) -> dict[str, dict[str, str]]:
        endpoint = f"{service}.{region}.amazonaws.com"
        return {"StringEquals": {"kms:CallerAccount": account, "kms:ViaService": endpoint}}

    return [
        allow("AccountAdmins", ADMINISTER, "*", principal={"AWS": root}),
        # EKS needs only a grant. It creates the grant with the identity that creates the cluster.
        allow("Eks", ("kms:CreateGrant",), "*", for_aws, {"AWS": root}),
        allow("Efs", (*USE, "kms:CreateGrant"), "*", through("elasticfilesystem"), {"AWS": root}),
        allow("S3", USE, "*", through("s3"), {"AWS": root}),
        allow("Logs", USE, "*", for_logs, {"Service": f"logs.{region}.amazonaws.com"}),
        allow("WorkerDisks", USE, "*", by_scaling, {"AWS": "*"}),
        allow("WorkerDiskGrants", ("kms:CreateGrant",), "*", {**by_scaling, **for_aws}, {"AWS": "*"}),
    ]


@dataclass(frozen=True)
class EncryptionArgs:
    cluster_name: str
    account: str
    partition: str
    region: str
    log_group: str
    retain: bool


class Encryption(pulumi.ComponentResource):
    key: aws.kms.Key

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Encryption", name, None, opts)
        names = prefix(name, "encryption")
        self.key = aws.kms.Key(
            f"{names}key",
            description=f"{args.cluster_name}: Kubernetes secrets, logs, file system, bucket and workers' disks",
            enable_key_rotation=True,
            deletion_window_in_days=30 if args.retain else 7,
            policy=document(*key_policy(args.account, args.partition, args.region, args.log_group)),
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain),
        )
        aws.kms.Alias(
            f"{names}key-alias",
            name=f"alias/{args.cluster_name}",
            target_key_id=self.key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"key_arn": self.key.arn})
