"""The service account of a Job, with the fewest permissions that work."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from workloads.job import object_options

READ = ("get", "list", "watch")


@dataclass(frozen=True)
class ServiceAccountArgs:
    """With `automount`, every container of the pods gets a token for the API server."""

    namespace: pulumi.Input[str]
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgsDict] = ()
    automount: bool = False


class ServiceAccount(pulumi.ComponentResource):
    """`ready` lists the account and its permissions in the cluster. Its Job depends on them."""

    name: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: ServiceAccountArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:ServiceAccount", name, None, opts)
        child = object_options(self)
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name, "namespace": args.namespace}
        account = k8s.core.v1.ServiceAccount(
            name,
            metadata=metadata,
            automount_service_account_token=args.automount,
            opts=child,
        )
        self.name = account.metadata["name"]
        self.ready = [account]
        if args.rules:
            role = k8s.rbac.v1.Role(name, metadata=metadata, rules=args.rules, opts=child)
            binding = k8s.rbac.v1.RoleBinding(
                name,
                metadata=metadata,
                role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata["name"]},
                subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": args.namespace}],
                opts=child,
            )
            self.ready = [*self.ready, binding]
        self.register_outputs({"name": self.name})
