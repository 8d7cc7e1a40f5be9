"""A copy of the nodes, Jobs and pods of a cluster: one list and one watch for each kind, and the logs of a few pods."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tools.kubernetes_client import NODE, POD, Api, ApiError, Kind, Object, UnreachableError

JOB = Kind("batch/v1", "Job", "jobs", True)
KINDS = {"nodes": NODE, "jobs": JOB, "pods": POD}
# Only pods of Jobs: the Job controller sets this label.
SELECTOR = {"pods": {"labelSelector": "job-name"}}
RETRY_SECONDS = 2.0
LOG_LINES = 5000


class Cluster:
    """A copy of the objects, kept up to date by threads that end with the process."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.objects: dict[str, dict[str, Object]] = {}
        self.trouble: dict[str, str] = {}
        self.logs: dict[str, list[str]] = {}
        self.arrived: set[str] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        for name in KINDS:
            threading.Thread(target=self._follow, args=(name,), daemon=True).start()

    @property
    def listed(self) -> bool:
        """Whether each kind was listed or failed to list."""
        return all(name in self.objects or name in self.trouble for name in KINDS)

    def copy(self, name: str) -> list[Object]:
        with self._lock:
            return list(self.objects.get(name, {}).values())

    def _follow(self, name: str) -> None:
        wait = threading.Event().wait
        while True:
            try:
                for kind, item in self.api.follow(KINDS[name], self.namespace, **SELECTOR.get(name, {})):
                    self._apply(name, kind, item)
            except (ApiError, UnreachableError, OSError, ValueError, KeyError) as error:
                self.trouble[name] = advice(name, error)
            wait(RETRY_SECONDS)

    def _apply(self, name: str, kind: str, item: Object) -> None:
        with self._lock:
            if kind == "LISTED":
                self.objects[name] = {each["metadata"]["name"]: each for each in item["items"]}
                self.trouble.pop(name, None)
            elif kind == "DELETED":
                self.objects[name].pop(item["metadata"]["name"], None)
            else:
                self.objects[name][item["metadata"]["name"]] = item

    def follow_log(self, uid: str, name: str) -> None:
        """Start a thread that reads the pod's log, unless one does so already."""
        if uid not in self.logs:
            self.logs[uid] = []
            threading.Thread(target=self._read_log, args=(uid, name), daemon=True).start()

    def logs_read(self) -> bool:
        """Whether the first answer for each followed log has arrived."""
        return set(self.logs) <= self.arrived

    def take_log(self, uid: str) -> list[str]:
        """The lines that arrived since the last call."""
        with self._lock:
            lines, self.logs[uid] = self.logs.get(uid, []), []
        return lines

    def _read_log(self, uid: str, name: str) -> None:
        wait = threading.Event().wait
        path = POD.path(self.namespace, name, "log")
        while True:
            try:
                query = {"follow": "true", "tailLines": str(LOG_LINES)}
                for line in self.api.lines(path, query):
                    with self._lock:
                        self.logs[uid].append(line.decode(errors="replace"))
                    self.arrived.add(uid)
            except (ApiError, UnreachableError, OSError):
                pass  # the pod was deleted or its node does not answer; the state of the pod shows this
            self.arrived.add(uid)
            current = self.objects.get("pods", {}).get(name)
            if not current or current["metadata"]["uid"] != uid or is_over(current):
                return
            wait(RETRY_SECONDS)


def is_over(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def advice(name: str, error: Exception) -> str:
    """One line for the user: why the cluster does not list its objects, and what to do."""
    if isinstance(error, ApiError) and error.code == 401:
        return "The cluster rejects your login. Log in as the AWS role that created the stack, or add yours to admins."
    if isinstance(error, ApiError) and error.code == 403:
        return f"You have no right to list {name} in the cluster. Ask its owner to add your role to the setting admins."
    if isinstance(error, ApiError):
        return f"The cluster does not list its {name}: {error}"
    if "credential plugin" in str(error):
        return f"The login for the cluster failed: {error}. Install the AWS CLI and log in to AWS."
    if isinstance(error, UnreachableError):
        return "The cluster does not answer. Check that it exists, your network, and the setting apiAccessCidrs."
    return f"The cluster gave an unexpected answer: {error!r}"
