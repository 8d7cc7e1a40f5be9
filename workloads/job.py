"""What the Jobs have in common: restricted containers, time limits, and how `pulumi up` waits for them."""

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


@dataclass(frozen=True)
class Needs:
    """The CPU and the memory that a container requests, and the limit of its memory."""

    cpu: str
    memory: str
    memory_limit: str
    gpus: int = 0


def container(
    name: str,
    image: str,
    command: Sequence[str],
    env: Mapping[str, pulumi.Input[str]],
    mounts: Sequence[k8s.core.v1.VolumeMountArgsDict],
    needs: Needs,
    fields: Mapping[str, str] | None = None,
    secrets: Mapping[str, k8s.core.v1.SecretKeySelectorArgsDict] | None = None,
    read_only: bool = False,
) -> k8s.core.v1.ContainerArgsDict:
    """A container without privileges. If it fails, its last log lines become the reason.

    `fields` maps environment variables to fields of the pod, `secrets` to keys of Kubernetes Secrets. With `read_only`,
    the root file system is read-only except for /tmp, and the pod needs the temporary folder of the container.
    """
    variables: list[k8s.core.v1.EnvVarArgsDict] = [{"name": key, "value": value} for key, value in env.items()]
    variables += [
        {"name": key, "value_from": {"field_ref": {"field_path": path}}} for key, path in (fields or {}).items()
    ]
    variables += [
        {"name": key, "value_from": {"secret_key_ref": selector}} for key, selector in (secrets or {}).items()
    ]
    mounts = list(mounts)
    security: k8s.core.v1.SecurityContextArgsDict = {
        "allow_privilege_escalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    if read_only:
        variables.append({"name": "HOME", "value": "/tmp"})
        mounts.append({"name": temporary_folder(name)["name"], "mount_path": "/tmp"})
        security["read_only_root_filesystem"] = True
    limits = {"memory": needs.memory_limit, **({"nvidia.com/gpu": str(needs.gpus)} if needs.gpus else {})}
    result: k8s.core.v1.ContainerArgsDict = {
        "name": name,
        "image": image,
        "env": variables,
        "volume_mounts": mounts,
        "resources": {"requests": {"cpu": needs.cpu, "memory": needs.memory}, "limits": limits},
        "security_context": security,
        "termination_message_policy": "FallbackToLogsOnError",
    }
    if command:
        result["command"] = list(command)
    return result


def temporary_folder(container: str) -> k8s.core.v1.VolumeArgsDict:
    """The volume for /tmp of a read-only container. Each has its own: the AWS CLI keeps credentials in HOME."""
    return {"name": f"tmp-{container}", "empty_dir": {"size_limit": "1Gi"}}


def pod(
    name: str,
    service_account: pulumi.Input[str],
    volumes: Sequence[k8s.core.v1.VolumeArgsDict],
    containers: Sequence[k8s.core.v1.ContainerArgsDict],
    init_containers: Sequence[k8s.core.v1.ContainerArgsDict] = (),
    after: pulumi.Input[str] | None = None,
    spread: Sequence[k8s.core.v1.TopologySpreadConstraintArgsDict] = (),
    grace_seconds: int | None = None,
) -> k8s.core.v1.PodTemplateSpecArgsDict:
    """A pod template. `after` is the name of the previous Job: if that Job is replaced, this one is too."""
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name}
    if after is not None:
        metadata["annotations"] = {"paddle-on-aws/after": after}
    spec: k8s.core.v1.PodSpecArgsDict = {
        "service_account_name": service_account,
        "restart_policy": "Never",
        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
        "volumes": list(volumes),
        "containers": list(containers),
    }
    if init_containers:
        spec["init_containers"] = list(init_containers)
    if spread:
        spec["topology_spread_constraints"] = list(spread)
    if grace_seconds is not None:
        spec["termination_grace_period_seconds"] = grace_seconds
    return {"metadata": metadata, "spec": spec}


def job(
    logical_name: str,
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
        logical_name,
        metadata=metadata,
        spec={**spec, "active_deadline_seconds": timeout_minutes * 60},
        opts=pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions.merge(opts, job_options(logical_name, paused)),
            pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout)),
        ),
    )
