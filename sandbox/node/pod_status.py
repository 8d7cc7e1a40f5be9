"""The status of a pod, computed from the runs of its containers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.cluster.objects import Container, Pod
from sandbox.node.container_run import ContainerRun, tail
from sandbox.node.run_files import ContainerSpec, Ended
from tools.kubernetes_client import Object, rfc3339

FINAL_PHASES = ("Succeeded", "Failed")
Group = Literal["initContainers", "containers"]
_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80
_FALLBACK = "FallbackToLogsOnError"


@dataclass(frozen=True)
class PodState:
    """Everything that the status of a pod depends on."""

    pod: Pod
    folder: Path  # of the runs
    pod_ip: str
    host_ip: str
    started: float
    terminating: bool
    problem: tuple[str, str] | None

    def run(self, container: Container) -> ContainerRun | None:
        """The run of a container; None if it was not started."""
        found = ContainerRun(self.folder / container["name"])
        return found if found.started else None

    def runs(self, group: Group) -> list[ContainerRun | None]:
        return [self.run(container) for container in containers(self.pod, group)]


def containers(pod: Pod, group: Group) -> list[Container]:
    return pod["spec"].get(group) or []


def pod_phase(state: PodState) -> str:
    init, main = state.runs("initContainers"), state.runs("containers")
    ends = [run.ended() if run else None for run in init + main]
    if any(run and end is None for run, end in zip(init + main, ends, strict=True)):
        return "Running" if any(run and (run.running() or run.ended()) for run in main) else "Pending"
    init_failed = any(end and end.code for end in ends[: len(init)])
    if None in ends and not init_failed and not state.terminating:
        return "Pending"
    return "Succeeded" if all(end and end.code == 0 for end in ends) else "Failed"


def pod_status(state: PodState, previous: Object) -> Object:
    """The status to report. Conditions that are as in the previous report keep their times."""
    phase = pod_phase(state)
    final = phase in FINAL_PHASES
    init = [_container_status(state, container, True) for container in containers(state.pod, "initContainers")]
    main = [_container_status(state, container, False) for container in containers(state.pod, "containers")]
    incomplete = [status["name"] for status in init if not status["ready"]]
    unready = [status["name"] for status in main if not status["ready"]]
    uninitialized = _reason("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    not_ready = _reason("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    if phase == "Succeeded":
        not_ready = _reason("PodCompleted", None)
    why_false = {
        "PodReadyToStartContainers": _reason(None, None) if final else None,
        "Initialized": uninitialized if incomplete else None,
        "ContainersReady": not_ready if unready or final else None,
        "Ready": not_ready if unready or final else None,
    }
    return {
        "phase": phase,
        "hostIP": state.host_ip,
        "hostIPs": [{"ip": state.host_ip}],
        "podIP": state.pod_ip,
        "podIPs": [{"ip": state.pod_ip}],
        "startTime": rfc3339(state.started),
        "initContainerStatuses": init,
        "containerStatuses": main,
        "conditions": [_condition(kind, reason, previous) for kind, reason in why_false.items()],
    }


def _reason(reason: str | None, message: str | None) -> Object:
    return {"reason": reason, "message": message}


def _condition(kind: str, why_false: Object | None, previous: Object) -> Object:
    value = "True" if why_false is None else "False"
    old = next((c for c in previous.get("conditions", []) if c["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == value else rfc3339(time.time())
    # The status is merged into the object, so only null removes the reason of an earlier report.
    return {"type": kind, "status": value, "lastTransitionTime": since} | (why_false or _reason(None, None))


def _container_status(state: PodState, container: Container, init: bool) -> Object:
    run = state.run(container)
    ended = run.ended() if run else None
    running = run.running() if run and not ended else None
    if run and ended:
        now = {"terminated": _terminated(container, run, ended)}
    elif running:
        now = {"running": {"startedAt": rfc3339(running.started)}}
    else:
        now = {"waiting": _reason(*(state.problem or ("ContainerCreating" if init else "PodInitializing", "")))}
    # The status is merged into the object, so only null removes the states of an earlier report.
    removed = dict.fromkeys(("waiting", "running", "terminated"))
    status: Object = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "state": removed | now,
        "lastState": {},
        "ready": bool(ended and ended.code == 0) if init else bool(running),
        "started": bool(running),
        "restartCount": 0,
    }
    return status | ({"containerID": f"process://{running.pid}"} if running else {})


def _terminated(container: Container, run: ContainerRun, ended: Ended) -> Object:
    state: Object = {
        "exitCode": ended.code,
        "reason": "StartError" if ended.error else "Completed" if ended.code == 0 else "Error",
        "startedAt": rfc3339(ended.started),
        "finishedAt": rfc3339(ended.finished),
    }
    if ended.signal:
        state["signal"] = ended.signal
    message = ended.error or _message(container, run, ended.code)
    return state | ({"message": message} if message else {})


def _message(container: Container, run: ContainerRun, code: int) -> str:
    """The end of the log of a failed container, if its policy says so."""
    spec = ContainerSpec.read(run.folder)
    if spec is None or code == 0 or container.get("terminationMessagePolicy") != _FALLBACK:
        return ""
    return "\n".join(tail(Path(spec.log), _MESSAGE_BYTES).splitlines()[-_MESSAGE_LINES:])
