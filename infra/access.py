"""The administrators of the cluster: one access entry for each IAM role or user."""

from collections.abc import Iterator

import pulumi
import pulumi_aws as aws

from infra.refusal import refusal
from settings.aws_facts import AwsFacts
from settings.problem import Problem
from settings.schema import Settings


def administrators(
    component: pulumi.ComponentResource, settings: Settings, facts: AwsFacts, cluster: aws.eks.Cluster
) -> Iterator[pulumi.Resource]:
    """Make these roles and users administrators. The names of the resources contain theirs, not a position."""
    policy = f"arn:{facts.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    for arn in facts.administrators(settings):
        account, principal = arn.split(":", 5)[4:]
        name = f"admin-{principal}" if account == facts.account else f"admin-{principal}-{account}"
        opts = _options(component, settings, arn, "")
        # Only the engine knows whether the entry belongs to the stack, for example after its tags were removed.
        if arn in facts.access.foreign:
            refuse = refusal(f"{name}-exists", has_entry(arn, settings))
            hooks = pulumi.ResourceHookBinding(before_create=[refuse])
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(hooks=hooks))
        entry = aws.eks.AccessEntry(name, cluster_name=cluster.name, principal_arn=arn, opts=opts)
        yield entry
        yield aws.eks.AccessPolicyAssociation(
            f"{name}-policy",
            cluster_name=cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=policy,
            access_scope={"type": "cluster"},
            opts=_options(component, settings, arn, "-policy"),
        )


def has_entry(arn: str, settings: Settings) -> Problem:
    """The access entry belongs to somebody else. A cluster cannot have a second one for the same role or user."""
    why = f"has an access entry in the cluster {settings.cluster_name} that does not belong to this stack"
    where = f"--region {settings.region} --cluster-name {settings.cluster_name}"
    deleting = f"aws eks delete-access-entry {where} --principal-arn {arn}"
    key = "admins" if arn in settings.admins else "deployer"
    return Problem(key, arn, why, f"Run `{deleting}`. The next `pulumi up` creates it again")


def _options(component: pulumi.ComponentResource, settings: Settings, arn: str, suffix: str) -> pulumi.ResourceOptions:
    admins = settings.admins
    # In earlier versions, the name contained the position in `admins`.
    old = [pulumi.Alias(name=f"admin-{admins.index(arn)}{suffix}")] if arn in admins else []
    # In a replacement of the cluster, the engine needs the old entry until the objects in it are deleted.
    return pulumi.ResourceOptions(parent=component, delete_before_replace=False, aliases=old)
