"""An IAM role as the deployer policies require it: under the path of the stack, with the permissions boundary."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.iam import assumed_by
from settings.schema import Settings


def limited_role(name: str, settings: Settings, trust: pulumi.Input[str], parent: pulumi.Resource) -> aws.iam.Role:
    """A role of the stack. Without `permissionsBoundary`, only its policies limit it."""
    return aws.iam.Role(
        name,
        path=settings.role_path,
        permissions_boundary=settings.permissions_boundary or None,
        assume_role_policy=trust,
        # A new path would replace the role, and with it the cluster. A role of an earlier version keeps its path.
        opts=pulumi.ResourceOptions(parent=parent, ignore_changes=["path"]),
    )


def service_role(
    name: str, settings: Settings, service: str, partition: str, policies: Sequence[str], parent: pulumi.Resource
) -> tuple[aws.iam.Role, list[aws.iam.RolePolicyAttachment]]:
    """A role of an AWS service, and its managed policies."""
    role = limited_role(f"{name}-role", settings, assumed_by(service), parent)
    return role, [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}",
            role=role.name,
            policy_arn=f"arn:{partition}:iam::aws:policy/{policy}",
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for policy in policies
    ]
