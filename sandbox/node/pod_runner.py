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
from sandbox.node.container_files import ContainerSpec, Mount, read_json, write_json
from sandbox.node.container_run import ContainerRun
from sandbox.node.machine_files import is_inside, machine_mounts
from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError
from sandbox.node.pod_status import FINAL_PHASES, Group, PodState, containers, pod_status, restarts
from sandbox.node.pod_volumes import IAM_TOKEN_FOLDER, PodVolumes, Volume, hosts_file, write
from tools.kubernetes_client import POD, STRATEGIC, Api, ApiError, Object, UnreachableError

TICK_SECONDS = 0.1
IDLE_SECONDS = 1.0
RETRY_SECONDS = 2.0
DEFAULT_GRACE_SECONDS = 30
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The fields of a container that work here. The node refuses all others, except those that a plain process can ignore.
SUPPORTED_FIELDS = {
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
IGNORED_FIELDS = {
    "imagePullPolicy",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resources",
    "startupProbe",
    "stdin",
    "tty",
}
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
        # The files of a running pod are lost. A kubelet, too, then reports its containers as failed.
        self.files_lost = not self.folder.exists() and pod.get("status", {}).get("phase") == "Running"
        self.context = PodContext(machine.api, pod, pod_ip, host_ip)
        self.kill_at: float | None = None
        self.deadline_exceeded = False
        self.deleted = False
        self.detached = False
        self.reported: Object = {}
        self.problem: tuple[str, str] | None = None
        self.retry_at = 0.0
        self.volumes = PodVolumes(self.context, self.folder / "volumes", machine.volumes)
        self.prepared: dict[str, Volume] | None = None
        self.iam_role: tuple[dict[str, str], Volume | None] = ({}, None)
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
        for run in self._latest_runs():
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
            return self._terminate(metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        if self.reported.get("phase") not in FINAL_PHASES and time.time() > self.retry_at:
            self._check_deadline()
            self._start_containers()
        self._report()
        return False

    def _runs(self, container: Container) -> list[ContainerRun]:
        folder = self.folder / "containers" / container["name"]
        return sorted((ContainerRun(path) for path in folder.glob("[0-9]*")), key=lambda run: int(run.folder.name))

    def _containers(self, *groups: Group) -> list[Container]:
        return [container for group in groups for container in containers(self.pod, group)]

    def _latest_runs(self) -> list[ContainerRun]:
        """The latest run of each container that ever ran."""
        all_containers = self._containers("initContainers", "containers")
        return [runs[-1] for container in all_containers if (runs := self._runs(container))]

    def _start_containers(self) -> None:
        try:
            if self.prepared is None:
                self.prepared, self.iam_role = self.volumes.prepare(), self.volumes.iam_role()
            self.volumes.renew_tokens()
            if self.files_lost:
                self._record_lost_containers()
            for container in self._containers("initContainers"):
                runs = self._runs(container)
                ended = runs[-1].ended() if runs else None
                if ended is None or ended.code != 0:
                    self._start_if_due(container, init=True)
                    return
            for container in self._containers("containers"):
                self._start_if_due(container, init=False)
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

    def _record_lost_containers(self) -> None:
        for container in self._containers("containers"):
            folder = self.folder / "containers" / container["name"] / "0"
            folder.mkdir(parents=True, exist_ok=True)
            container_run.killed(None).write(folder)
        self.files_lost = False

    def _start_if_due(self, container: Container, init: bool) -> None:
        runs = self._runs(container)
        if runs:
            ended = runs[-1].ended()
            if ended is None or not restarts(self.pod, ended, init):
                return
            if time.time() < ended.finished + container_run.backoff(len(runs)):
                return
        self._start(container, len(runs))

    def _start(self, container: Container, number: int) -> None:
        if unknown := sorted(container.keys() - SUPPORTED_FIELDS - IGNORED_FIELDS):
            raise UnsupportedError(f"container {container['name']}: {', '.join(unknown)} is not supported")
        folder = self.folder / "containers" / container["name"] / str(number)
        spec = self._spec(container, folder)
        for needed in (folder, Path(spec.log).parent):
            needed.mkdir(parents=True, exist_ok=True)
        write(self.folder / "hosts", hosts_file(self.context), 0o644)
        write(folder / "message", b"", 0o666)
        container_run.start(folder, spec)
        self.machine.log(f"{self._label()}: container {container['name']} starts, log {spec.log}")

    def _spec(self, container: Container, folder: Path) -> ContainerSpec:
        metadata, hostname = self.pod["metadata"], self.context.hostname
        role_env, role_token = self.iam_role
        defaults = {
            "HOME": "/root",
            "HOSTNAME": hostname,
            "PATH": f"{self.machine.path}:{_SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": self.machine.aws_endpoint,
        }
        env = {key: value for key, value in defaults.items() if value} | role_env
        env |= variables(self.context, container)
        mounts = [self._mount(mount) for mount in container.get("volumeMounts") or []]
        if role_token:
            mounts.append(Mount(str(role_token.folder), IAM_TOKEN_FOLDER, readonly=True))
        message = container.get("terminationMessagePath") or "/dev/termination-log"
        mounts.append(Mount(str(folder / "message"), message, readonly=False))
        mounts.append(Mount(str(self.folder / "hosts"), "/etc/hosts", readonly=False))
        log = self.machine.log_folder(metadata["namespace"], metadata["name"], self.uid)
        context = _security_context(container)
        return ContainerSpec(
            argv=command(container, env),
            env=env,
            cwd=container.get("workingDir") or "/",
            address=self.context.pod_ip,
            hostname="" if self.pod["spec"].get("hostNetwork") else hostname,
            log=str(log / container["name"] / f"{folder.name}.log"),
            machine=machine_mounts(),
            mounts=mounts,
            readonly_root=bool(context.get("readOnlyRootFilesystem")),
            drop_capabilities=bool(context.get("capabilities")),
            forbid_new_privileges=context.get("allowPrivilegeEscalation") is False,
        )

    def _mount(self, mount: VolumeMount) -> Mount:
        if unknown := sorted(mount.keys() - {"name", "mountPath", "readOnly", "recursiveReadOnly", "subPath"}):
            raise UnsupportedError(f"volumeMount {mount['name']}: {', '.join(unknown)} is not supported")
        assert self.prepared is not None
        volume = self.prepared[mount["name"]]
        source = (volume.folder / mount.get("subPath", "")).resolve()
        # A pod may have put a link to other files of this machine into the volume.
        if not is_inside(str(source), str(volume.folder.resolve())):
            raise UnsupportedError(f"volumeMount {mount['name']}: subPath {mount.get('subPath')} leaves the volume")
        if not source.exists():
            source.mkdir(parents=True)
        return Mount(str(source), mount["mountPath"], volume.readonly or bool(mount.get("readOnly")))

    # The end of the pod.

    def _check_deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds and time.time() > self._start_time() + seconds:
            self.deadline_exceeded = True
            self.signal(signal.SIGKILL)

    def _terminate(self, grace: float) -> bool:
        if self.kill_at is None:
            self.kill_at = time.time() + grace
            self.signal(signal.SIGTERM)
        if time.time() > self.kill_at:
            self.signal(signal.SIGKILL)
        self._report()
        if any(run.ended() is None for run in self._latest_runs()):
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
            runs={each["name"]: self._runs(each) for each in self._containers("initContainers", "containers")},
            pod_ip=self.context.pod_ip,
            host_ip=self.context.host_ip,
            started=self._start_time(),
            terminating=self.kill_at is not None or self.deadline_exceeded,
            deadline_exceeded=self.deadline_exceeded,
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
    unknown = sorted(context.keys() - SECURITY_CONTEXT)
    if (context.get("capabilities") or {}) not in ({}, {"drop": ["ALL"]}):
        unknown.append("capabilities other than drop: [ALL]")
    if unknown:
        raise UnsupportedError(f"container {container['name']}: securityContext: {', '.join(unknown)} is not supported")
    return context


def delete_now(api: Api, pod: Pod) -> None:
    """Remove the pod from the API server. Finalizers may keep the object a little longer."""
    metadata = pod["metadata"]
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    with contextlib.suppress(ApiError):
        path = POD.path(metadata["namespace"], metadata["name"])
        api.request("DELETE", path, now | {"preconditions": {"uid": metadata["uid"]}})
