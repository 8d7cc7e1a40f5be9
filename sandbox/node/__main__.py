"""`python -m sandbox.node`: runs the pods of all worker nodes of a cluster as processes of this machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from sandbox.node.container_run import ContainerRun, end_all_containers, start
from sandbox.node.kubelet import Kubelet
from sandbox.node.pod_runner import Machine
from sandbox.node.run_files import ContainerSpec
from sandbox.node.visible_files import machine_mounts
from tools.kubernetes_client import Api, KubeconfigError, load_kubeconfig


def why_pods_cannot_run() -> str:
    """The reason why pods cannot run here; empty if they can."""
    if sys.platform != "linux":
        return f"pods cannot run as processes on {sys.platform}: it has no mount namespaces"
    # This container needs every feature of the machine: isolation and a server that gets the pod's address.
    server = [sys.executable, "-S", "-c", "import socket; socket.socket().listen()"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        spec = ContainerSpec(
            argv=server,
            env={},
            address="127.0.0.1",
            hostname="probe",
            log=str(log),
            machine=machine_mounts(),
            mounts=[],
            readonly_root=True,
            drop_capabilities=True,
            forbid_new_privileges=True,
        )
        start(folder, spec).wait()
        ended = ContainerRun(folder).ended()
        if ended is None or ended.code:
            reason = (ended and ended.error) or (log.read_text().splitlines() or ["no reason given"])[-1]
            return f"pods cannot run as processes here: this machine does not isolate them ({reason})"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.node", description=__doc__)
    parser.add_argument("--root", type=Path, help="folder for logs, volumes and the files of containers")
    parser.add_argument("--kubeconfig", help="kubeconfig of the cluster's administrator")
    parser.add_argument("--check", action="store_true", help="only check whether pods can run here")
    parser.add_argument("--clean", action="store_true", help="end the containers of a killed node process")
    options = parser.parse_args()
    if not options.clean and (reason := why_pods_cannot_run()):
        print(reason, file=sys.stderr)
        return 1
    if options.check:
        return 0
    if not options.root or not (options.kubeconfig or options.clean):
        parser.error("--root and --kubeconfig are required")
    if options.clean:
        end_all_containers(options.root)
        return 0
    try:
        api = Api(load_kubeconfig(options.kubeconfig))
    except KubeconfigError as problem:
        print(problem, file=sys.stderr)
        return 1
    path = str(Path(sys.executable).parent.resolve())
    kubelet = Kubelet(Machine(api, options.root.resolve(), path, os.environ.get("AWS_ENDPOINT_URL", ""), log_line))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    kubelet.start()
    stop.wait()
    kubelet.stop()
    return 0


def log_line(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


sys.exit(main())
