"""The KMS key of the stack, and the policy that says who can use it. The setting kmsKeyArn can name an existing key."""

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, account_decides, allow, document
from infra.refusal import refusal
from settings.aws_facts import AwsFacts
from settings.problem import Problem
from settings.schema import Settings

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
    """The key policy. In a key policy, the resource "*" means the key itself. The key encrypts `log_group`."""
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
    settings: Settings
    facts: AwsFacts


def new_key(args: pulumi.ResourceHookArgs, existing: str) -> Problem | None:
    """EFS and EKS cannot change their keys, and old objects in the bucket need the key that encrypted them."""
    inputs, old = args.old_inputs or {}, (args.old_outputs or {}).get("key_arn")
    # Earlier versions recorded the key, but not the setting.
    if inputs.get("kmsKeyArn", "") == existing or old in (None, existing):
        return None
    why = f"changes the key {old} of the running stack, and its file system and cluster cannot change their key"
    return Problem("kmsKeyArn", existing, why, "Write the former value, or run `pulumi destroy` first")


def show_statements(existing: str, policy: list[Statement]) -> pulumi.ResourceHook:
    """A hook that shows what the policy of an existing key must contain. The AWS provider cannot read the policy."""

    def show(_: pulumi.ResourceHookArgs) -> None:
        pulumi.log.warn(needed_statements(existing, policy))

    return pulumi.ResourceHook("key-statements", show, pulumi.ResourceHookOptions(on_dry_run=True))


def needed_statements(existing: str, policy: list[Statement]) -> str:
    return (
        f'kmsKeyArn: the key policy of "{existing}" must contain these statements, otherwise no worker can start. '
        f"docs/permissions.md explains them.\n{json.dumps(policy, indent=2)}"
    )


class Encryption(pulumi.ComponentResource):
    key_arn: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        settings, facts = args.settings, args.facts
        existing, log_group = settings.kms_key_arn, settings.encrypted_log_group
        policy = key_policy(facts.account, facts.partition, facts.dns_suffix, settings.region, log_group)
        hooks = pulumi.ResourceHookBinding(
            before_create=[show_statements(existing, policy)] if existing else None,
            before_update=[refusal("new-key", lambda hook_args: new_key(hook_args, existing))],
        )
        # The engine compares the setting with that of the last update, and calls a hook if it differs.
        properties = {"kmsKeyArn": existing} if existing else {}
        guarded = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(hooks=hooks))
        super().__init__("paddle:infra:Encryption", name, properties, guarded)
        # Nothing gets the key before the hook has accepted it: the engine sends the URN afterwards.
        self.key_arn = self.urn.apply(lambda _: existing) if existing else self._key(settings, policy)
        self.register_outputs({"key_arn": self.key_arn})

    def _key(self, settings: Settings, policy: list[Statement]) -> pulumi.Output[str]:
        """Create a key. The result is its ARN."""
        key = aws.kms.Key(
            "key",
            description=f"{settings.cluster_name}: Kubernetes secrets, logs, file system, bucket and workers' disks",
            enable_key_rotation=True,
            deletion_window_in_days=30 if settings.retain_data else 7,
            policy=document(*policy),
            opts=pulumi.ResourceOptions(parent=self, protect=settings.retain_data),
        )
        aws.kms.Alias(
            "key-alias",
            name=f"alias/{settings.cluster_name}",
            target_key_id=key.key_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return key.arn
