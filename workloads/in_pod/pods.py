"""The pods of the training Job, as the API server reports them. Only the launcher of trainer 0 uses this."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import kubernetes_api
from trainer_settings import TrainerSettings, log

JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Pod:
    """The facts about a pod that the launcher needs."""

    uid: str
    name: str
    ip: str
    trainer: int
    phase: str
    terminating: bool
    created: str
    note: str

    @property
    def runs(self) -> bool:
        """Whether the pod can take part in an attempt."""
        return self.phase == "Running" and bool(self.ip) and not self.terminating


def read_pod(item: dict[str, Any]) -> Pod:
    """The pod from the API server's object."""
    metadata, status = item["metadata"], item.get("status", {})
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        ip=status.get("podIP", ""),
        trainer=int(metadata.get("annotations", {}).get(INDEX_ANNOTATION, -1)),
        phase=status.get("phase", "Pending"),
        terminating="deletionTimestamp" in metadata,
        created=metadata.get("creationTimestamp", ""),
        note=read_note(status),
    )


def read_note(status: dict[str, Any]) -> str:
    """Why the pod does not run, as Kubernetes explains it."""
    for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        for state in ("waiting", "terminated"):
            found = container.get("state", {}).get(state)
            if found:
                # The message of a failed container is the end of its log. The last line is the cause.
                last = found.get("message", "").strip().splitlines()[-1:]
                return f"{found.get('reason', '')} {''.join(last)}".strip()
    for condition in status.get("conditions", []):
        if condition["status"] == "False":
            return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()
    return ""


class PodWatcher:
    """Keeps the list of the Job's pods up to date in a thread: one list request, then one watch."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self.items: dict[str, Any] | None = None
        self.read: dict[tuple[str, str], Pod] = {}
        self.problem = ""
        self.changed = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        path = f"/api/v1/namespaces/{self.settings.namespace}/pods"
        query = {"labelSelector": f"{JOB_UID_LABEL}={self.settings.job_uid}"}
        for items in kubernetes_api.follow(path, query, self._report):
            self.items, self.problem = items, ""
            self.changed.set()

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log(problem)
        self.problem = problem

    def pods(self) -> list[Pod] | None:
        """The pods; None before the first answer of the API server."""
        items = self.items
        if items is None:
            return None
        read = {}
        for item in items.values():
            version = item["metadata"]["uid"], item["metadata"]["resourceVersion"]
            read[version] = self.read.get(version) or read_pod(item)
        self.read = read
        return list(read.values())


def newest_pods(pods: Sequence[Pod], trainers: int) -> tuple[Pod | None, ...]:
    """The current pod of each trainer: the newest pod that is not lost, or the newest pod if all are lost."""
    newest: list[Pod | None] = [None] * trainers
    for pod in sorted(pods, key=lambda pod: (not pod.terminating and pod.phase != "Failed", pod.created)):
        if 0 <= pod.trainer < trainers:
            newest[pod.trainer] = pod
    return tuple(newest)


def describe_missing(newest: Sequence[Pod | None]) -> str:
    """Which trainers do not run, and why; empty if all run."""
    missing = [(trainer, pod) for trainer, pod in enumerate(newest) if not pod or not pod.runs]
    if not missing:
        return ""
    parts = [f"{len(newest) - len(missing)} of {len(newest)} pods run"]
    for trainer, pod in missing[:5]:
        parts.append(f"trainer {trainer}: " + (f"{pod.name} {pod.phase} {pod.note}".strip() if pod else "no pod"))
    if len(missing) > 5:
        parts.append(f"and {len(missing) - 5} more")
    return "; ".join(parts)


def describe_lost(members: Sequence[str], pods: Mapping[str, Pod]) -> str:
    """Which member of an attempt lost its pod; empty if none did. Members and pods are given by UID."""
    for trainer, uid in enumerate(members):
        pod = pods.get(uid)
        if not pod:
            return f"trainer {trainer}'s pod was deleted"
        if pod.terminating:
            return f"trainer {trainer}'s pod {pod.name} is being deleted"
        if pod.phase == "Failed":
            return f"trainer {trainer}'s pod {pod.name} failed {pod.note}".strip()
    return ""
