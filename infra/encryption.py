"""The KMS key of the stack, and the policy that says who can use it."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, account_decides, allow, document
from infra.naming import prefix

USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


# Auto Scaling starts the workers. With Spot capacity, EC2 Spot starts them.
LAUNCHING_ROLES = (
    "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot",
)


def key_policy(account: str, partition: str, dns_suffix: str, region: str, log_group: str | None) -> list[Statement]:
    """The key policy. In a key policy, the resource "*" means the key itself."""
    roles = [f"arn:{partition}:iam::{account}:role/aws-service-role/{role}" for role in LAUNCHING_ROLES]
    # Use a condition, not a principal: a new account lacks these roles, and KMS rejects principals that do not exist.
    by_launching_roles = {"StringEquals": {"aws:PrincipalArn": roles}}
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    logs = f"arn:{partition}:logs:{region}:{account}:log-group:{log_group}"
    for_logs = {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": logs}}
    by_logs = allow("Logs", USE, "*", for_logs, {"Service": f"logs.{region}.{dns_suffix}"})
    return [
        account_decides(account, partition),
        *([by_logs] if log_group else []),
        allow("WorkerDisks", USE, "*", by_launching_roles, {"AWS": "*"}),
        allow("WorkerDiskGrants", ("kms:CreateGrant",), "*", {**by_launching_roles, **for_aws}, {"AWS": "*"}),
    ]


@dataclass(frozen=True)
class EncryptionArgs:
    """`log_group` is the log group that the key encrypts, if there is one."""

    cluster_name: str
    account: str
    partition: str
    dns_suffix: str
    region: str
    log_group: str | None
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
            policy=document(*key_policy(args.account, args.partition, args.dns_suffix, args.region, args.log_group)),
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain),
        )
        aws.kms.Alias(
            f"{names}key-alias",
            name=f"alias/{args.cluster_name}",
            target_key_id=self.key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"key_arn": self.key.arn})
