"""A Kubernetes control plane on this machine: etcd, API server, scheduler and controllers, started by kwokctl."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import processes
from sandbox.errors import SandboxError
from tools.kubernetes_client import APPLY, NODE, SERVICE_ACCOUNT, Api, ApiError, UnreachableError, load_kubeconfig

CLUSTER = "sandbox"
SECONDS_TO_START = 60
SECONDS_TO_STOP = 10
TRIES = 3
PORTS = ("kubeApiserver", "etcd", "etcdPeer", "kubeControllerManager", "kubeScheduler", "kwokController")
ELECTED = ("kube-controller-manager", "kube-scheduler")
# A custom Stage disables all default Stages of kwok. These Stages manage nodes only; sandbox.node runs the pods.
NODE_STATUS = """
phase: Running
conditions:
{{ range NodeConditions }}
- {type: {{ .type }}, status: {{ .status | Quote }}, reason: {{ .reason }}, message: {{ .message | Quote }},
   lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ $.metadata.creationTimestamp | Quote }}}
{{ end }}
capacity: {cpu: "64", memory: 256Gi, ephemeral-storage: 256Gi, pods: "110"}
allocatable: {cpu: "64", memory: 256Gi, ephemeral-storage: 256Gi, pods: "110"}
addresses:
- {type: InternalIP, address: {{ index .metadata.annotations "sandbox/address" | Quote }}}
nodeInfo:
  {architecture: amd64, operatingSystem: linux, kubeletVersion: kwok, kernelVersion: "", osImage: "", machineID: "",
   bootID: "", systemUUID: "", containerRuntimeVersion: "", kubeProxyVersion: ""}
