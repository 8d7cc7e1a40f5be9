"""The server that `kubectl logs` reads from: the logs of a node's containers, over TLS."""

from __future__ import annotations

import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sandbox.node.container_run import has_watcher
from sandbox.node.pod_runner import Machine
from tools.kubernetes_client import load_pair


def serve_logs(machine: Machine, address: str) -> ThreadingHTTPServer:
    """Serve on a free port of the address, with the client certificate: the API server does not verify it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts, query = url.path.strip("/").split("/"), parse_qs(url.query)
            if len(parts) != 4 or parts[0] != "containerLogs":
                self.send_error(404)
                return
            log = _log(machine, *parts[1:])
            if log is None or query.get("previous") == ["true"]:
                self.send_error(404, "this container has no log")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self._send(log, int(query.get("tailLines", ["-1"])[0]), query.get("follow") == ["true"])

        def _send(self, log: Path, lines: int, follow: bool) -> None:
            with log.open("rb") as file:
                data = file.read()
                self.wfile.write(data if lines < 0 else b"".join(data.splitlines(True)[-lines:] if lines else []))
                while follow and _is_running(machine, log):
                    self.wfile.flush()
                    time.sleep(0.2)
                    self.wfile.write(file.read())
                self.wfile.write(file.read())

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer((address, 0), Handler)
    pair = machine.api.client_certificate()
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, *pair)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _log(machine: Machine, namespace: str, pod: str, container: str) -> Path | None:
    """The log of the newest pod with this name; the uid, which is the end of the folder's name, is not known."""
    found = machine.log_folder(namespace, pod, "*")
    logs = found.parent.glob(f"{found.name}/{container}.log")
    return max(logs, key=lambda log: log.parent.stat().st_mtime, default=None)


def _is_running(machine: Machine, log: Path) -> bool:
    """Whether the container run that writes this log still runs."""
    uid = log.parent.name.rpartition("_")[2]
    run = machine.pods / uid / "containers" / log.stem
    return run.exists() and has_watcher(run)
