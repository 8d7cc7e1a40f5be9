"""The Job's pods as the API server tells them, and what is missing or lost of the gang."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import kubernetes_api
from trainer_settings import Settings, say

POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Pod:
    """What matters of a pod of the Job."""

    uid: str
    name: str
    ip: str
    index: int | None
    phase: str
    going: bool
    created: str
    job_uid: str
    note: str

    @property
    def ready(self) -> bool:
        """Whether its launcher can be met."""
        return self.phase == "Running" and bool(self.ip) and not self.going


def read_pod(item: dict[str, Any]) -> Pod:
    """The pod as the API server gives it."""
    metadata, status = item["metadata"], item.get("status", {})
    index = metadata.get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        ip=status.get("podIP", ""),
        index=int(index) if index is not None else None,
        phase=status.get("phase", "Pending"),
        going="deletionTimestamp" in metadata,
        created=metadata.get("creationTimestamp", ""),
        job_uid=next((o["uid"] for o in metadata.get("ownerReferences", []) if o["kind"] == "Job"), ""),
        note=read_note(status),
    )


def read_note(status: dict[str, Any]) -> str:
    """Why the pod does not run, as far as Kubernetes says: a container's trouble before the pod's."""
    for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        for state in ("waiting", "terminated"):
            found = container.get("state", {}).get(state)
            if found:
                return f"{found.get('reason', '')} {found.get('message', '')}".strip()
    for condition in status.get("conditions", []):
        if condition["status"] == "False":
            return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()
    return ""


class Gang:
    """The Job's pods as last told by the API server; a thread keeps them up to date."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.items: dict[str, Any] = {}
        self.read: dict[tuple[str, str], Pod] = {}
        self.trouble = ""
        self.changed = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        path = f"/api/v1/namespaces/{self.settings.namespace}/pods"
        for items in kubernetes_api.follow(path, {"labelSelector": f"job-name={self.settings.job}"}, self._tell):
            self.items, self.trouble = items, ""
            self.changed.set()

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            say(trouble)
        self.trouble = trouble

    def wait(self) -> None:
        """Until something changed, or a moment passed."""
        self.changed.wait(POLL_SECONDS)
        self.changed.clear()

    def pods(self) -> list[Pod]:
        """The pods of the Job that this pod belongs to."""
        read = {}
        for item in self.items.values():
            version = item["metadata"]["uid"], item["metadata"]["resourceVersion"]
            read[version] = self.read.get(version) or read_pod(item)
        self.read = read
        mine = next((pod.job_uid for pod in read.values() if pod.uid == self.settings.pod_uid), None)
        return [pod for pod in read.values() if pod.job_uid == mine]


def holders(pods: list[Pod], settings: Settings) -> list[Pod | None]:
    """For each trainer id the pod that holds it now: by completion index, else by address once all are there."""
    if settings.index is None:
        ready = sorted((pod for pod in pods if pod.ready), key=lambda pod: pod.ip)
        return [*ready, *[None] * (settings.trainers - len(ready))]
    newest: list[Pod | None] = [None] * settings.trainers
    for pod in sorted(pods, key=lambda pod: (not pod.going and pod.phase != "Failed", pod.created)):
        if pod.index is not None and pod.index < settings.trainers:
            newest[pod.index] = pod
    return newest


def complete(gang: list[Pod | None]) -> list[Pod]:
    """The gang if every trainer's pod runs, else nothing."""
    ready = [pod for pod in gang if pod and pod.ready]
    return ready if len(ready) == len(gang) else []


def describe_missing(gang: list[Pod | None]) -> str:
    """Which trainers are not there, and why; the first few by name."""
    missing = [(trainer, pod) for trainer, pod in enumerate(gang) if not pod or not pod.ready]
    told = [f"{len(gang) - len(missing)} of {len(gang)} pods run"]
    for trainer, pod in missing[:5]:
        told.append(f"trainer {trainer}: " + (f"{pod.name} {pod.phase} {pod.note}".strip() if pod else "no pod"))
    if len(missing) > 5:
        told.append(f"and {len(missing) - 5} more")
    return "; ".join(told)


def describe_lost(members: tuple[str, ...], pods: list[Pod]) -> str:
    """Which member, known by its pod's UID, is lost; or nothing."""
    by_uid = {pod.uid: pod for pod in pods}
    for trainer, uid in enumerate(members):
        pod = by_uid.get(uid)
        if not pod:
            return f"trainer {trainer}'s pod is gone"
        if pod.going:
            return f"trainer {trainer}'s pod {pod.name} is being deleted"
        if pod.phase == "Failed":
            return f"trainer {trainer}'s pod {pod.name} failed {pod.note}".strip()
    return ""