"""
READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'


@dataclass(frozen=True)
class WorkerNode:
    """A worker node as the scheduler sees it. Its pods have addresses in 127.<network>.<number>.0/24."""

    number: int
    zone: str
    instance_type: str
    network: int

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    def manifest(self) -> dict[str, Any]:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": self.zone,
            "topology.kubernetes.io/region": self.zone[:-1],
            "node.kubernetes.io/instance-type": self.instance_type,
        }
        annotations = {"kwok.x-k8s.io/node": "fake", "sandbox/address": f"127.{self.network}.{self.number}.254"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "annotations": annotations, "labels": labels},
            "spec": {"podCIDR": f"127.{self.network}.{self.number}.0/24"},
        }


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of one stack. All its files are in `folder`."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def port(self) -> int:
        config = yaml.safe_load(self.kubeconfig.read_text())
        return int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])

    @property
    def _cluster(self) -> Path:
        return self.folder / "clusters" / CLUSTER

    def up(self, binaries: Path, simulate_pods: bool) -> str:
        """Start or repair the control plane and wait until it answers; returns what was done."""
        if self.kubeconfig.exists():
            if self.answers() and not self.dead():
                return "already running"
            self.restart(binaries)
            self._await("the API server does not answer", self.answers)
            return "restarted the stopped components"
        for _ in range(TRIES):
            self.down()
            self.folder.mkdir(parents=True)
            config = self.folder / "kwok-config.yaml"
            config.write_text(
                yaml.safe_dump_all(_config(binaries, self._cluster / "pki", simulate_pods), sort_keys=False)
            )
            # With an empty --kubeconfig kwokctl does not touch the user's kubeconfig.
            self._kwokctl(binaries, "create", "--config", str(config), "--kubeconfig", "")
            processes.wait(lambda: self._answers_kwokctl() or bool(self.dead()), SECONDS_TO_START)
            # Another process may have taken one of the chosen ports. Then a component stops at once.
            if not self.dead():
                break
        self._await("the API server does not answer", self._answers_kwokctl)
        self._await(
            "the namespace `default` has no service account",
            lambda: self._api(self._written).find(SERVICE_ACCOUNT, "default", "default") is not None,
        )
        self._write_kubeconfig()
        return "started"

    def restart(self, binaries: Path) -> None:
        """Start the components that have stopped."""
        for component in self.dead():
            # kwokctl would take a zombie, or a new process with this pid, for the component.
            (self._cluster / "pids" / f"{component}.pid").unlink()
        self._kwokctl(binaries, "start")

    def down(self) -> None:
        """Stop every component and delete the folder."""
        ours = [pid for pid in self.pids().values() if processes.runs(pid, str(self.folder))]
        for pid in ours:
            # After SIGTERM, the API server would wait for the end of all connections. Its data is deleted anyway.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        processes.wait(lambda: not any(processes.birth(pid) for pid in ours), SECONDS_TO_STOP)
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_nodes(self, nodes: Sequence[WorkerNode]) -> None:
        """Create, update and delete nodes until the cluster has exactly these."""
        api = self._api(self.kubeconfig)
        for node in nodes:
            query = {"fieldManager": "sandbox", "force": "true"}
            api.request("PATCH", NODE.path(name=node.name), node.manifest(), query, APPLY)
        wanted = {node.name for node in nodes}
        for present in api.list(NODE):
            if present["metadata"]["name"] not in wanted:
                api.request("DELETE", NODE.path(name=present["metadata"]["name"]))
        self._await("the nodes are not ready", lambda: all(_is_ready(node) for node in api.list(NODE)))

    def pids(self) -> dict[str, int]:
        """The pid of every component that was started."""
        return {file.stem: int(file.read_text()) for file in sorted((self._cluster / "pids").glob("*.pid"))}

    def started(self, component: str) -> float:
        return (self._cluster / "pids" / f"{component}.pid").stat().st_mtime

    def dead(self) -> list[str]:
        """The components that were started and have stopped."""
        return [name for name, pid in self.pids().items() if not processes.runs(pid, str(self.folder))]

    def answers(self) -> bool:
        return _ready(self._api(self.kubeconfig))

    @property
    def _written(self) -> Path:
        return self._cluster / "kubeconfig.yaml"

    def _answers_kwokctl(self) -> bool:
        return self._written.exists() and _ready(self._api(self._written))

    def _write_kubeconfig(self) -> None:
        """Write a kubeconfig with embedded certificates; the one of kwokctl refers to files."""
        config = yaml.safe_load(self._written.read_text())
        for entry in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
            for key in [key for key in entry if key.startswith(("certificate-authority", "client-"))]:
                entry[f"{key}-data"] = base64.b64encode(Path(entry.pop(key)).read_bytes()).decode()
        new = self.folder / "kubeconfig.new"
        new.touch(mode=0o600)
        new.write_text(yaml.safe_dump(config))
        new.replace(self.kubeconfig)

    def _api(self, kubeconfig: Path) -> Api:
        return Api(load_kubeconfig(str(kubeconfig)))

    def _await(self, problem: str, done: Callable[[], bool]) -> None:
        """Wait until `done`; if that takes too long, raise an error with this problem."""
        if not processes.wait(done, SECONDS_TO_START):
            log = self._cluster / "logs/kube-apiserver.log"
            raise SandboxError(f"Kubernetes: {problem}; the last lines of {log}:\n{processes.last_lines(log)}")

    def _kwokctl(self, binaries: Path, verb: str, *arguments: str) -> None:
        command = [str(binaries / "kwokctl"), verb, "cluster", "--name", CLUSTER, *arguments]
        env = os.environ | {"KWOK_WORKDIR": str(self.folder), "HOME": str(self.folder), "KUBECONFIG": os.devnull}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SandboxError(f"`kwokctl {verb} cluster` failed: {_message(done.stderr)}")


def _config(binaries: Path, certificates: Path, simulate_pods: bool) -> list[Mapping[str, Any]]:
    """The configuration of kwokctl. It has no KwokConfiguration: a partial one loses all other defaults of kwok."""
    components = {
        "etcd": "etcd",
        "kubeApiserver": "kube-apiserver",
        "kubeControllerManager": "kube-controller-manager",
        "kubeScheduler": "kube-scheduler",
        "kubectl": "kubectl",
        "kwokController": "kwok",
    }
    options = {f"{component}Binary": str(binaries / name) for component, name in components.items()}
    # kwokctl would choose the same ports for two clusters that start at the same time.
    ports = {f"{component}Port": port for component, port in zip(PORTS, processes.free_ports(len(PORTS)), strict=True)}
    # With leader election, a component stops for good if the API server does not answer for 10 s.
    no_election = {"leader-elect": "false"}
    patches = [_patch(name, no_election, {}) for name in ELECTED]
    patches += _etcd_patches(certificates, ports["etcdPort"], ports["etcdPeerPort"])
    kwokctl = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {"runtime": "binary", "bindAddress": "127.0.0.1", **options, **ports},
        "componentsPatches": patches,
    }
    if simulate_pods:
        return [kwokctl]
    return [kwokctl, _stage("node-initialize", "NotIn", 0), _stage("node-heartbeat-with-lease", "In", 600_000)]


def _etcd_patches(certificates: Path, port: int, peer_port: int) -> list[Mapping[str, Any]]:
    """etcd without TLS would give every process of this machine, and so every pod, full access to the cluster."""
    client, peer = f"https://127.0.0.1:{port}", f"https://127.0.0.1:{peer_port}"
    authority, certificate, key = (str(certificates / name) for name in ("ca.crt", "admin.crt", "admin.key"))
    added: dict[str, str] = {}
    for prefix in ("", "peer-"):
        added |= {f"{prefix}cert-file": certificate, f"{prefix}key-file": key}
        added |= {f"{prefix}trusted-ca-file": authority, f"{prefix}client-cert-auth": "true"}
    changed = {"listen-client-urls": client, "advertise-client-urls": client}
    changed |= {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"node0={peer}"}
    reader = {"etcd-cafile": authority, "etcd-certfile": certificate, "etcd-keyfile": key}
    return [_patch("etcd", added, changed), _patch("kube-apiserver", reader, {"etcd-servers": client})]


def _patch(component: str, added: Mapping[str, str], changed: Mapping[str, str]) -> Mapping[str, Any]:
    """A patch of a component's arguments for kwokctl."""
    arguments: list[Mapping[str, Any]] = [{"key": key, "value": value} for key, value in added.items()]
    arguments += [{"key": key, "value": value, "override": True} for key, value in changed.items()]
    return {"name": component, "extraArgs": arguments}


def _stage(name: str, ready_operator: str, delay: int) -> Mapping[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Node"},
            "selector": {"matchExpressions": [{"key": READY, "operator": ready_operator, "values": ["True"]}]},
            "delay": {"durationMilliseconds": delay},
            "next": {"statusTemplate": NODE_STATUS},
        },
    }


def _ready(api: Api) -> bool:
    try:
        api.request("GET", "/api/v1/namespaces/default")
    except (ApiError, UnreachableError, OSError):
        return False
    return True


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _message(stderr: str) -> str:
    """The last message of kwokctl, which writes JSON."""
    last = next(reversed(stderr.strip().splitlines()), "(no output)")
    try:
        message = json.loads(last)
        return str(message.get("err") or message.get("msg") or last)
    except ValueError:
        return last
