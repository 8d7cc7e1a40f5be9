"""A small API server for tests, over HTTPS: lists in pages, watches, forgets (410), cuts off and stops at will."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


def make_certificate(folder: Path) -> None:
    """A CA of its own (ca.crt) and a server certificate that it signed for 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"openssl req -x509 {new_key} -keyout ca.key -out ca.crt -subj /CN=ca -days 2",
        f"openssl req {new_key} -keyout server.key -out server.csr -subj /CN=api",
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2"
        " -extfile extensions",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpsServer

    def do_GET(self) -> None:
        self.server.respond(self)

    def log_message(self, *_: Any) -> None:
        pass


class HttpsServer(ThreadingHTTPServer):
    """Answers each GET with a function, in threads of its own."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, certificates: Path, respond: Callable[[Any], None], port: int = 0) -> None:
        self.respond = respond
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_: Any) -> None:
        """The client may close the connection in the middle of an answer."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The handshake belongs in the connection's own thread.
        super().finish_request(self.context.wrap_socket(request, server_side=True), client_address)


class FakeApi:
    """Holds objects of one kind, and answers GET on their collection as Kubernetes does."""

    def __init__(self, certificates: Path, token: str = "first") -> None:
        self.certificates = certificates
        self.tokens = {token}
        self.changed = threading.Condition()
        self.version = 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        self.requests: list[dict[str, str]] = []
        self.cut = 0  # watches that began before this many cuts end at once
        self.port = 0
        self.server: HttpsServer | None = None
        self.start()

    def start(self) -> None:
        """Listen, at the same port as before."""
        self.server = HttpsServer(self.certificates, self.answer, self.port)
        self.port = self.server.server_address[1]

    def stop(self) -> None:
        """Be gone: no connection is kept, none is taken."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None
        self.disconnect()

    def disconnect(self) -> None:
        """End every watch without a word."""
        with self.changed:
            self.cut += 1
            self.changed.notify_all()

    def forget(self) -> None:
        """Compact: a watch or a page from before now is answered 410."""
        with self.changed:
            self.oldest = self.version
            self.log.clear()

    def put(self, item: dict[str, Any]) -> None:
        with self.changed:
            self.version += 1
            name = item["metadata"]["name"]
            item = json.loads(json.dumps(item))
            item["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, "MODIFIED" if name in self.objects else "ADDED", item))
            self.objects[name] = item
            self.changed.notify_all()

    def delete(self, name: str) -> None:
        with self.changed:
            self.version += 1
            item = self.objects.pop(name)
            self.log.append((self.version, "DELETED", item))
            self.changed.notify_all()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        self.requests.append(query)
        token = handler.headers.get("Authorization", "").partition("Bearer ")[2]
        if token not in self.tokens:
            self.reply(handler, 401, {"message": "Unauthorized"})
        elif query.get("watch"):
            self.watch(handler, int(query["resourceVersion"]), query)
        else:
            self.page(handler, query)

    def reply(self, handler: BaseHTTPRequestHandler, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def page(self, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        """A page of the list, and the token for the next."""
        with self.changed:
            version, _, after = query.get("continue", f"{self.version}:").partition(":")
            names = sorted(name for name, item in self.objects.items() if name > after and selected(item, query))
            limit = int(query.get("limit", "0")) or len(names)
            metadata = {"resourceVersion": version}
            if len(names) > limit:
                metadata["continue"] = f"{version}:{names[limit - 1]}"
            items = [self.objects[name] for name in names[:limit]]
            gone = int(version) < self.oldest
        if gone:
            self.reply(handler, 410, {"message": "The provided continue parameter is too old"})
        else:
            self.reply(handler, 200, {"kind": "List", "metadata": metadata, "items": items})

    def watch(self, handler: BaseHTTPRequestHandler, version: int, query: dict[str, str]) -> None:
        """Changes after the version, until cut off."""
        if version < self.oldest:
            self.reply(handler, 410, {"message": "too old resource version"})
            return
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        cut = self.cut
        bookmark = time.monotonic()
        while True:
            with self.changed:
                if self.version == version and self.cut == cut:
                    self.changed.wait(timeout=0.5)
                if self.cut != cut or handler.server is not self.server:
                    handler.close_connection = True
                    return
                fresh = [entry for entry in self.log if entry[0] > version]
                lost = version < self.oldest
                now = self.version
            if lost:
                error = {"kind": "Status", "code": 410, "message": "too old resource version"}
                self.send(handler, {"type": "ERROR", "object": error})
                handler.close_connection = True
                return
            for _, kind, item in fresh:
                if selected(item, query):
                    self.send(handler, {"type": kind, "object": item})
            if not fresh and time.monotonic() - bookmark > 0.4:
                bookmark = time.monotonic()
                self.send(handler, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(now)}}})
            version = now

    def send(self, handler: BaseHTTPRequestHandler, event: dict[str, Any]) -> None:
        """One line of a watch, as one chunk."""
        line = json.dumps(event).encode() + b"\n"
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


def selected(item: dict[str, Any], query: dict[str, str]) -> bool:
    """Whether the object has the label that the request asks for."""
    name, _, value = query.get("labelSelector", "").partition("=")
    return not name or item["metadata"].get("labels", {}).get(name) == value


def make_pod(job: str, index: int, address: str, phase: str = "Running", owner: str = "job-1") -> dict[str, Any]:
    """A pod of the Job, as the Job controller makes it: each with a UID of its own."""
    uid = str(uuid.uuid4())
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "metadata": {
            "name": f"{job}-{index}-{uid[:5]}",
            "uid": uid,
            "labels": {"job-name": job, "batch.kubernetes.io/controller-uid": owner},
            "annotations": annotations,
            "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "ownerReferences": [{"kind": "Job", "name": job, "uid": owner, "controller": True}],
        },
        "status": {"phase": phase, **({"podIP": address} if phase == "Running" else {})},
    }
