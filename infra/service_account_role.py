"""An IAM role that one Kubernetes service account, and nobody else, may take on."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.iam import Statement, assumed_by_service_account, document


class ServiceAccountRole(pulumi.ComponentResource):
    """`ready` is the role with its permissions: what acts under it waits for that."""

    arn: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        subject: str,
        opts: pulumi.ResourceOptions,
        statements: Sequence[Statement] = (),
        managed_policy: str = "",
    ) -> None:
        super().__init__("paddle:infra:ServiceAccountRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        trust = assumed_by_service_account(
            cluster.identity_provider.arn, cluster.issuer, f"system:serviceaccount:{subject}"
        )
        role = aws.iam.Role(f"{name}-role", assume_role_policy=trust, opts=child)
        self.arn = role.arn
        self.ready = [
            aws.iam.RolePolicyAttachment(f"{name}-policy", role=role.name, policy_arn=managed_policy, opts=child)
            if managed_policy
            else aws.iam.RolePolicy(f"{name}-policy", role=role.name, policy=document(*statements), opts=child)
        ]
        self.register_outputs({"arn": self.arn})
