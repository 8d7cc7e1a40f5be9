"""The nodes of a cluster: which pods are theirs, and that each has its runner."""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import signal
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

from sandbox.cluster.api import NODE, POD, STRATEGIC, ApiError, Object, UnreachableError
from sandbox.node.logs import serve_logs
from sandbox.node.pod import Machine, PodRunner, delete_now
from sandbox.node.run import end_processes, locks, watched
from sandbox.node.status import OVER

KWOK_NODE = "kwok.x-k8s.io/node"
_STOP_SECONDS = 5.0


class Node:
    """Watches the API server and gives every pod that is bound to a kwok node a runner."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.nodes: dict[str, Object] = {}
        self.runners: dict[str, PodRunner] = {}
        self.stopped = threading.Event()
        self.nodes_known = threading.Event()
        self.lock = threading.Lock()
        self.servers: dict[str, ThreadingHTTPServer] = {}

    def start(self) -> None:
        for work in (self._watch_nodes, self._watch_pods):
            threading.Thread(target=work, daemon=True).start()
        self.machine.say(f"runs pods; logs are under {self.machine.root / 'logs'}")

    def stop(self) -> None:
        """End every container, SIGTERM first; the API server is not told, for it may be going too."""
        self.stopped.set()
        for server in self.servers.values():
            server.shutdown()
        with self.lock:
            runners = list(self.runners.values())
        for runner in runners:
            runner.detached = True
            runner.thread.join()
            runner.signal(signal.SIGTERM)
        ends = time.monotonic() + _STOP_SECONDS
        while any(watched(lock.parent) for lock in locks(self.machine.root)) and time.monotonic() < ends:
            time.sleep(0.1)
        clean(self.machine.root)

    def _watch_nodes(self) -> None:
        for change, node in self.machine.api.watch(NODE, self.stopped):
            if change == "SYNCED":
                self.nodes_known.set()
            elif change == "DELETED":
                self.nodes.pop(node["metadata"]["name"], None)
            else:
                self._see_node(node)

    def _see_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if node["metadata"].get("annotations", {}).get(KWOK_NODE) != "fake" or not node_address(node):
            return
        joined = name not in self.nodes
        self.nodes[name] = node
        self._serve_logs(node)
        if joined:
            # Pods may have been bound to it before it was known here.
            with contextlib.suppress(ApiError, UnreachableError):
                for pod in self.machine.api.list(POD, fieldSelector=f"spec.nodeName={name}"):
                    self._see("ADDED", pod)

    def _serve_logs(self, node: Object) -> None:
        """Answer `kubectl logs` at the node's address, and say so in its status, which kwok overwrites."""
        name, address = node["metadata"]["name"], node_address(node)
        try:
            if name not in self.servers:
                self.servers[name] = serve_logs(self.machine, address)
            endpoints = {"kubeletEndpoint": {"Port": self.servers[name].server_address[1]}}
            if node.get("status", {}).get("daemonEndpoints") != endpoints:
                path = NODE.path("", name, "status")
                body = {"status": {"daemonEndpoints": endpoints}}
                self.machine.api.request("PATCH", path, body, None, STRATEGIC)
        except (ApiError, UnreachableError, OSError) as problem:
            self.machine.say(f"no `kubectl logs` from {name}: {problem}")

    def _watch_pods(self) -> None:
        self.nodes_known.wait()
        for change, pod in self.machine.api.watch(POD, self.stopped, fieldSelector="spec.nodeName!="):
            if change == "SYNCED":
                self._forget_all_but({item["metadata"]["uid"] for item in pod["items"]})
            else:
                self._see(change, pod)

    def _see(self, change: str, pod: Object) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        with self.lock:
            runner = self.runners.get(metadata["uid"])
            if runner and not runner.thread.is_alive():
                del self.runners[metadata["uid"]]
                runner = None
            if runner:
                runner.forget() if change == "DELETED" else runner.update(pod)
            elif change != "DELETED" and pod["spec"]["nodeName"] in self.nodes and not self.stopped.is_set():
                if status.get("phase") in OVER and not (self.machine.pods / metadata["uid"]).exists():
                    # It ended and its records are gone with it: only its object is left to be let go.
                    if metadata.get("deletionTimestamp"):
                        # The next listing tries again what an absent API server prevents.
                        with contextlib.suppress(UnreachableError):
                            delete_now(self.machine.api, pod)
                    return
                self.runners[metadata["uid"]] = runner = PodRunner(self.machine, pod, *self._addresses(pod))
                runner.thread.start()

    def _addresses(self, pod: Object) -> tuple[str, str]:
        """The pod's address, the lowest of its node's range that is free, and the node's own."""
        node = self.nodes[pod["spec"]["nodeName"]]
        host = node_address(node)
        if pod["spec"].get("hostNetwork"):
            return host, host
        if given := pod.get("status", {}).get("podIP"):
            return str(given), host
        taken = {runner.place.pod_ip for runner in self.runners.values() if runner.thread.is_alive()} | {host}
        hosts = ipaddress.ip_network(node["spec"].get("podCIDR", "127.64.0.0/24")).hosts()
        return next(str(address) for address in hosts if str(address) not in taken), host

    def _forget_all_but(self, listed: set[str]) -> None:
        """What a listing lacks was deleted while nobody looked."""
        with self.lock:
            for uid, runner in self.runners.items():
                if uid not in listed:
                    runner.forget()
            for folder in self.machine.pods.glob("*"):
                if folder.name not in listed and folder.name not in self.runners:
                    end_processes(folder)
                    shutil.rmtree(folder, ignore_errors=True)


def node_address(node: Object) -> str:
    """Where the node is found; empty as long as kwok has not said."""
    known = node.get("status", {}).get("addresses") or []
    return next((str(item["address"]) for item in known if item["type"] == "InternalIP"), "")


def clean(root: Path) -> None:
    """End every process of every pod; their mounts end with them."""
    for folder in root.glob("pods/*"):
        end_processes(folder)
