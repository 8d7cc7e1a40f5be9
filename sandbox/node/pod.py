"""One pod, from its start to its end: what a kubelet does with it, and what it tells the API server about it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.cluster.api import POD, STRATEGIC, Api, ApiError, Object, UnreachableError
from sandbox.node.container import write_json
from sandbox.node.environment import command, variables
from sandbox.node.place import NotYetError, Place, UnsupportedError
from sandbox.node.run import Run, backoff, end_processes, lost, read_json, start
from sandbox.node.status import OVER, Seen, pod_status, restarts
from sandbox.node.volumes import IAM_TOKEN_FOLDER, Volume, Volumes, hosts_file, write

TICK_SECONDS = 0.1
IDLE_SECONDS = 1.0
RETRY_SECONDS = 2.0
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What a container may ask for here; the rest is refused, but for _IGNORED, which a plain process can do without.
_OBEYED = {
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "name",
    "securityContext",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
    "workingDir",
}
_IGNORED = {
    "imagePullPolicy",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resources",
    "startupProbe",
    "stdin",
    "tty",
}


@dataclass(frozen=True)
class Machine:
    """What all pods of this node process share."""

    api: Api
    root: Path
    path: str
    endpoint: str
    say: Callable[[str], None]

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def log_folder(self, namespace: str, name: str, uid: str) -> Path:
        return self.root / "logs" / f"{namespace}_{name}_{uid}"


class PodRunner:
    """Looks at one pod again and again, and does what it takes next."""

    def __init__(self, machine: Machine, pod: Object, pod_ip: str, host_ip: str) -> None:
        self.uid: str = pod["metadata"]["uid"]
        self.machine, self.pod = machine, pod
        self.folder = machine.pods / self.uid
        # It ran under a node whose records are gone; a kubelet, too, then calls its containers failed.
        self.lost = not self.folder.exists() and pod.get("status", {}).get("phase") == "Running"
        self.place = Place(machine.api, pod, pod_ip, host_ip)
        self.stop_at: float | None = None
        self.late = False
        self.forgotten = False
        self.detached = False
        self.sent: Object = {}
        self.problem: tuple[str, str] | None = None
        self.retry_at = 0.0
        self.volumes = Volumes(self.place, self.folder / "volumes", machine.volumes)
        self.mounted: dict[str, Volume] | None = None
        self.role: tuple[dict[str, str], Volume | None] = ({}, None)
        self.wake = threading.Event()
        self.thread = threading.Thread(target=self._work, name=self.uid, daemon=True)

    # What the node tells it.

    def update(self, pod: Object) -> None:
        """A newer version of the pod was seen."""
        self.pod = pod
        self.wake.set()

    def forget(self) -> None:
        """The pod is gone from the API server: end its processes, tell nobody."""
        self.forgotten = True
        self.wake.set()

    # What it does.

    def _work(self) -> None:
        while not self.detached:
            self.wake.wait(TICK_SECONDS if self.sent.get("phase") not in OVER else IDLE_SECONDS)
            self.wake.clear()
            try:
                if self._look():
                    break
            except (ApiError, UnreachableError, OSError) as problem:
                self._trouble("ContainerCreating", str(problem))
        if not self.detached:
            end_processes(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _look(self) -> bool:
        """One look at the pod; True when there is nothing left to do."""
        metadata = self.pod["metadata"]
        if self.forgotten:
            return True
        if metadata.get("deletionTimestamp"):
            return self._stop(metadata.get("deletionGracePeriodSeconds", 30))
        if self.sent.get("phase") not in OVER and time.time() > self.retry_at:
            self._check_deadline()
            self._go_on()
        self._report()
        return False

    def _runs(self, container: Object) -> list[Run]:
        folder = self.folder / "containers" / container["name"]
        return sorted((Run(path) for path in folder.glob("[0-9]*")), key=lambda run: int(run.folder.name))

    def _containers(self, group: str = "containers") -> list[Object]:
        return list(self.pod["spec"].get(group) or [])

    def _latest(self) -> list[Run]:
        """The last run of each container that ever ran."""
        containers = self._containers("initContainers") + self._containers()
        return [runs[-1] for container in containers if (runs := self._runs(container))]

    def _go_on(self) -> None:
        try:
            if self.mounted is None:
                self.mounted, self.role = self.volumes.prepare(), self.volumes.iam_role()
            self.volumes.renew_tokens()
            if self.lost:
                self._record_loss()
            for container in self._containers("initContainers"):
                runs = self._runs(container)
                if not runs or (runs[-1].ended() or {"code": 1})["code"] != 0:
                    self._start_if_due(container, init=True)
                    return
            for container in self._containers():
                self._start_if_due(container, init=False)
        except NotYetError as problem:
            self._trouble("ContainerCreating", str(problem))
        except UnsupportedError as problem:
            self._trouble("CreateContainerConfigError", f"this sandbox's node: {problem}")
        else:
            self.problem = None

    def _trouble(self, reason: str, message: str) -> None:
        if self.problem != (reason, message):
            self.machine.say(f"{self._label()}: {message}")
        self.problem = (reason, message)
        self.retry_at = time.time() + RETRY_SECONDS

    def _record_loss(self) -> None:
        for container in self._containers():
            folder = self.folder / "containers" / container["name"] / "0"
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "exit.json", lost(None))
        self.lost = False

    def _start_if_due(self, container: Object, init: bool) -> None:
        runs = self._runs(container)
        if runs:
            ended = runs[-1].ended()
            if (
                ended is None
                or not restarts(self.pod, ended, init)
                or time.time() < ended["finished"] + backoff(len(runs))
            ):
                return
        self._start(container, len(runs))

    def _start(self, container: Object, number: int) -> None:
        if unknown := sorted(container.keys() - _OBEYED - _IGNORED):
            raise UnsupportedError(f"container {container['name']}: {', '.join(unknown)} is not supported")
        folder = self.folder / "containers" / container["name"] / str(number)
        spec = self._spec(container, folder)
        for needed in (folder, self.folder / "home", self.folder / "tmp", Path(spec["log"]).parent):
            needed.mkdir(parents=True, exist_ok=True)
        write(self.folder / "hosts", hosts_file(self.place, self._hostname), 0o644)
        write(folder / "message", b"", 0o666)
        start(folder, spec)
        self.machine.say(f"{self._label()}: {container['name']} starts, log {spec['log']}")

    def _spec(self, container: Object, folder: Path) -> Object:
        spec, metadata = self.pod["spec"], self.pod["metadata"]
        env = variables(self.place, container)
        ours = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp"), "HOSTNAME": self._hostname}
        ours |= {"PATH": f"{self.machine.path}:{_SYSTEM_PATH}", "LANG": "C.UTF-8"}
        ours |= {"AWS_ENDPOINT_URL": self.machine.endpoint}
        env = {key: value for key, value in ours.items() if value} | self.role[0] | env
        mounts = [self._mount(mount) for mount in container.get("volumeMounts") or []]
        if self.role[1]:
            mounts.append({"source": str(self.role[1].folder), "target": IAM_TOKEN_FOLDER, "readonly": True})
        message = container.get("terminationMessagePath") or "/dev/termination-log"
        mounts.append({"source": str(folder / "message"), "target": message, "readonly": False})
        mounts.append({"source": str(self.folder / "hosts"), "target": "/etc/hosts", "readonly": False})
        log = self.machine.log_folder(metadata["namespace"], metadata["name"], self.uid)
        return {
            "argv": command(container, env),
            "env": env,
            "cwd": container.get("workingDir") or "/",
            "address": self.place.pod_ip,
            "hostname": "" if spec.get("hostNetwork") else self._hostname,
            "log": str(log / container["name"] / f"{folder.name}.log"),
            "mounts": mounts,
        } | _confinement(container)

    @property
    def _hostname(self) -> str:
        return str(self.pod["spec"].get("hostname") or self.pod["metadata"]["name"])

    def _mount(self, mount: Object) -> Object:
        if unknown := sorted(mount.keys() - {"name", "mountPath", "readOnly", "recursiveReadOnly", "subPath"}):
            raise UnsupportedError(f"volumeMount {mount['name']}: {', '.join(unknown)} is not supported")
        assert self.mounted is not None
        volume = self.mounted[mount["name"]]
        source = volume.folder / mount.get("subPath", "")
        if not source.exists():
            source.mkdir(parents=True)
        readonly = volume.readonly or bool(mount.get("readOnly"))
        return {"source": str(source), "target": mount["mountPath"], "readonly": readonly}

    # How it ends.

    def _check_deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds and time.time() > self._start_time() + seconds:
            self.late = True
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process of each container that runs."""
        for run in self._latest():
            run.signal(number)

    def _stop(self, grace: float) -> bool:
        if self.stop_at is None:
            self.stop_at = time.time() + grace
            self.signal(signal.SIGTERM)
        if time.time() > self.stop_at:
            self.signal(signal.SIGKILL)
        self._report()
        if any(run.ended() is None for run in self._latest()):
            return False
        delete_now(self.machine.api, self.pod)
        self.machine.say(f"{self._label()}: deleted")
        return True

    # What it tells.

    def _label(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def is_stopping(self) -> bool:
        """Whether no container is started any more."""
        return self.stop_at is not None or self.late

    def _seen(self) -> Seen:
        containers = self._containers("initContainers") + self._containers()
        return Seen(
            pod=self.pod,
            runs={container["name"]: self._runs(container) for container in containers},
            pod_ip=self.place.pod_ip,
            host_ip=self.place.host_ip,
            started=self._start_time(),
            stopping=self.is_stopping,
            late=self.late,
            problem=self.problem,
        )

    def _start_time(self) -> float:
        told = read_json(self.folder / "started.json")
        if told is None:
            told = {"at": time.time()}
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "started.json", told)
        return float(told["at"])

    def _report(self) -> None:
        status = pod_status(self._seen(), self.sent)
        if status == self.sent:
            return
        metadata = self.pod["metadata"]
        path = POD.path(metadata["namespace"], metadata["name"], "status")
        body = {"metadata": {"uid": self.uid}, "status": status}
        try:
            self.machine.api.request("PATCH", path, body, None, STRATEGIC)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            # It is gone, or another pod has its name.
            self.forget()
            return
        if status["phase"] != self.sent.get("phase") and status["phase"] != "Pending":
            self.machine.say(f"{self._label()}: {status['phase']}")
        self.sent = status


def _confinement(container: Object) -> Object:
    """What a container's security context takes from it."""
    context = container.get("securityContext") or {}
    unknown = sorted(context.keys() - {"allowPrivilegeEscalation", "capabilities"})
    if (dropped := context.get("capabilities") or {}) not in ({}, {"drop": ["ALL"]}):
        unknown.append("capabilities other than drop: [ALL]")
    if unknown:
        raise UnsupportedError(
            f"container {container['name']}: securityContext's {', '.join(unknown)} is not supported"
        )
    return {
        "without_capabilities": bool(dropped),
        "without_escalation": context.get("allowPrivilegeEscalation") is False,
    }


def delete_now(api: Api, pod: Object) -> None:
    """Tell the API server that nothing of the pod runs any more. Finalizers may keep the object a little longer."""
    metadata = pod["metadata"]
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    with contextlib.suppress(ApiError):
        path = POD.path(metadata["namespace"], metadata["name"])
        api.request("DELETE", path, now | {"preconditions": {"uid": metadata["uid"]}})
