"""Runs one pod from start to end, as a kubelet does, and reports its status to the API server."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.cluster.objects import Container, Pod, VolumeMount
from sandbox.node import container_run
from sandbox.node.container_environment import command, variables
from sandbox.node.container_run import ContainerRun
from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError, refuse_others
from sandbox.node.pod_status import FINAL_PHASES, Group, PodState, containers, pod_status
from sandbox.node.pod_volumes import PodVolumes, Volume, hosts_file, write
from sandbox.node.run_files import ContainerSpec, Mount, read_json, write_json
from sandbox.node.visible_files import machine_mounts
from tools.kubernetes_client import POD, STRATEGIC, Api, ApiError, Object, UnreachableError

TICK_SECONDS = 0.1
IDLE_SECONDS = 1.0
RETRY_SECONDS = 2.0
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The fields of a container that work here. The node refuses all others, except those that a plain process can ignore.
SUPPORTED_FIELDS = {
    "command",
    "env",
    "image",
    "name",
    "securityContext",
    "terminationMessagePolicy",
    "volumeMounts",
}
IGNORED_FIELDS = {"imagePullPolicy", "ports", "resources", "terminationMessagePath"}
SECURITY_CONTEXT = {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}


@dataclass(frozen=True)
class Machine:
    """What all pods of one node process share."""

    api: Api
    root: Path
    path: str
    aws_endpoint: str
    log: Callable[[str], None]

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def log_folder(self, namespace: str, name: str, uid: str) -> Path:
        return self.root / "logs" / f"{namespace}_{name}_{uid}"


class PodRunner:
    """Checks one pod regularly and takes the next step."""

    def __init__(self, machine: Machine, pod: Pod, pod_ip: str, host_ip: str) -> None:
        self.uid = pod["metadata"]["uid"]
        self.machine, self.pod = machine, pod
        self.folder = machine.pods / self.uid
        self.context = PodContext(machine.api, pod, pod_ip, host_ip)
        self.kill_at: float | None = None
        self.deleted = False
        self.detached = False
        self.reported: Object = {}
        self.problem: tuple[str, str] | None = None
        self.retry_at = 0.0
        self.volumes = PodVolumes(self.context, self.folder / "volumes", machine.volumes)
        self.prepared: dict[str, Volume] | None = None
        self.wake = threading.Event()
        self.thread = threading.Thread(target=self._work, name=self.uid, daemon=True)

    # Called by the kubelet.

    def update(self, pod: Pod) -> None:
        """The API server has a newer version of the pod."""
        self.pod = pod
        self.wake.set()

    def forget(self) -> None:
        """The API server does not have the pod any more: end its processes and report nothing."""
        self.deleted = True
        self.wake.set()

    def signal(self, number: int) -> None:
        """Send a signal to the process of each running container."""
        for run in self._runs("initContainers", "containers"):
            run.signal(number)

    # The work of the thread.

    def _work(self) -> None:
        while not self.detached:
            self.wake.wait(TICK_SECONDS if self.reported.get("phase") not in FINAL_PHASES else IDLE_SECONDS)
            self.wake.clear()
            try:
                if self._step():
                    break
            except (ApiError, UnreachableError, OSError) as problem:
                self._retry_later("ContainerCreating", str(problem))
        if not self.detached:
            container_run.end_containers(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _step(self) -> bool:
        """Take one step; returns True when the pod is gone."""
        metadata = self.pod["metadata"]
        if self.deleted:
            return True
        if metadata.get("deletionTimestamp"):
            return self._terminate(metadata["deletionGracePeriodSeconds"])
        if self.reported.get("phase") not in FINAL_PHASES and time.time() > self.retry_at:
            self._start_containers()
        self._report()
        return False

    def _run(self, container: Container) -> ContainerRun:
        return ContainerRun(self.folder / "containers" / container["name"])

    def _runs(self, *groups: Group) -> list[ContainerRun]:
        """The runs of the containers that were started."""
        runs = [self._run(container) for group in groups for container in containers(self.pod, group)]
        return [run for run in runs if run.started]

    def _start_containers(self) -> None:
        try:
            if self.prepared is None:
                self.context.check()
                self.prepared = self.volumes.prepare()
            self.volumes.renew_tokens()
            for container in containers(self.pod, "initContainers"):
                self._start(container)
                ended = self._run(container).ended()
                if ended is None or ended.code != 0:
                    return
            for container in containers(self.pod, "containers"):
                self._start(container)
        except NotReadyError as problem:
            self._retry_later("ContainerCreating", str(problem))
        except UnsupportedError as problem:
            self._retry_later("CreateContainerConfigError", f"the sandbox's node: {problem}")
        else:
            self.problem = None

    def _retry_later(self, reason: str, message: str) -> None:
        if self.problem != (reason, message):
            self.machine.log(f"{self._label()}: {message}")
        self.problem = (reason, message)
        self.retry_at = time.time() + RETRY_SECONDS

    def _start(self, container: Container) -> None:
        """Start the container, unless it was started already."""
        if (run := self._run(container)).started:
            return
        refuse_others(f"container {container['name']}", container.keys(), SUPPORTED_FIELDS | IGNORED_FIELDS)
        spec = self._spec(container)
        write(self.folder / "hosts", hosts_file(self.context))
        for needed in (Path(spec.log).parent, run.folder):
            needed.mkdir(parents=True, exist_ok=True)
        container_run.start(run.folder, spec)
        self.machine.log(f"{self._label()}: container {container['name']} starts, log {spec.log}")

    def _spec(self, container: Container) -> ContainerSpec:
        metadata, hostname = self.pod["metadata"], self.context.hostname
        defaults = {
            "HOME": "/root",
            "HOSTNAME": hostname,
            "PATH": f"{self.machine.path}:{_SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": self.machine.aws_endpoint,
        }
        env = {key: value for key, value in defaults.items() if value} | variables(self.context, container)
        mounts = [self._mount(mount) for mount in container.get("volumeMounts") or []]
        mounts.append(Mount(str(self.folder / "hosts"), "/etc/hosts", readonly=False))
        log = self.machine.log_folder(metadata["namespace"], metadata["name"], self.uid)
        context = _security_context(container)
        return ContainerSpec(
            argv=command(container, env),
            env=env,
            address=self.context.pod_ip,
            hostname=hostname,
            log=str(log / f"{container['name']}.log"),
            machine=machine_mounts(),
            mounts=mounts,
            readonly_root=bool(context.get("readOnlyRootFilesystem")),
            drop_capabilities=bool(context.get("capabilities")),
            forbid_new_privileges=context.get("allowPrivilegeEscalation") is False,
        )

    def _mount(self, mount: VolumeMount) -> Mount:
        refuse_others(f"volumeMount {mount['name']}", mount.keys(), {"name", "mountPath", "readOnly"})
        assert self.prepared is not None
        volume = self.prepared[mount["name"]]
        return Mount(str(volume.folder), mount["mountPath"], volume.readonly or bool(mount.get("readOnly")))

    # The end of the pod.

    def _terminate(self, grace: float) -> bool:
        if self.kill_at is None:
            self.kill_at = time.time() + grace
            self.signal(signal.SIGTERM)
        if time.time() > self.kill_at:
            self.signal(signal.SIGKILL)
        self._report()
        if any(run.ended() is None for run in self._runs("initContainers", "containers")):
            return False
        delete_now(self.machine.api, self.pod)
        self.machine.log(f"{self._label()}: deleted")
        return True

    # The status that the node reports.

    def _label(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    def _state(self) -> PodState:
        return PodState(
            pod=self.pod,
            folder=self.folder / "containers",
            pod_ip=self.context.pod_ip,
            host_ip=self.context.host_ip,
            started=self._start_time(),
            terminating=self.kill_at is not None,
            problem=self.problem,
        )

    def _start_time(self) -> float:
        found = read_json(self.folder / "started.json")
        if found is None:
            found = {"at": time.time()}
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "started.json", found)
        return float(found["at"])

    def _report(self) -> None:
        status = pod_status(self._state(), self.reported)
        if status == self.reported:
            return
        metadata = self.pod["metadata"]
        path = POD.path(metadata["namespace"], metadata["name"], "status")
        body = {"metadata": {"uid": self.uid}, "status": status}
        try:
            self.machine.api.request("PATCH", path, body, None, STRATEGIC)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            # The pod is gone, or a new pod has its name.
            self.forget()
            return
        if status["phase"] != self.reported.get("phase") and status["phase"] != "Pending":
            self.machine.log(f"{self._label()}: {status['phase']}")
        self.reported = status


def _security_context(container: Container) -> Object:
    """The security context of a container, after a check that this node supports it."""
    context = container.get("securityContext") or {}
    what = f"container {container['name']}: securityContext"
    refuse_others(what, context, SECURITY_CONTEXT)
    if (context.get("capabilities") or {}) not in ({}, {"drop": ["ALL"]}):
        raise UnsupportedError(f"{what}: capabilities other than drop: [ALL] is not supported")
    return context


def delete_now(api: Api, pod: Pod) -> None:
    """Remove the pod from the API server. Finalizers may keep the object a little longer."""
    metadata = pod["metadata"]
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    with contextlib.suppress(ApiError):
        path = POD.path(metadata["namespace"], metadata["name"])
        api.request("DELETE", path, now | {"preconditions": {"uid": metadata["uid"]}})
