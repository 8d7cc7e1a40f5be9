"""The KMS key of the stack, and the policy that says who can use it. The setting kmsKeyArn can name an existing key."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, account_decides, allow, document
from infra.naming import prefix
from settings.problem import Problem

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
    """`existing` is the ARN of a key that the stack uses instead of its own. `log_group` is encrypted with the key."""

    existing: str
    cluster_name: str
    account: str
    partition: str
    dns_suffix: str
    region: str
    log_group: str | None
    retain: bool


def refuse_new_key(name: str, existing: str, key_of: Callable[[Any], object]) -> pulumi.ResourceHook:
    """A hook that stops a preview or an update before it changes the key of a running stack.

    `key_of` finds the key in the inputs of a resource. It finds None for a key that is not created yet.
    """

    def refuse(args: pulumi.ResourceHookArgs) -> None:
        reject_new_key(existing, key_of(args.old_inputs), key_of(args.new_inputs))

    return pulumi.ResourceHook(f"{name}-new-key", refuse, pulumi.ResourceHookOptions(on_dry_run=True))


def reject_new_key(existing: str, old: object, new: object) -> None:
    """EFS and EKS cannot change their keys, and old objects in the bucket need the key that encrypted them."""
    if old != new:
        why = f"changes the key {old} of the running stack, and its file system and cluster cannot change their key"
        instead = "Write the former value, or run `pulumi destroy` first"
        raise RuntimeError(str(Problem("kmsKeyArn", existing, why, instead)))


def show_statements(name: str, existing: str, policy: list[Statement]) -> pulumi.ResourceHook:
    """A hook that shows what the policy of an existing key must contain. The AWS provider cannot read the policy."""

    def show(_: pulumi.ResourceHookArgs) -> None:
        pulumi.log.warn(needed_statements(existing, policy))

    return pulumi.ResourceHook(f"{name}-statements", show, pulumi.ResourceHookOptions(on_dry_run=True))


def needed_statements(existing: str, policy: list[Statement]) -> str:
    return (
        f'kmsKeyArn: the key policy of "{existing}" must contain these statements, otherwise no worker can start. '
        f"docs/permissions.md explains them.\n{json.dumps(policy, indent=2)}"
    )


class Encryption(pulumi.ComponentResource):
    """`before_use` are the hooks of the cluster, which run before it is created."""

    key_arn: pulumi.Output[str]
    existing: str
    before_use: list[pulumi.ResourceHook]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Encryption", name, None, opts)
        names = prefix(name, "encryption")
        self.existing, self.before_use = args.existing, []
        policy = key_policy(args.account, args.partition, args.dns_suffix, args.region, args.log_group)
        if args.existing:
            self.key_arn = pulumi.Output.from_input(args.existing)
            self.before_use = [show_statements(f"{names}key", args.existing, policy)]
        else:
            self.key_arn = self._key(names, args, policy)
        self.register_outputs({"key_arn": self.key_arn})

    def _key(self, names: str, args: EncryptionArgs, policy: list[Statement]) -> pulumi.Output[str]:
        """Create a key. The result is its ARN."""
        key = aws.kms.Key(
            f"{names}key",
            description=f"{args.cluster_name}: Kubernetes secrets, logs, file system, bucket and workers' disks",
            enable_key_rotation=True,
            deletion_window_in_days=30 if args.retain else 7,
            policy=document(*policy),
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain),
        )
        aws.kms.Alias(
            f"{names}key-alias",
            name=f"alias/{args.cluster_name}",
            target_key_id=key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return key.arn
