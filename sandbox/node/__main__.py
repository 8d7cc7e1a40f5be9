"""`python -m sandbox.node`: runs the pods of every kwok node of a cluster as processes of this machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from sandbox.cluster.api import Api, KubeconfigError, Object, load_kubeconfig
from sandbox.node.node import Node, clean
from sandbox.node.pod import Machine
from sandbox.node.run import Run, start


def check() -> str:
    """Why pods cannot run here; empty when they can."""
    if sys.platform != "linux":
        return f"pods cannot run as processes on {sys.platform}: it has no mount namespaces"
    # A container that asks all of the machine: to be isolated, and to have its servers kept to its address.
    server = [sys.executable, "-S", "-c", "import socket; socket.socket().listen()"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        log = folder / "log"
        spec: Object = {"argv": server, "env": {}, "cwd": "/", "hostname": "probe", "mounts": []}
        spec |= {"address": "127.0.0.1", "log": str(log), "without_capabilities": True, "without_escalation": True}
        start(folder, spec).wait()
        ended = Run(folder).ended() or {"code": 1, "error": ""}
        if ended["code"]:
            why = ended["error"] or (log.read_text().splitlines() or ["no reason given"])[-1]
            return f"pods cannot run as processes here: this machine does not isolate them ({why})"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.node", description=__doc__)
    parser.add_argument("--root", type=Path, help="folder for logs, volumes and records")
    parser.add_argument("--kubeconfig", help="the cluster, as its administrator")
    here = Path(sys.executable).parent
    parser.add_argument(
        "--path", default=str(here), help="folders put first on a container's PATH (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="only say whether pods can run here")
    parser.add_argument("--clean", action="store_true", help="only end what a killed node left running")
    given = parser.parse_args()
    if given.check or not given.clean:
        if why := check():
            print(why, file=sys.stderr)
            return 1
        if given.check:
            return 0
    if not given.root or not (given.kubeconfig or given.clean):
        parser.error("--root and --kubeconfig are needed")
    if given.clean:
        clean(given.root)
        return 0
    try:
        api = Api(load_kubeconfig(given.kubeconfig))
    except KubeconfigError as problem:
        print(problem, file=sys.stderr)
        return 1
    root = given.root.resolve()
    machine = Machine(api, root, given.path, os.environ.get("AWS_ENDPOINT_URL", ""), say)
    node = Node(machine)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    node.start()
    stop.wait()
    node.stop()
    return 0


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


sys.exit(main())
