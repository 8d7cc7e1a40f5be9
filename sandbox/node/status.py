"""A pod's status, worked out from how its containers' runs went."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.cluster.api import Object, rfc3339
from sandbox.node.run import Run, backoff, read_json, tail

OVER = ("Succeeded", "Failed")
_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80
_FALLBACK = "FallbackToLogsOnError"


@dataclass(frozen=True)
class Seen:
    """All that a pod's status depends on."""

    pod: Object
    runs: dict[str, list[Run]]
    pod_ip: str
    host_ip: str
    started: float
    stopping: bool
    late: bool
    problem: tuple[str, str] | None

    def containers(self, group: str) -> list[Object]:
        return list(self.pod["spec"].get(group) or [])

    def latest(self, group: str) -> list[Run | None]:
        """The last run of each container of the group."""
        found = (self.runs[container["name"]] for container in self.containers(group))
        return [runs[-1] if runs else None for runs in found]


def restarts(pod: Object, ended: Object, init: bool) -> bool:
    """Whether a container that ended so is run again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    return bool(policy != "Never" and (ended["code"] != 0 or (policy == "Always" and not init)))


def pod_phase(seen: Seen) -> str:
    init, main = seen.latest("initContainers"), seen.latest("containers")
    if any(run and run.ended() is None for run in init + main):
        return "Running" if any(run and (run.running() or run.ended()) for run in main) else "Pending"
    ends = [run.ended() if run else None for run in init + main]
    never = seen.pod["spec"].get("restartPolicy") == "Never"
    init_failed = never and any(end and end["code"] != 0 for end in ends[: len(init)])
    if not seen.stopping and not init_failed:
        if None in ends:
            return "Pending"
        if any(end and restarts(seen.pod, end, init=False) for end in ends[len(init) :]):
            return "Running"
    return "Succeeded" if all(end and end["code"] == 0 for end in ends) and not seen.late else "Failed"


def pod_status(seen: Seen, before: Object) -> Object:
    """The status to report; `before` is the one reported last, whose conditions keep their times."""
    phase = pod_phase(seen)
    over = phase in OVER
    init = [_container_status(seen, container, True) for container in seen.containers("initContainers")]
    main = [_container_status(seen, container, False) for container in seen.containers("containers")]
    incomplete = [status["name"] for status in init if not status["ready"]]
    unready = [status["name"] for status in main if not status["ready"]]
    uninitialized = _because("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    not_ready = _because("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    if phase == "Succeeded":
        not_ready = _because("PodCompleted", None)
    is_false = {
        "PodReadyToStartContainers": _because(None, None) if over else None,
        "Initialized": uninitialized if incomplete else None,
        "ContainersReady": not_ready if unready or over else None,
        "Ready": not_ready if unready or over else None,
    }
    status: Object = {
        "phase": phase,
        "hostIP": seen.host_ip,
        "hostIPs": [{"ip": seen.host_ip}],
        "podIP": seen.pod_ip,
        "podIPs": [{"ip": seen.pod_ip}],
        "startTime": rfc3339(seen.started),
        "initContainerStatuses": init,
        "containerStatuses": main,
        "conditions": [_condition(kind, why, before) for kind, why in is_false.items()],
    }
    return status | (_because("DeadlineExceeded", "it ran longer than activeDeadlineSeconds") if seen.late else {})


def _because(reason: str | None, message: str | None) -> Object:
    return {"reason": reason, "message": message}


def _condition(kind: str, why_not: Object | None, before: Object) -> Object:
    value = "True" if why_not is None else "False"
    old = next((c for c in before.get("conditions", []) if c["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == value else rfc3339(time.time())
    # Nulls take away what an earlier report said.
    return {"type": kind, "status": value, "lastTransitionTime": since} | (why_not or _because(None, None))


def _container_status(seen: Seen, container: Object, init: bool) -> Object:
    runs = seen.runs[container["name"]]
    run = runs[-1] if runs else None
    ended = run.ended() if run else None
    running = run.running() if run and not ended else None
    last = _terminated(container, runs[-2]) if len(runs) > 1 else None
    if run and ended:
        state = {"terminated": _terminated(container, run)}
        if not seen.stopping and restarts(seen.pod, ended, init):
            last = state["terminated"]
            wait = f"back-off {backoff(len(runs)):g}s restarting failed container={container['name']}"
            state = {"waiting": _because("CrashLoopBackOff", wait)}
    elif running:
        state = {"running": {"startedAt": rfc3339(running["started"])}}
    else:
        state = {"waiting": _because(*(seen.problem or ("ContainerCreating" if init else "PodInitializing", "")))}
    # The API server merges maps, so the states that are no more are named and nulled.
    gone = dict.fromkeys(("waiting", "running", "terminated"))
    status: Object = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "state": gone | state,
        "lastState": gone | ({"terminated": last} if last else {}),
        "ready": bool(ended and ended["code"] == 0) if init else bool(running),
        "started": bool(running),
        "restartCount": max(len(runs) - 1, 0),
    }
    return status | ({"containerID": f"process://{running['pid']}"} if running else {})


def _terminated(container: Object, run: Run) -> Object:
    ended = run.ended() or {}
    reason = "StartError" if ended["error"] else "Completed" if ended["code"] == 0 else "Error"
    told: Object = {"exitCode": ended["code"], "reason": reason}
    told |= {"startedAt": rfc3339(ended["started"]), "finishedAt": rfc3339(ended["finished"])}
    if ended["signal"]:
        told["signal"] = ended["signal"]
    message = ended["error"] or _message(container, run, ended["code"])
    return told | ({"message": message} if message else {})


def _message(container: Object, run: Run, code: int) -> str:
    """The termination message: what the container left, or the end of its log when that is asked for."""
    spec = read_json(run.folder / "spec.json")
    if spec is None:
        return ""
    left = (run.folder / "message").read_bytes()[:4096].decode(errors="replace")
    if left or code == 0 or container.get("terminationMessagePolicy") != _FALLBACK:
        return left
    return "\n".join(tail(Path(spec["log"]), _MESSAGE_BYTES).splitlines()[-_MESSAGE_LINES:])
