"""An IAM role that only one Kubernetes service account can assume."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.iam import Statement, assumed_by_service_account, document
from infra.limited_role import limited_role
from settings.schema import Settings


@dataclass(frozen=True)
class ServiceAccountRoleArgs:
    """The account is written as namespace:name. Permissions are either statements or one managed policy."""

    settings: Settings
    cluster: Cluster
    account: str
    statements: Sequence[Statement] = ()
    managed_policy: str = ""


class ServiceAccountRole(pulumi.ComponentResource):
    """`ready` lists the permissions of the role. Resources that use the role must depend on them."""

    arn: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: ServiceAccountRoleArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:ServiceAccountRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        cluster = args.cluster
        trust = assumed_by_service_account(
            cluster.identity_provider.arn, cluster.issuer, f"system:serviceaccount:{args.account}"
        )
        role = limited_role(f"{name}-role", args.settings, trust, self)
        self.arn = role.arn
        self.ready = [
            aws.iam.RolePolicyAttachment(f"{name}-policy", role=role.name, policy_arn=args.managed_policy, opts=child)
            if args.managed_policy
            else aws.iam.RolePolicy(f"{name}-policy", role=role.name, policy=document(*args.statements), opts=child)
        ]
        self.register_outputs({"arn": self.arn})
