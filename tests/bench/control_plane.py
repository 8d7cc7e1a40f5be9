"""A real etcd and kube-apiserver, RBAC and audit on, for what only the real API server can show."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.in_pod.api import make_certificate

AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  resources: [{group: "", resources: [pods]}]
"""


@dataclass
class ControlPlane:
    """Where the API server answers, and as whom the test may ask."""

    folder: Path
    port: int
    admin: str
    context: ssl.SSLContext
    connection: http.client.HTTPSConnection | None = field(default=None)

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One request as the administrator."""
        connection = self.connection or http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context)
        self.connection = connection
        headers = {"Authorization": f"Bearer {self.admin}", "Content-Type": kind}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]!r}")
        return json.loads(answer)

    def another(self) -> ControlPlane:
        """The same, over a connection of its own, for another thread."""
        return ControlPlane(self.folder, self.port, self.admin, self.context)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def run(binaries: Path, folder: Path) -> Iterator[ControlPlane]:
    make_certificate(folder)
    etcd, peer, port, admin = free_port(), free_port(), free_port(), secrets.token_hex(16)
    (folder / "audit.yaml").write_text(AUDIT)
    (folder / "tokens").write_text(f"{admin},admin,admin,system:masters\n")
    commands = [
        [
            f"{binaries}/etcd",
            f"--data-dir={folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
        ],
        [
            f"{binaries}/kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder}/server.crt",
            f"--tls-private-key-file={folder}/server.key",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://test",
            f"--service-account-key-file={folder}/server.crt",
            f"--service-account-signing-key-file={folder}/server.key",
            f"--audit-policy-file={folder}/audit.yaml",
            f"--audit-log-path={folder}/audit.log",
        ],
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            log = (folder / f"{Path(command[0]).name}.log").open("wb")
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        plane = ControlPlane(folder, port, admin, ssl.create_default_context(cafile=str(folder / "ca.crt")))
        deadline = time.monotonic() + 300
        while True:
            try:
                plane.another().call("GET", "/api/v1/namespaces/default")
                break
            except (OSError, RuntimeError):
                assert time.monotonic() < deadline, (folder / "kube-apiserver.log").read_text()[-2000:]
                time.sleep(0.2)
        yield plane
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
