"""The namespace of the Jobs and of the volume claim."""

import pulumi
import pulumi_kubernetes as k8s

from workloads.job import object_options


class Namespace(pulumi.ComponentResource):
    """`name` is known when the namespace exists."""

    name: pulumi.Output[str]

    def __init__(self, name: str, namespace: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:Namespace", name, None, opts)
        self.name = pulumi.Output.from_input(namespace)
        if namespace != "default":
            created = k8s.core.v1.Namespace(name, metadata={"name": namespace}, opts=object_options(self))
            self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})
