"""The state of a stack at one moment, computed from the output of Pulumi, the cluster's objects and the pods' logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.kubernetes_client import parse_time
from tools.watch.training_log import Progress
from workloads.in_pod import contract

Object = Mapping[str, Any]
READY, WAITING, RUNNING, DONE, FAILED = "ready", "waiting", "running", "done", "failed"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Node:
    name: str
    zone: str
    instance_type: str
    ready: bool


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    job: str
    trainer: int | None
    node: str
    state: str
    note: str
    created: str


@dataclass(frozen=True)
class Job:
    name: str
    role: str
    state: str
    wanted: int
    reason: str
    began: float
    ended: float
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Cost:
    """What the stack costs at list prices; `since` is when its first AWS resource was created."""

    hourly: float
    since: float
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Names:
    """The facts from the stack's settings that the view needs."""

    stack: str
    region: str
    sandbox: bool
    workers: int
    training: str
    exported: bool

    @property
    def jobs(self) -> tuple[tuple[str, str], ...]:
        found = ((contract.DATA_JOB, "data"), (self.training, "training"))
        return (*found, (contract.EXPORT_JOB, "export")) if self.exported else found


@dataclass(frozen=True)
class Snapshot:
    names: Names
    now: float
    resources: int
    operations: tuple[tuple[str, float], ...]  # the text, and when the view first saw it
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    progress: Mapping[str, Progress]  # by role
    cost: Cost | None
    fetch: str
    trouble: tuple[str, ...]


def nodes_of(objects: Sequence[Object]) -> tuple[Node, ...]:
    """The worker nodes, by name."""
    return tuple(sorted(map(_node, objects), key=lambda node: _natural(node.name)))


def _node(item: Object) -> Node:
    labels = item["metadata"].get("labels", {})
    conditions = item.get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return Node(
        item["metadata"]["name"],
        labels.get("topology.kubernetes.io/zone", ""),
        labels.get("node.kubernetes.io/instance-type", ""),
        ready,
    )


def jobs_of(names: Names, jobs: Sequence[Object], pods: Sequence[Object]) -> tuple[Job, ...]:
    """The stack's Jobs in the order in which they run; a Job that does not exist yet is left out."""
    by_name = {item["metadata"]["name"]: item for item in jobs}
    by_job: dict[str, list[Pod]] = {}
    for item in pods:
        pod = pod_of(item)
        by_job.setdefault(pod.job, []).append(pod)
    return tuple(_job(by_name[name], role, by_job.get(name, [])) for name, role in names.jobs if name in by_name)


def _job(item: Object, role: str, pods: Sequence[Pod]) -> Job:
    status = item.get("status", {})
    state, reason = WAITING, ""
    for condition in status.get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            state = DONE if condition["type"] == "Complete" else FAILED
            reason = condition.get("message", "") if state == FAILED else ""
            ended = _seconds(condition.get("lastTransitionTime", ""))
            break
    else:
        ended = 0.0
        if any(pod.state == RUNNING for pod in pods):
            state = RUNNING
    newest: dict[int | str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.created):
        newest[pod.name if pod.trainer is None else pod.trainer] = pod
    if state == FAILED:
        notes = [pod.note for pod in newest.values() if pod.state == FAILED and pod.note]
        reason = notes[0] if notes else reason
    ordered = sorted(newest.values(), key=lambda pod: (pod.trainer is None, pod.trainer or 0, pod.created))
    return Job(
        item["metadata"]["name"],
        role,
        state,
        int(item.get("spec", {}).get("completions") or 1),
        reason,
        _seconds(status.get("startTime", "")),
        ended,
        tuple(ordered if role == "training" else ordered[-1:]),
    )


def pod_of(item: Object) -> Pod:
    """A pod of a Job."""
    metadata, status = item["metadata"], item.get("status", {})
    phase = status.get("phase", "Pending")
    state = {"Running": RUNNING, "Succeeded": DONE, "Failed": FAILED}.get(phase, WAITING)
    if "deletionTimestamp" in metadata and state != DONE:
        state = FAILED
    index = metadata.get("annotations", {}).get(INDEX_LABEL)
    return Pod(
        metadata["name"],
        metadata["uid"],
        metadata.get("labels", {}).get("job-name", ""),
        int(index) if index is not None else None,
        item.get("spec", {}).get("nodeName", ""),
        state,
        "is being deleted" if "deletionTimestamp" in metadata else _note(status) if state != DONE else "",
        metadata.get("creationTimestamp", ""),
    )


def _note(status: Object) -> str:
    """Why a pod does not run: the reason of a container, else of the pod."""
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        for kind in ("waiting", "terminated"):
            found = container.get("state", {}).get(kind)
            if found and found.get("exitCode", 1):
                message = next(iter(reversed(found.get("message", "").strip().splitlines())), "")
                if message or found.get("reason") not in ("PodInitializing", "ContainerCreating"):
                    return f"{found.get('reason', '')} {message}".strip()
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()
    return str(status.get("message", ""))


def pods_to_read(jobs: Sequence[Job]) -> list[Pod]:
    """The pods whose logs show the progress: the first pod of each Job that has started."""
    firsts = [job.pods[0] for job in jobs if job.pods and (job.role != "training" or job.pods[0].trainer in (0, None))]
    return [pod for pod in firsts if pod.state in (RUNNING, DONE, FAILED)]


def _seconds(text: str) -> float:
    return parse_time(text) if text else 0.0


def _natural(name: str) -> tuple[int, str]:
    return len(name), name
