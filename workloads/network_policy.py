"""The traffic that the pods of one Job may send and receive. The VPC CNI of the cluster enforces it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from workloads.in_pod.contract import HTTPS_PORT
from workloads.job import object_options

DNS_PORT = 53
JOB_LABEL = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class NetworkPolicyArgs:
    """`ports` are allowed to every address; without any, there is no DNS either.

    With `peers`, the pods of the Job can also use all ports of each other.
    """

    job: str
    namespace: pulumi.Input[str]
    ports: Sequence[int] = (HTTPS_PORT,)
    peers: bool = False


class NetworkPolicy(pulumi.ComponentResource):
    """`ready` is the policy. Its Job depends on it."""

    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NetworkPolicyArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:NetworkPolicy", name, None, opts)
        pods: k8s.meta.v1.LabelSelectorArgsDict = {"match_labels": {JOB_LABEL: args.job}}
        peer: k8s.networking.v1.NetworkPolicyPeerArgsDict = {"pod_selector": pods}
        dns: k8s.networking.v1.NetworkPolicyPeerArgsDict = {
            "namespace_selector": {"match_labels": {"kubernetes.io/metadata.name": "kube-system"}},
            "pod_selector": {"match_labels": {"k8s-app": "kube-dns"}},
        }
        # NFS needs no rule: the node mounts the volume, outside the network of the pod.
        egress: list[k8s.networking.v1.NetworkPolicyEgressRuleArgsDict] = []
        # A rule with an empty list of ports would allow all ports.
        if args.ports:
            egress = [
                {"to": [dns], "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]},
                {"ports": [{"protocol": "TCP", "port": port} for port in args.ports]},
            ]
        if args.peers:
            egress.append({"to": [peer]})
        policy = k8s.networking.v1.NetworkPolicy(
            name,
            metadata={"name": args.job, "namespace": args.namespace},
            spec={
                "pod_selector": pods,
                "policy_types": ["Ingress", "Egress"],
                "ingress": [{"from_": [peer]}] if args.peers else [],
                "egress": egress,
            },
            opts=object_options(self),
        )
        self.ready = [policy]
        self.register_outputs({})
