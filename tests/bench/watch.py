"""The live view with 1000 trainers on a real API server: seconds to the first picture, and requests for pods."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from sandbox import build
from tests.bench import control_plane
from tools.kubernetes_client import Api, load_kubeconfig
from tools.watch.cluster_copy import Cluster
from tools.watch.screen import draw
from tools.watch.snapshot import Names, Snapshot, jobs_of, nodes_of

TRAINERS, CHANGES, LIMIT_SECONDS = 1000, 200, 3.0
NAMES = Names("bench", "us-west-2", False, TRAINERS, "paddle-cluster-job", True)
PODS = "/api/v1/namespaces/default/pods"


def pod(number: int) -> dict[str, Any]:
    """A pod as large as a real one."""
    env = [{"name": f"VARIABLE_{i}", "value": "value" * 5} for i in range(25)]
    container = {"name": "trainer", "image": "paddlepaddle/paddle:3.3.1", "env": env}
    metadata = {
        "name": f"paddle-cluster-job-{number}",
        "labels": {"job-name": "paddle-cluster-job"},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(number)},
    }
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}", "containers": [container]}}


def create(plane: control_plane.ControlPlane) -> None:
    """The Job with its nodes and pods; all run."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "x"}]}}
    job = {"metadata": {"name": "paddle-cluster-job"}, "spec": {"completions": TRAINERS, "template": template}}
    plane.call("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    local = threading.local()

    def one(number: int) -> None:
        connection = getattr(local, "plane", None) or plane.another()
        local.plane = connection
        connection.call("POST", "/api/v1/nodes", {"metadata": {"name": f"node-{number}"}})
        connection.call("POST", PODS, pod(number))
        set_phase(connection, number, "Running")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(TRAINERS)))


def set_phase(plane: control_plane.ControlPlane, number: int, phase: str) -> None:
    path = f"{PODS}/paddle-cluster-job-{number}/status"
    plane.call("PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json")


def picture(cluster: Cluster) -> Snapshot:
    jobs = jobs_of(NAMES, cluster.copy("jobs"), cluster.copy("pods"))
    return Snapshot(NAMES, time.time(), 0, (), nodes_of(cluster.copy("nodes")), jobs, {}, None, "", ())


def counts(shown: Snapshot) -> dict[str, int]:
    states = [each.state for job in shown.jobs for each in job.pods]
    return {state: states.count(state) for state in set(states)}


def requests(folder: Path) -> list[str]:
    """The verbs of the requests that read pods; the program that creates them only writes."""
    events = [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]
    mine = [event for event in events if event["user"]["username"] == "admin"]
    return [event["verb"] for event in mine if event["verb"] in ("list", "watch")]


def main() -> None:
    with tempfile.TemporaryDirectory() as name, control_plane.run(build.control_plane(), Path(name)) as plane:
        create(plane)
        server = {"server": f"https://127.0.0.1:{plane.port}", "certificate-authority": f"{plane.folder}/ca.crt"}
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": plane.admin}}],
        }
        before = len(requests(plane.folder))
        began = time.monotonic()
        cluster = Cluster(Api(load_kubeconfig(json.dumps(config))), "default")
        cluster.start()
        while not cluster.listed:
            time.sleep(0.01)
        with Path("/dev/null").open("w") as nowhere:
            Console(file=nowhere, width=160, force_terminal=True).print(draw(picture(cluster), 160))
        first = time.monotonic() - began
        assert counts(picture(cluster)) == {"running": TRAINERS}, cluster.trouble
        for number in range(CHANGES):
            set_phase(plane, number, "Succeeded")
        ends = time.monotonic() + 30
        while counts(picture(cluster)).get("done") != CHANGES:
            assert time.monotonic() < ends, counts(picture(cluster))
            time.sleep(0.05)
        asked = requests(plane.folder)[before:]
    print(f"{TRAINERS} trainers: first picture after {first:.2f} s (limit {LIMIT_SECONDS:g} s)")
    print(f"requests for pods, {CHANGES} changes later: {asked}")
    if first > LIMIT_SECONDS or sorted(asked) != ["list", "watch"]:
        raise SystemExit("the view takes too long, or asks too often")


if __name__ == "__main__":
    main()
