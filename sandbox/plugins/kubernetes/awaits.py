"""When an object is ready or deleted: the rules and annotations of the official provider."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.kubernetes_client import POD, Api, ApiError, Kind, Object, UnreachableError

DEFAULT_SECONDS = 600.0
VOLUME_SECONDS = 300.0
_POLLS_PER_SECOND = 4
POLL_SECONDS = 1 / _POLLS_PER_SECOND
SKIP_AWAIT, WAIT_FOR = "pulumi.com/skipAwait", "pulumi.com/waitFor"
# The annotations of the official provider that the program uses, with their possible values.
ANNOTATIONS = {SKIP_AWAIT: r"true", WAIT_FOR: r"jsonpath=\{(\.[A-Za-z]+)+\}"}


class NotReadyError(Exception):
    """The object exists and is not ready; contains its last state and the known reasons."""

    def __init__(self, message: str, live: Object, reasons: list[str]) -> None:
        super().__init__(message)
        self.live = live
        self.reasons = reasons


@dataclass
class Progress:
    """The result of one look at an object."""

    ready: bool
    message: str = ""
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Wait:
    """What a wait needs: the API, a function that shows progress, and the event that ends all waits."""

    api: Api
    show: Callable[[str], None]
    cancelled: threading.Event


def _annotations(obj: Object) -> Object:
    """The annotations that are known."""
    metadata = obj.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, dict) else None
    return given if isinstance(given, dict) else {}


def unsupported_annotations(obj: Object) -> list[str]:
    """What is wrong with each annotation that would control the official provider."""
    return [
        f"{name}: {value!r} is not supported by the emulated provider, because the program does not use it. "
        "Add it to ANNOTATIONS in sandbox/plugins/kubernetes/awaits.py"
        for name, value in _annotations(obj).items()
        if name.startswith("pulumi.com/") and not re.fullmatch(ANNOTATIONS.get(name, r"(?!)"), str(value))
    ]


def full_name(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace", "")
    return ("" if namespace in ("", "default") else namespace + "/") + str(obj["metadata"]["name"])


def until_ready(wait: Wait, kind: Kind, inputs: Object, live: Object, seconds: float) -> Object:
    """Wait until the object is ready; raise NotReadyError when it fails or the time is over."""
    given = _annotations(inputs)
    if SKIP_AWAIT in given:
        return live
    if WAIT_FOR in given:
        return _poll(wait, kind, live, seconds, lambda obj: _has_field(obj, given[WAIT_FOR]))
    if kind.kind in _VOLUMES:
        return _poll(wait, kind, live, VOLUME_SECONDS, _VOLUMES[kind.kind])
    return _poll(wait, kind, live, seconds, READY[kind.kind]) if kind.kind in READY else live


def readiness(api: Api, inputs: Object, live: Object) -> list[str] | None:
    """Why an object is not ready, for a refresh; None if it is ready."""
    check = READY.get(live["kind"])
    if check is None or SKIP_AWAIT in _annotations(inputs):
        return None
    progress = check(live)
    return None if progress.ready else [*progress.failed, *pod_messages(api, live)]


def until_gone(wait: Wait, kind: Kind, inputs: Object, live: Object, seconds: float) -> None:
    """Wait until the object is deleted, or another object has its name."""
    if SKIP_AWAIT in _annotations(inputs):
        return
    metadata, ends = live["metadata"], time.monotonic() + seconds
    while True:
        try:
            now = wait.api.find(kind, metadata.get("namespace", ""), metadata["name"])
        except UnreachableError:
            now = live
        if now is None or now["metadata"]["uid"] != metadata["uid"]:
            return
        finalizers = ", ".join(now["metadata"].get("finalizers") or [])
        wait.show(f"Waiting for {kind.kind} {full_name(now)} to be deleted")
        if time.monotonic() > ends or wait.cancelled.wait(POLL_SECONDS):
            why = f"; finalizers might be preventing deletion: {finalizers}" if finalizers else ""
            raise NotReadyError(f"{kind.kind} {full_name(now)} still exists after {seconds:g} s{why}", now, [])


def _poll(wait: Wait, kind: Kind, live: Object, seconds: float, check: Callable[[Object], Progress]) -> Object:
    metadata, ends = live["metadata"], time.monotonic() + seconds
    messages: list[str] = []
    for poll in itertools.count():
        progress = check(live)
        if progress.ready:
            break
        # Collect messages during the wait: a failed pod may be deleted before its owner fails.
        if kind.kind in READY and (progress.failed or poll % _POLLS_PER_SECOND == 0):
            messages += [message for message in pod_messages(wait.api, live) if message not in messages]
        if progress.failed:
            raise NotReadyError(f"{kind.kind} {full_name(live)} failed", live, messages + progress.failed)
        wait.show(progress.message)
        if wait.cancelled.wait(POLL_SECONDS):
            raise NotReadyError(f"waiting for {kind.kind} {full_name(live)} was cancelled", live, messages)
        if time.monotonic() > ends:
            late = f"{kind.kind} {full_name(live)} is not ready after {seconds:g} s"
            raise NotReadyError(late, live, [*messages, progress.message])
        try:
            live = wait.api.get(kind, metadata.get("namespace", ""), metadata["name"])
        except UnreachableError as problem:
            wait.show(str(problem))
        except ApiError as error:
            wait.show(str(error))
            if error.code == 404:
                deleted = f"{kind.kind} {full_name(live)} was deleted during the wait"
                raise NotReadyError(deleted, live, messages) from error
    return live


def _has_field(obj: Object, jsonpath: str) -> Progress:
    value: Any = obj
    for key in re.findall(r"\.(\w+)", jsonpath):
        value = value.get(key) if isinstance(value, dict) else None
    return Progress(value is not None, f"Waiting for {jsonpath}")


def _volume(obj: Object) -> Progress:
    """Available or Bound, within 5 minutes."""
    phase = obj.get("status", {}).get("phase")
    return Progress(phase in ("Available", "Bound"), f"Waiting for the volume to be available (it is {phase})")


def _claim(obj: Object) -> Progress:
    """Bound, within 5 minutes."""
    phase = obj.get("status", {}).get("phase")
    return Progress(phase == "Bound", f"Waiting for the claim to be Bound (it is {phase})")


def _job(obj: Object) -> Progress:
    """Complete; an error with the messages of the pods when it failed (BackoffLimitExceeded, DeadlineExceeded)."""
    status = obj.get("status", {})
    conditions = _conditions(obj)
    failed = conditions.get("Failed", {})
    name = full_name(obj)
    if failed.get("status") == "True" and failed.get("reason") in ("BackoffLimitExceeded", "DeadlineExceeded"):
        return Progress(False, failed=[f"[{failed['reason']}] {failed.get('message', '')}"])
    if not status.get("startTime"):
        return Progress(False, f'Waiting for Job "{name}" to start')
    counts = " | ".join(f"{count.capitalize()}: {status.get(count, 0)}" for count in ("active", "succeeded", "failed"))
    done = conditions.get("Complete", {}).get("status") == "True"
    return Progress(done, f'Waiting for Job "{name}" to succeed ({counts})')


def _daemon_set(obj: Object) -> Progress:
    """All scheduled pods are updated, ready and available."""
    status = obj.get("status", {})
    desired = status.get("desiredNumberScheduled", 0)
    counts = {count: status.get(count, 0) for count in ("updatedNumberScheduled", "numberAvailable", "numberReady")}
    ready = status.get("observedGeneration", 0) >= obj["metadata"]["generation"] and all(
        count >= desired for count in counts.values()
    )
    shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
    return Progress(ready, f"Waiting for DaemonSet {full_name(obj)} on {desired} nodes ({shown})")


READY: dict[str, Callable[[Object], Progress]] = {"DaemonSet": _daemon_set, "Job": _job}
_VOLUMES = {"PersistentVolume": _volume, "PersistentVolumeClaim": _claim}


def conditions() -> dict[str, str]:
    """What a create or update of each kind waits for, in words; the other kinds are not waited for."""
    return {kind: str(check.__doc__).strip().rstrip(".") for kind, check in (READY | _VOLUMES).items()}


def _conditions(obj: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in obj.get("status", {}).get("conditions") or []}


def pod_messages(api: Api, owner: Object) -> list[str]:
    """Why the owner's pods failed: exit codes, and the last log lines if the pod reports them."""
    try:
        pods = api.list(POD, owner["metadata"].get("namespace", ""))
    except (ApiError, UnreachableError):
        return []
    uid = owner["metadata"]["uid"]
    owned = [pod for pod in pods if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or [])]
    return [message for pod in owned if (message := _pod_message(pod))]


def _pod_message(pod: Object) -> str:
    status = pod.get("status", {})
    conditions = _conditions(pod)
    checked = [conditions.get(name, {}) for name in ("PodScheduled", "Initialized", "Ready")]
    false = next((c for c in checked if c.get("status") != "True"), None)
    if false is None or status.get("phase") == "Succeeded" or false.get("type") == "PodScheduled":
        return ""
    errors = [error for container in status.get("containerStatuses") or [] for error in _container_errors(container)]
    reason = false.get("message", "") if false.get("reason") else ""
    if not errors and not false.get("message"):
        return ""
    return f"[Pod {full_name(pod)}]: {reason}" + "\n".join(errors)


def _container_errors(status: Object) -> list[str]:
    waiting = status.get("state", {}).get("waiting")
    if waiting and waiting.get("reason") != "ContainerCreating":
        return [f"[{waiting.get('reason', '')}] {waiting.get('message', '')}"]
    ended = status.get("state", {}).get("terminated")
    if ended and ended.get("message"):
        return [f"[{ended['reason']}] {ended['message']}"]
    return [f'container "{status["name"]}" completed with exit code {ended["exitCode"]}'] if ended else []
