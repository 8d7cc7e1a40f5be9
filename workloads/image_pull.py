"""Pulls the image of the trainers on every worker while the data Job runs, so that the training starts sooner."""

import hashlib
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from settings.schema import Settings
from workloads.job import IGNORE_LOST_NODE, Container, Needs, object_options, pod
from workloads.namespace import Namespace
from workloads.network_policy import JOB_LABEL, NetworkPolicy, NetworkPolicyArgs
from workloads.service_account import ServiceAccount, ServiceAccountArgs

# A pod holds its worker for this time, so that the next pods go to the other workers although its image was there.
HOLD_SECONDS = 30
# Afterwards, a pod without a worker or an image is deleted.
DEADLINE_SECONDS = 3600


@dataclass(frozen=True)
class ImagePullArgs:
    settings: Settings
    namespace: Namespace


class ImagePull(pulumi.ComponentResource):
    """No other Job depends on it. If it fails, the trainers pull their image themselves."""

    def __init__(self, name: str, args: ImagePullArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:ImagePull", name, None, opts)
        namespace, child = args.namespace.name, object_options(self)
        job_name = f"{name}-{digest(args.settings)}"
        account = ServiceAccount(name, ServiceAccountArgs(namespace), child)
        network = NetworkPolicy(f"{name}-network", NetworkPolicyArgs(job_name, namespace, ports=()), child)
        k8s.batch.v1.Job(
            name,
            metadata={
                "name": job_name,
                "namespace": namespace,
                # Neither `pulumi up` nor a refresh looks at how the Job ends.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec=image_pull_spec(name, args.settings, job_name, account.name),
            opts=object_options(self, [*account.ready, *network.ready]),
        )
        self.register_outputs({})


def digest(settings: Settings) -> str:
    """Makes the name of another Job differ: with skipAwait, the old one may still exist when the new one is created."""
    return hashlib.sha256(f"{settings.job.image} {settings.workers.count}".encode()).hexdigest()[:10]


def image_pull_spec(
    name: str, settings: Settings, job_name: str, account: pulumi.Input[str]
) -> k8s.batch.v1.JobSpecArgsDict:
    needs = Needs("10m", "16Mi", "64Mi")
    hold = Container(name, settings.job.image, ["sleep", str(HOLD_SECONDS)], {}, [], needs)
    one_per_worker: k8s.core.v1.TopologySpreadConstraintArgsDict = {
        "max_skew": 1,
        "topology_key": "kubernetes.io/hostname",
        "when_unsatisfiable": "DoNotSchedule",
        "label_selector": {"match_labels": {JOB_LABEL: job_name}},
    }
    # Not the default of 30 seconds: the first process of a container ignores SIGTERM unless it has a handler.
    template = pod(name, account, [hold], spread=[one_per_worker], grace_seconds=1)
    return {
        "parallelism": settings.workers.count,
        "completions": settings.workers.count,
        "completion_mode": "Indexed",
        # For each pod, because a failed Job stops its other pods while they pull. An image may have no `sleep`.
        "backoff_limit_per_index": 0,
        "pod_failure_policy": {"rules": [IGNORE_LOST_NODE]},
        "active_deadline_seconds": DEADLINE_SECONDS,
        "template": template,
    }
