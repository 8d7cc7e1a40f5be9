"""The namespace, and what each Job's service account may ask of the API server: as little as it needs."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings

ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
READ = ("get", "list", "watch")


class Namespace(pulumi.ComponentResource):
    """`name` is known once the namespace is there."""

    name: pulumi.Output[str]

    def __init__(self, settings: Settings, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:Namespace", "namespace", None, opts)
        self.name = pulumi.Output.from_input(settings.job.namespace)
        if settings.job.namespace != "default":
            namespace = k8s.core.v1.Namespace(
                "namespace",
                metadata={"name": settings.job.namespace},
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.name = namespace.metadata["name"]
        self.register_outputs({"name": self.name})


class ServiceAccount(pulumi.ComponentResource):
    """`ready` is the account with its rights, in the cluster and, by its role, in AWS: a Job waits for that."""

    name: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]

    def __init__(
        self,
        name: str,
        namespace: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
        rules: Sequence[k8s.rbac.v1.PolicyRuleArgsDict] = (),
        aws_role: ServiceAccountRole | None = None,
    ) -> None:
        super().__init__("paddle:workloads:ServiceAccount", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name, "namespace": namespace}
        account = k8s.core.v1.ServiceAccount(
            name,
            metadata={**metadata, "annotations": {ROLE_ANNOTATION: aws_role.arn}} if aws_role else metadata,
            automount_service_account_token=bool(rules),
            opts=child,
        )
        self.name = account.metadata["name"]
        self.ready = [account, *(aws_role.ready if aws_role else ())]
        if rules:
            role = k8s.rbac.v1.Role(name, metadata=metadata, rules=rules, opts=child)
            binding = k8s.rbac.v1.RoleBinding(
                name,
                metadata=metadata,
                role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata["name"]},
                subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": namespace}],
                opts=child,
            )
            self.ready = [*self.ready, binding]
        self.register_outputs({"name": self.name})
