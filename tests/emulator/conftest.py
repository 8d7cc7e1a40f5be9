"""Fixtures of the sandbox tests: built tools, an emulated AWS and its provider, a Kubernetes cluster and its nodes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import botocore.session
import pytest

from sandbox import build
from sandbox.cloud.services import EMULATED_SERVICES
from sandbox.cluster import pod_networks
from sandbox.cluster.control_plane import ControlPlane, WorkerNode
from sandbox.processes import free_ports
from tests.emulator.cluster_helpers import NAMESPACE, NodeProcess, eventually
from tests.emulator.plugins.emulated_provider import Plugin
from tools.kubernetes_client import POD, Api, Kind, load_kubeconfig


@pytest.fixture(scope="session")
def aws_url() -> Iterator[str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "sandbox.cloud.server", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout
    assert server.stdout.readline(), "the emulated AWS has not started"
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(10)


@pytest.fixture(scope="session")
def aws_config(aws_url: str) -> dict[str, Any]:
    return {
        "region": "eu-west-1",
        "accessKey": "test",
        "secretKey": "test",
        "endpoints": [dict.fromkeys(EMULATED_SERVICES, aws_url)],
        "skipCredentialsValidation": "true",
        "skipMetadataApiCheck": "true",
        "skipRequestingAccountId": "true",
        "s3UsePathStyle": "true",
        "defaultTags": {"tags": {"project": "paddle"}},
    }


@pytest.fixture(scope="session")
def plugin(aws_config: dict[str, Any]) -> Iterator[Plugin]:
    running = Plugin(aws_config)
    yield running
    running.close()


@pytest.fixture(scope="session")
def aws(aws_url: str) -> Callable[[str], Any]:
    """A client of a service of the emulated AWS, independent of the emulated provider."""
    session = botocore.session.Session()

    @cache
    def client(service: str, region: str = "eu-west-1") -> Any:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return session.create_client(service, region_name=region, endpoint_url=aws_url, **keys)

    return client


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server, scheduler and controllers."""
    plane = ControlPlane(tmp_path_factory.mktemp("cluster"))
    try:
        plane.up(build.control_plane(), simulate_pods=False)
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="session")
def network(cluster: ControlPlane) -> int:
    """The pod network of the cluster, which no other cluster on this machine uses; the cluster has three nodes."""
    network = pod_networks.claim(cluster.folder)
    cluster.set_nodes([WorkerNode(number, "us-west-2a", "c5.xlarge", network) for number in (1, 2, 3)])
    return network


@pytest.fixture(scope="session")
def api(cluster: ControlPlane) -> Api:
    return Api(load_kubeconfig(str(cluster.kubeconfig)))


@pytest.fixture(scope="session")
def _node(cluster: ControlPlane, network: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(cluster.kubeconfig, tmp_path_factory.mktemp("node"))
    yield process
    process.end()


@pytest.fixture
def node(_node: NodeProcess) -> NodeProcess:
    """The process that runs the pods; it runs even if the previous test has stopped it."""
    if not _node.is_running:
        _node.start()
    return _node


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace for one test, with its service account."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.request("POST", NAMESPACE.path(), {"metadata": {"name": name}})
    account = Kind("v1", "ServiceAccount", "serviceaccounts", True)
    eventually(lambda: api.find(account, name, "default"))
    yield name
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    api.request("DELETE", POD.path(name), now)
    api.request("DELETE", NAMESPACE.path("", name), {"propagationPolicy": "Background"})
