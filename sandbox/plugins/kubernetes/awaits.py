"""When an object is ready or deleted: the rules and annotations of the official provider."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.plugins.kubernetes import annotation
from tools.kubernetes_client import POD, Api, ApiError, Kind, Object, UnreachableError

DEFAULT_SECONDS = 600.0
VOLUME_SECONDS = 300.0
_POLLS_PER_SECOND = 4
POLL_SECONDS = 1 / _POLLS_PER_SECOND

# Deleting one of these with skipAwait does not wait until it is gone.
_DELETE_SKIPS = {("v1", "Namespace"), ("v1", "Pod"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job")}


class NotReadyError(Exception):
    """The object exists and is not ready; contains its last state and the known reasons."""

    def __init__(self, message: str, live: Object, reasons: list[str]) -> None:
        super().__init__(message)
        self.live = live
        self.reasons = reasons


class AnnotationError(ValueError):
    """An annotation has an invalid value."""


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


def timeout(obj: Object, custom_timeout: float) -> float:
    """Seconds to wait: the resource's own option, the annotation, or ten minutes."""
    text = annotation.get(obj, annotation.TIMEOUT)
    return custom_timeout or (float(text) if re.fullmatch(r"[+-]?\d+", text) else DEFAULT_SECONDS)


def full_name(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace", "")
    return ("" if namespace in ("", "default") else namespace + "/") + str(obj["metadata"]["name"])


def until_ready(wait: Wait, kind: Kind, inputs: Object, live: Object, seconds: float, update: bool) -> Object:
    """Wait until the object is ready; raise NotReadyError when it fails or the time is over."""
    if annotation.is_true(inputs, annotation.SKIP_AWAIT):
        return live
    if given := annotation.get(live, annotation.WAIT_FOR):
        conditions = parse_wait_for(given)
        check: Callable[[Object], Progress] = lambda obj: _all(conditions, obj)  # noqa: E731
    elif (kind.api_version, kind.kind) == ("v1", "PersistentVolume"):
        check, seconds = _volume, VOLUME_SECONDS
    elif (kind.api_version, kind.kind) == ("v1", "PersistentVolumeClaim"):
        first = _binding_waits_for_a_pod(wait.api, live) and not update
        check, seconds = lambda obj: _claim(obj, first), VOLUME_SECONDS
    elif (kind.api_version, kind.kind) in READY:
        check = READY[kind.api_version, kind.kind]
    else:
        return live
    return _poll(wait, kind, live, seconds, check)


def readiness(api: Api, inputs: Object, live: Object) -> list[str] | None:
    """Why an object is not ready, for a refresh; None if it is ready."""
    check = READY.get((live["apiVersion"], live["kind"]))
    if check is None or annotation.is_true(inputs, annotation.SKIP_AWAIT):
        return None
    progress = check(live)
    return None if progress.ready else [*progress.failed, *pod_messages(api, live)]


def job_ready(live: Object) -> bool:
    return _job(live).ready


def until_gone(wait: Wait, kind: Kind, inputs: Object, live: Object, seconds: float) -> None:
    """Wait until the object is deleted, or another object has its name."""
    if annotation.is_true(inputs, annotation.SKIP_AWAIT) and (kind.api_version, kind.kind) in _DELETE_SKIPS:
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
        if kind.kind in ("Job", "DaemonSet") and (progress.failed or poll % _POLLS_PER_SECOND == 0):
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


def _volume(obj: Object) -> Progress:
    """Available or Bound, within 5 minutes."""
    phase = obj.get("status", {}).get("phase")
    return Progress(phase in ("Available", "Bound"), f"Waiting for the volume to be available (it is {phase})")


def _claim(obj: Object, first_consumer: bool) -> Progress:
    """Bound, or Pending if the storage class binds at the first use, within 5 minutes."""
    phase = obj.get("status", {}).get("phase")
    wanted = "Pending" if first_consumer else "Bound"
    return Progress(phase == wanted, f"Waiting for the claim to be {wanted} (it is {phase})")


def _binding_waits_for_a_pod(api: Api, claim: Object) -> bool:
    name = claim["spec"].get("storageClassName")
    storage_class = api.find(Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", False), "", name or "-")
    return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


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


def _pod(obj: Object) -> Progress:
    """Ready or Succeeded."""
    conditions = _conditions(obj)
    name = full_name(obj)
    for condition, doing in (("PodScheduled", "scheduled"), ("Initialized", "initialized")):
        if conditions.get(condition, {}).get("status") != "True":
            return Progress(False, f'Waiting for Pod "{name}" to be {doing}')
    ready = conditions.get("Ready", {}).get("status") == "True" or obj["status"].get("phase") == "Succeeded"
    return Progress(ready, f'Waiting for Pod "{name}" to be ready')


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


READY: dict[tuple[str, str], Callable[[Object], Progress]] = {
    ("apps/v1", "DaemonSet"): _daemon_set,
    ("batch/v1", "Job"): _job,
    ("v1", "Pod"): _pod,
}
_VOLUMES = {("v1", "PersistentVolume"): _volume, ("v1", "PersistentVolumeClaim"): _claim}


def conditions() -> dict[tuple[str, str], str]:
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
    if status.get("ready"):
        return []
    errors = []
    waiting = status.get("state", {}).get("waiting")
    if waiting and waiting.get("reason") != "ContainerCreating":
        errors.append(f"[{waiting.get('reason', '')}] {waiting.get('message', '')}")
    ended = status.get("state", {}).get("terminated")
    if ended and ended.get("reason"):
        if ended.get("message"):
            errors.append(f"[{ended['reason']}] {ended['message']}")
        else:
            errors.append(f'container "{status["name"]}" completed with exit code {ended["exitCode"]}')
    last = status.get("lastState", {}).get("terminated")
    if last:
        how = f"{last.get('reason', '')}: exit code {last['exitCode']}"
        errors.append(f'container "{status["name"]}" terminated at {last["finishedAt"]} ({how})')
        errors += [last["message"]] if last.get("message") else []
    return errors


@dataclass(frozen=True)
class Condition:
    """One expression in pulumi.com/waitFor."""

    text: str
    path: tuple[str | int, ...] = ()
    value: str = ""
    condition: str = ""

    def check(self, obj: Object) -> Progress:
        waiting = f"Waiting for {self.text}"
        observed = obj.get("status", {}).get("observedGeneration")
        if observed is not None and observed < obj["metadata"].get("generation", 0):
            return Progress(False, waiting)
        if self.condition:
            found = {name.lower(): value for name, value in _conditions(obj).items()}.get(self.condition.lower(), {})
            return Progress(str(found.get("status", "")).lower() == self.value.lower(), waiting)
        value: Any = obj
        for part in self.path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return Progress(False, waiting)
        if not self.value:
            return Progress(True, waiting)
        if isinstance(value, (dict, list)):
            raise AnnotationError(f"{annotation.WAIT_FOR}: {self.text} has a non-primitive value")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return Progress(shown == self.value, f"{waiting} (found {shown!r})")


def _all(conditions: list[Condition], obj: Object) -> Progress:
    looks = [condition.check(obj) for condition in conditions]
    return next((look for look in looks if not look.ready), looks[0])


_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]|\[(\d+)\]")


def parse_wait_for(text: str) -> list[Condition]:
    """Parse pulumi.com/waitFor: one expression, or a JSON list of expressions."""
    try:
        listed = json.loads(text)
    except ValueError:
        listed = [text]
    if not isinstance(listed, list) or not listed or not all(isinstance(item, str) for item in listed):
        raise AnnotationError(
            f"{annotation.WAIT_FOR}: expected an expression or a JSON list of at least one, got {text!r}"
        )
    return [_parse_expression(item) for item in listed]


def _parse_expression(text: str) -> Condition:
    if text.startswith("condition="):
        name, _, value = text.removeprefix("condition=").partition("=")
        return Condition(text, condition=name, value=value or "True")
    match = re.fullmatch(r"jsonpath=\{\s*\$?(.*?)\s*\}(?:=(.+))?", text)
    if not match:
        known = "jsonpath={.path}, jsonpath={.path}=value or condition=Name"
        raise AnnotationError(f"{annotation.WAIT_FOR}: expected {known}, got {text!r}")
    steps = list(_STEP.finditer(match[1]))
    if not steps or "".join(step[0] for step in steps) != match[1]:
        # Filters, wildcards and slices of JSONPath are not implemented here.
        known = "the emulated provider supports .name, ['name'] and [number] in a path"
        raise AnnotationError(f"{annotation.WAIT_FOR}: {known}, got {match[1]!r}")
    path = tuple(int(step[3]) if step[3] else step[1] or step[2] for step in steps)
    return Condition(text, path=path, value=match[2] or "")
