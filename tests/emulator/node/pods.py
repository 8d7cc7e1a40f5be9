"""Helpers for tests that run single pods."""

from __future__ import annotations

from tests.emulator.cluster_helpers import NodeProcess, eventually
from tools.kubernetes_client import POD, Api, Object


def pod(name: str, script: str, **container: object) -> Object:
    """A pod with one container that runs a shell script."""
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]} | container
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [main]}
    return {"metadata": {"name": name}, "spec": spec}


def create(api: Api, namespace: str, manifest: Object) -> Object:
    return api.request("POST", POD.path(namespace), manifest)


def wait_for_phase(api: Api, namespace: str, name: str, *wanted: str) -> Object:
    """The pod, as soon as it is in one of these phases."""

    def look() -> Object | None:
        found = api.get(POD, namespace, name)
        return found if found["status"].get("phase") in wanted else None

    return eventually(look)


def run_to_end(api: Api, node: NodeProcess, namespace: str, manifest: Object) -> tuple[Object, str]:
    """Run a pod to its end; returns the pod and its log."""
    create(api, namespace, manifest)
    ended = wait_for_phase(api, namespace, manifest["metadata"]["name"], "Succeeded", "Failed")
    return ended, node.log(ended, "main")


def started(api: Api, node: NodeProcess, namespace: str, manifest: Object) -> Object:
    """Start a pod whose script prints `up`, and wait for that."""
    create(api, namespace, manifest)
    running = wait_for_phase(api, namespace, manifest["metadata"]["name"], "Running")
    eventually(lambda: "up" in node.log(running, "main"))
    return running


def pid(running: Object) -> int:
    return int(running["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))


def terminated(api: Api, namespace: str, name: str) -> Object:
    """The final state of the pod's container."""
    status = api.get(POD, namespace, name)["status"]["containerStatuses"][0]
    return dict(status["state"]["terminated"])


def waiting_message(api: Api, namespace: str, name: str) -> str:
    """The reason why the container of a pod has not started."""
    statuses = api.get(POD, namespace, name)["status"].get("containerStatuses") or [{"state": {}}]
    return str((statuses[0]["state"].get("waiting") or {}).get("message"))
