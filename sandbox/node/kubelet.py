"""Does the work of the kubelets of all worker nodes of a cluster: every pod that is bound to a node gets a runner."""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import cast

from sandbox.cluster.objects import Node, Pod
from sandbox.node.container_run import any_container_runs, end_all_containers, end_containers
from sandbox.node.log_server import serve_logs
from sandbox.node.pod_runner import Machine, PodRunner, delete_now
from sandbox.node.pod_status import FINAL_PHASES
from tools.kubernetes_client import NODE, POD, STRATEGIC, ApiError, Kind, Object, UnreachableError

KWOK_NODE = "kwok.x-k8s.io/node"
_STOP_SECONDS, _RETRY_SECONDS = 5.0, 0.5


class Kubelet:
    """Watches the API server and starts a runner for every pod that is bound to a kwok node."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.nodes: dict[str, Node] = {}
        self.runners: dict[str, PodRunner] = {}
        self.stopped = threading.Event()
        self.nodes_listed = threading.Event()
        self.lock = threading.Lock()
        self.log_servers: dict[str, ThreadingHTTPServer] = {}

    def start(self) -> None:
        for work in (self._watch_nodes, self._watch_pods):
            threading.Thread(target=work, daemon=True).start()
        self.machine.log(f"running pods; their logs are in {self.machine.root / 'logs'}")

    def stop(self) -> None:
        """End every container, first with SIGTERM. Nothing is reported, because the API server may be stopping too."""
        self.stopped.set()
        for server in self.log_servers.values():
            server.shutdown()
        with self.lock:
            runners = list(self.runners.values())
        for runner in runners:
            runner.detached = True
            runner.thread.join()
            runner.signal(signal.SIGTERM)
        limit = time.monotonic() + _STOP_SECONDS
        while any_container_runs(self.machine.root) and time.monotonic() < limit:
            time.sleep(0.1)
        end_all_containers(self.machine.root)

    def _watch_nodes(self) -> None:
        for change, found in self._follow(NODE):
            if change == "LISTED":
                for item in found["items"]:
                    self._update_node(cast(Node, item))
                self.nodes_listed.set()
            elif change == "DELETED":
                self.nodes.pop(found["metadata"]["name"], None)
            else:
                self._update_node(cast(Node, found))

    def _update_node(self, node: Node) -> None:
        name = node["metadata"]["name"]
        if node["metadata"].get("annotations", {}).get(KWOK_NODE) != "fake" or not node_address(node):
            return
        joined = name not in self.nodes
        self.nodes[name] = node
        self._serve_logs(node)
        if joined:
            # Pods may have been bound to the node before it became known here.
            with contextlib.suppress(ApiError, UnreachableError):
                for pod in self.machine.api.list(POD, fieldSelector=f"spec.nodeName={name}"):
                    self._update_pod("ADDED", cast(Pod, pod))

    def _serve_logs(self, node: Node) -> None:
        """Serve `kubectl logs` at the node's address and put the port into the node's status, which kwok overwrites."""
        name, address = node["metadata"]["name"], node_address(node)
        try:
            if name not in self.log_servers:
                self.log_servers[name] = serve_logs(self.machine, address)
            endpoints = {"kubeletEndpoint": {"Port": self.log_servers[name].server_address[1]}}
            if node.get("status", {}).get("daemonEndpoints") != endpoints:
                path = NODE.path("", name, "status")
                body = {"status": {"daemonEndpoints": endpoints}}
                self.machine.api.request("PATCH", path, body, None, STRATEGIC)
        except (ApiError, UnreachableError, OSError) as problem:
            self.machine.log(f"`kubectl logs` does not work for {name}: {problem}")

    def _watch_pods(self) -> None:
        self.nodes_listed.wait()
        for change, found in self._follow(POD, fieldSelector="spec.nodeName!="):
            if change == "LISTED":
                for item in found["items"]:
                    self._update_pod("ADDED", cast(Pod, item))
                self._forget_all_but({item["metadata"]["uid"] for item in found["items"]})
            else:
                self._update_pod(change, cast(Pod, found))

    def _follow(self, kind: Kind, **query: str) -> Iterator[tuple[str, Object]]:
        """All objects of a kind and their changes, until this process stops."""
        while not self.stopped.is_set():
            with contextlib.suppress(ApiError, UnreachableError):
                yield from self.machine.api.follow(kind, **query)
            self.stopped.wait(_RETRY_SECONDS)

    def _update_pod(self, change: str, pod: Pod) -> None:
        uid = pod["metadata"]["uid"]
        with self.lock:
            runner = self.runners.get(uid)
            if runner and not runner.thread.is_alive():
                del self.runners[uid]
                runner = None
            if runner:
                runner.forget() if change == "DELETED" else runner.update(pod)
            elif change != "DELETED" and pod["spec"]["nodeName"] in self.nodes and not self.stopped.is_set():
                self._start_runner(pod)

    def _start_runner(self, pod: Pod) -> None:
        uid = pod["metadata"]["uid"]
        if pod.get("status", {}).get("phase") in FINAL_PHASES and not (self.machine.pods / uid).exists():
            # The pod has ended and has no files here: only its object remains, and may wait to be removed.
            if pod["metadata"].get("deletionTimestamp"):
                # If the API server does not answer, the next listing repeats this.
                with contextlib.suppress(UnreachableError):
                    delete_now(self.machine.api, pod)
            return
        self.runners[uid] = runner = PodRunner(self.machine, pod, *self._addresses(pod))
        runner.thread.start()

    def _addresses(self, pod: Pod) -> tuple[str, str]:
        """The pod's address, which is the lowest free one of its node's range, and the node's address."""
        node = self.nodes[pod["spec"]["nodeName"]]
        host = node_address(node)
        if known := pod.get("status", {}).get("podIP"):
            return known, host
        used = {runner.context.pod_ip for runner in self.runners.values() if runner.thread.is_alive()} | {host}
        hosts = ipaddress.ip_network(node["spec"].get("podCIDR", "127.64.0.0/24")).hosts()
        return next(str(address) for address in hosts if str(address) not in used), host

    def _forget_all_but(self, listed: set[str]) -> None:
        """Forget pods that were deleted while the watch was interrupted."""
        with self.lock:
            for uid, runner in self.runners.items():
                if uid not in listed:
                    runner.forget()
            for folder in self.machine.pods.glob("*"):
                if folder.name not in listed and folder.name not in self.runners:
                    end_containers(folder)
                    shutil.rmtree(folder, ignore_errors=True)


def node_address(node: Node) -> str:
    """The address of the node; empty until kwok has set it."""
    known = node.get("status", {}).get("addresses") or []
    return next((item["address"] for item in known if item["type"] == "InternalIP"), "")
