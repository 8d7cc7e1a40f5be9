"""Kubernetes on this machine: etcd, API server, scheduler and controllers as plain processes, started by kwokctl."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import processes
from sandbox.errors import SandboxError

CLUSTER = "sandbox"
PODS_OF_NODE = "127.64.{number}.0/24"
# One Stage of our own replaces all of kwok's: these say all that a node does, and pods are left to sandbox.node.
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
class Node:
    """A worker as the scheduler sees it."""

    number: int
    zone: str
    instance_type: str

    def manifest(self) -> dict[str, Any]:
        name = f"node-{self.number}"
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake", "sandbox/address": f"127.64.{self.number}.254"},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "topology.kubernetes.io/zone": self.zone,
                    "topology.kubernetes.io/region": self.zone[:-1],
                    "node.kubernetes.io/instance-type": self.instance_type,
                },
            },
            "spec": {"podCIDR": PODS_OF_NODE.format(number=self.number)},
        }


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of one checkout: `binaries` are what build.py made, `folder` holds all it writes."""

    binaries: Path
    folder: Path
    simulate_pods: bool

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def _cluster(self) -> Path:
        return self.folder / "clusters" / CLUSTER

    def up(self) -> str:
        """Bring it to answer, whatever state it is in; says what was done."""
        if self.answers() and not self.dead():
            return ""
        if (self._cluster / "kwok.yaml").exists() and self.kubeconfig.exists():
            self._kwokctl("start", "cluster", "--name", CLUSTER)
            self._await_answer()
            return "was partly dead and is restarted"
        self.down()
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "kwok-config.yaml"
        config.write_text(yaml.safe_dump_all(self._config(), sort_keys=False))
        self._kwokctl(
            "create", "cluster", "--name", CLUSTER, "--config", str(config), "--kubeconfig", "", "--wait", "60s"
        )
        self._await_answer()
        # kwokctl's own file names the certificates by path; the program gets one that stands alone.
        written = self._cluster / "kubeconfig.yaml"
        flat = self._kubectl("config", "view", "--raw", "--flatten", kubeconfig=written)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(flat)
        if not processes.wait(self._has_service_account, 60):
            raise SandboxError(f"the namespace `default` got no service account in 60 s: see {self._cluster / 'logs'}")
        return "started"

    def down(self) -> None:
        """End every component and remove what they wrote."""
        started = self.pids()
        if self._cluster.exists():
            unused = self.folder / "unused-kubeconfig"
            unused.touch()
            self._kwokctl("delete", "cluster", "--name", CLUSTER, "--kubeconfig", str(unused))
        for pid in started.values():
            if processes.runs(pid, str(self.folder)):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Have exactly these nodes."""
        manifests = yaml.safe_dump_all([node.manifest() for node in nodes])
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
        wanted = {f"node-{node.number}" for node in nodes}
        present = set(self._kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split())
        if surplus := sorted(present - wanted):
            self._kubectl("delete", "node", *surplus)
        self._kubectl("wait", "--for=condition=Ready", "--timeout=60s", "node", *sorted(wanted))

    def pids(self) -> dict[str, int]:
        """Each component by its pid, whether it lives or not."""
        return {file.stem: int(file.read_text()) for file in sorted((self._cluster / "pids").glob("*.pid"))}

    def started(self, component: str) -> float:
        return (self._cluster / "pids" / f"{component}.pid").stat().st_mtime

    def dead(self) -> list[str]:
        """Components that were started and run no more."""
        return [name for name, pid in self.pids().items() if not processes.runs(pid, str(self.folder))]

    def answers(self) -> bool:
        if not self._cluster.exists():
            return False
        try:
            config = yaml.safe_load((self._cluster / "kubeconfig.yaml").read_text())
            authority, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            trust = ssl.create_default_context(cafile=authority["certificate-authority"])
            trust.load_cert_chain(user["client-certificate"], user["client-key"])
            with urllib.request.urlopen(f"{authority['server']}/readyz", context=trust, timeout=5) as reply:
                return bool(reply.status == 200)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def port(self) -> int:
        config = yaml.safe_load(self.kubeconfig.read_text())
        return int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])

    def _config(self) -> list[Mapping[str, Any]]:
        options = {"runtime": "binary", "bindAddress": "127.0.0.1"} | {
            f"{key}Binary": str(self.binaries / name)
            for key, name in {
                "etcd": "etcd",
                "kubeApiserver": "kube-apiserver",
                "kubeControllerManager": "kube-controller-manager",
                "kubeScheduler": "kube-scheduler",
                "kubectl": "kubectl",
                "kwokController": "kwok",
            }.items()
        }
        kwokctl = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokctlConfiguration", "options": options}
        if self.simulate_pods:
            return [kwokctl]
        return [kwokctl, _stage("node-initialize", "NotIn", 0), _stage("node-heartbeat-with-lease", "In", 600_000)]

    def _has_service_account(self) -> bool:
        found = self._kubectl("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
        return bool(found.strip())

    def _kwokctl(self, *arguments: str) -> None:
        self._run(str(self.binaries / "kwokctl"), *arguments)

    def _kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        return self._run(
            str(self.binaries / "kubectl"), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments, stdin=stdin
        )

    def _run(self, *command: str, stdin: str = "") -> str:
        env = os.environ | {"KWOK_WORKDIR": str(self.folder), "HOME": str(self.folder), "KUBECONFIG": os.devnull}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SandboxError(f"`{Path(command[0]).name} {' '.join(command[1:4])}` failed: {_message(done.stderr)}")
        return done.stdout

    def _await_answer(self) -> None:
        if not processes.wait(self.answers, 60):
            log = self._cluster / "logs/kube-apiserver.log"
            raise SandboxError(f"Kubernetes does not answer; its log {log} ends:\n{processes.last_lines(log)}")


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


def _message(stderr: str) -> str:
    """The last thing that was said; kwokctl says it in JSON."""
    last = next(reversed(stderr.strip().splitlines()), "(it said nothing)")
    try:
        told = json.loads(last)
        return str(told.get("err") or told.get("msg") or last)
    except ValueError:
        return last
