"""NVIDIA's device plugin. Without it, Kubernetes does not see the GPUs of a node."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from workloads.job import object_options

PLUGINS = "/var/lib/kubelet/device-plugins"


@dataclass(frozen=True)
class GpuPluginArgs:
    image: str


class GpuPlugin(pulumi.ComponentResource):
    def __init__(self, name: str, args: GpuPluginArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:GpuPlugin", name, None, opts)
        labels = {"app": name}
        k8s.apps.v1.DaemonSet(
            name,
            metadata={"name": name, "namespace": "kube-system"},
            spec={
                "selector": {"match_labels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "priority_class_name": "system-node-critical",
                        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                        "containers": [
                            {
                                "name": name,
                                "image": args.image,
                                "resources": {
                                    "requests": {"cpu": "50m", "memory": "64Mi"},
                                    "limits": {"memory": "256Mi"},
                                },
                                "security_context": {
                                    "allow_privilege_escalation": False,
                                    "capabilities": {"drop": ["ALL"]},
                                },
                                "volume_mounts": [{"name": "plugins", "mount_path": PLUGINS}],
                            }
                        ],
                        "volumes": [{"name": "plugins", "host_path": {"path": PLUGINS}}],
                    },
                },
            },
            opts=object_options(self),
        )
        self.register_outputs({})
