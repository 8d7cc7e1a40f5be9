"""The control plane: who can connect to its components."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import pytest

from sandbox.cluster.control_plane import ControlPlane
from tests.sandbox import listening
from tools.kubernetes_client import load_kubeconfig


def ports(cluster: ControlPlane, component: str) -> list[int]:
    addresses = listening.by([cluster.pids()[component]])
    return sorted(int(address.partition(":")[2], 16) for address in addresses)


def get(port: int, context: ssl.SSLContext | None) -> int:
    """The status of a request to etcd, over TLS if there is a context."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    if context:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", "/version")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_etcd_refuses_clients_without_a_certificate(cluster: ControlPlane, tls: bool) -> None:
    context = ssl._create_unverified_context() if tls else None
    client_and_peer = ports(cluster, "etcd")
    assert len(client_and_peer) == 2
    for port in client_and_peer:
        with pytest.raises((OSError, http.client.HTTPException)):
            get(port, context)


def test_etcd_accepts_the_certificate_of_the_administrator(cluster: ControlPlane) -> None:
    user = load_kubeconfig(str(next(Path(cluster.folder).glob("clusters/*/kubeconfig.yaml")))).user
    context = ssl._create_unverified_context()
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    assert 200 in [get(port, context) for port in ports(cluster, "etcd")]
