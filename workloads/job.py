"""What the objects in the cluster have in common: options, restricted containers, time limits, how `up` waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.pause import job_options

# `pulumi up` waits a little longer than the Job's own time limit, so that it can show why the Job failed.
SLACK_MINUTES = 10
# A pod that is lost with its node does not count as failed.
IGNORE_LOST_NODE: k8s.batch.v1.PodFailurePolicyRuleArgsDict = {
    "action": "Ignore",
    "on_pod_conditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def object_options(
    component: pulumi.ComponentResource, needs: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    """Options for an object in the cluster that belongs to a component."""
    # Names are fixed: if a create-before-delete replacement were interrupted, the next run would delete the new object.
    return pulumi.ResourceOptions(parent=component, depends_on=list(needs), delete_before_replace=True)


@dataclass(frozen=True)
class Needs:
    """The CPU and the memory that a container requests, and the limit of its memory."""

    cpu: str
    memory: str
    memory_limit: str
    gpus: int = 0


@dataclass(frozen=True)
class Mount:
    """A volume, and the folder where a container sees it."""

    volume: k8s.core.v1.VolumeArgsDict
    folder: str
    read_only: bool = False

    @property
    def spec(self) -> k8s.core.v1.VolumeMountArgsDict:
        mount: k8s.core.v1.VolumeMountArgsDict = {"name": self.volume["name"], "mount_path": self.folder}
        return {**mount, "read_only": True} if self.read_only else mount


# The value of an environment variable, or where Kubernetes finds it.
Variable = pulumi.Input[str] | k8s.core.v1.EnvVarSourceArgsDict


def pod_field(path: str) -> k8s.core.v1.EnvVarSourceArgsDict:
    return {"field_ref": {"field_path": path}}


@dataclass(frozen=True)
class Container:
    """A container without privileges. If it fails, its last log lines become the reason.

    Its root file system is read-only except for /tmp, unless it is `writable`.
    """

    name: str
    image: str
    command: Sequence[str]
    env: Mapping[str, Variable]
    mounts: Sequence[Mount]
    needs: Needs
    writable: bool = False
    host_ports: Sequence[int] = ()
    pull_always: bool = False

    @property
    def all_mounts(self) -> Sequence[Mount]:
        if self.writable:
            return self.mounts
        # Each container has its own /tmp: the AWS CLI keeps credentials in HOME.
        return [*self.mounts, Mount({"name": f"tmp-{self.name}", "empty_dir": {"size_limit": "1Gi"}}, "/tmp")]

    @property
    def spec(self) -> k8s.core.v1.ContainerArgsDict:
        env = self.env if self.writable else {**self.env, "HOME": "/tmp"}
        security: k8s.core.v1.SecurityContextArgsDict = {
            "allow_privilege_escalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        if not self.writable:
            security["read_only_root_filesystem"] = True
        gpus = {"nvidia.com/gpu": str(self.needs.gpus)} if self.needs.gpus else {}
        spec: k8s.core.v1.ContainerArgsDict = {
            "name": self.name,
            "image": self.image,
            "env": [
                {"name": name, "value_from": value} if isinstance(value, dict) else {"name": name, "value": value}
                for name, value in env.items()
            ],
            "volume_mounts": [mount.spec for mount in self.all_mounts],
            "resources": {
                "requests": {"cpu": self.needs.cpu, "memory": self.needs.memory},
                "limits": {"memory": self.needs.memory_limit, **gpus},
            },
            "security_context": security,
            "termination_message_policy": "FallbackToLogsOnError",
        }
        if self.command:
            spec["command"] = list(self.command)
        if self.host_ports:
            spec["ports"] = [
                {"name": f"jobport{i}", "host_port": port, "container_port": port}
                for i, port in enumerate(self.host_ports)
            ]
        if self.pull_always:
            spec["image_pull_policy"] = "Always"
        return spec


def pod(
    name: str,
    service_account: pulumi.Input[str],
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    after: pulumi.Input[str] | None = None,
    spread: Sequence[k8s.core.v1.TopologySpreadConstraintArgsDict] = (),
    grace_seconds: int | None = None,
) -> k8s.core.v1.PodTemplateSpecArgsDict:
    """A pod template with the volumes of its containers.

    `after` is the name of the previous Job: if that Job is replaced, this one is too.
    """
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name}
    if after is not None:
        metadata["annotations"] = {"paddle-on-aws/after": after}
    mounts = [mount for each in (*containers, *init_containers) for mount in each.all_mounts]
    spec: k8s.core.v1.PodSpecArgsDict = {
        "service_account_name": service_account,
        "restart_policy": "Never",
        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
        "volumes": list({str(mount.volume["name"]): mount.volume for mount in mounts}.values()),
        "containers": [each.spec for each in containers],
    }
    if init_containers:
        spec["init_containers"] = [each.spec for each in init_containers]
    if spread:
        spec["topology_spread_constraints"] = list(spread)
    if grace_seconds is not None:
        spec["termination_grace_period_seconds"] = grace_seconds
    return {"metadata": metadata, "spec": spec}


def job(
    name: str,
    namespace: pulumi.Input[str],
    spec: k8s.batch.v1.JobSpecArgsDict,
    timeout_minutes: int,
    opts: pulumi.ResourceOptions,
    paused: bool,
    wait: bool = True,
) -> k8s.batch.v1.Job:
    """A Job. `pulumi up` waits for its end, or without `wait` for its start.

    The next `up` continues to wait for a running Job. To repeat a failed Job, replace it: `up --replace '**Job::NAME'`.
    """
    # Not pulumi.com/replaceUnready: it also replaces running Jobs, so each `up` would restart a training.
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name, "namespace": namespace}
    if not wait:
        metadata["annotations"] = {"pulumi.com/waitFor": "jsonpath={.status.startTime}"}
    timeout = f"{timeout_minutes + SLACK_MINUTES}m"
    return k8s.batch.v1.Job(
        name,
        metadata=metadata,
        spec={**spec, "active_deadline_seconds": timeout_minutes * 60},
        opts=pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions.merge(opts, job_options(name, paused)),
            pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout)),
        ),
    )
