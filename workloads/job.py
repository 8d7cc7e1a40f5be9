"""What the three Jobs have in common: restricted containers, time limits, and how `pulumi up` waits for them."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

# `pulumi up` waits a little longer than the Job's own time limit, so that it can show why the Job failed.
SLACK_MINUTES = 10
# A pod that is lost with its node does not count as failed.
IGNORE_LOST_NODE: k8s.batch.v1.PodFailurePolicyRuleArgsDict = {
    "action": "Ignore",
    "on_pod_conditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def container(
    name: str,
    image: str,
    command: Sequence[str],
    env: Mapping[str, pulumi.Input[str]],
    mounts: Sequence[k8s.core.v1.VolumeMountArgsDict],
    cpu: str,
    memory: str,
    fields: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
) -> k8s.core.v1.ContainerArgsDict:
    """A container without privileges. If it fails, its last log lines become the reason.

    `fields` maps environment variables to fields of the pod.
    """
    variables: list[k8s.core.v1.EnvVarArgsDict] = [{"name": key, "value": value} for key, value in env.items()]
    variables += [
        {"name": key, "value_from": {"field_ref": {"field_path": path}}} for key, path in (fields or {}).items()
    ]
    resources: k8s.core.v1.ResourceRequirementsArgsDict = {"requests": {"cpu": cpu, "memory": memory}}
    if limits:
        resources["limits"] = dict(limits)
    result: k8s.core.v1.ContainerArgsDict = {
        "name": name,
        "image": image,
        "env": variables,
        "volume_mounts": list(mounts),
        "resources": resources,
        "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
        "termination_message_policy": "FallbackToLogsOnError",
    }
    if command:
        result["command"] = list(command)
    return result


def pod(
    name: str,
    service_account: pulumi.Input[str],
    volumes: Sequence[k8s.core.v1.VolumeArgsDict],
    containers: Sequence[k8s.core.v1.ContainerArgsDict],
    init_containers: Sequence[k8s.core.v1.ContainerArgsDict] = (),
    after: pulumi.Input[str] | None = None,
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
    return {"metadata": metadata, "spec": spec}


def job(
    logical_name: str,
    name: str,
    namespace: pulumi.Input[str],
    spec: k8s.batch.v1.JobSpecArgsDict,
    timeout_minutes: int,
    opts: pulumi.ResourceOptions,
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
            opts, pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout))
        ),
    )
