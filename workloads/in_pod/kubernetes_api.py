"""The two calls of the Kubernetes API that a pod makes: list objects in pages, and watch them."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import time
import urllib.parse
from pathlib import Path
from typing import Any, Callable, Iterator

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500
WATCH_SECONDS = 300
SHORT_WATCH_SECONDS = 1.0
FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0


class ApiError(Exception):
    """The API server returned an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


def request(path: str, query: dict[str, str], timeout: float) -> http.client.HTTPResponse:
    """Send GET as this pod's service account. The caller reads and closes the response."""
    # Not create_default_context: since Python 3.13 it rejects the certificates that Kubernetes signs for itself.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ACCOUNT / "ca.crt")
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    connection.connect()
    # With keepalive a lost connection is noticed within a minute, not at the end of the watch.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
    token = (ACCOUNT / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Connection": "close"}
    connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}", headers=headers)
    response = connection.getresponse()
    if response.status != http.client.OK:
        body = response.read().decode(errors="replace")
        raise ApiError(response.status, message_of(body))
    return response


def message_of(body: str) -> str:
    """The message of a Status object; other text is returned unchanged."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:200]


def list_all(path: str, query: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Every object by name, and the version from which to watch."""
    objects: dict[str, Any] = {}
    page: dict[str, str] = {}
    while True:
        with request(path, {**query, **page, "limit": str(PAGE)}, timeout=30) as response:
            answer = json.load(response)
        objects.update((item["metadata"]["name"], item) for item in answer["items"])
        if not answer["metadata"].get("continue"):
            return objects, answer["metadata"]["resourceVersion"]
        page = {"continue": answer["metadata"]["continue"]}


def events(path: str, query: dict[str, str], version: str) -> Iterator[tuple[str, Any]]:
    """The changes since the version, until the server ends the watch."""
    watch = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    with request(path, {**query, **watch}, timeout=WATCH_SECONDS + 30) as response:
        for line in response:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError(event["object"].get("code", 0), event["object"].get("message", ""))
            yield event["type"], event["object"]


def follow(path: str, query: dict[str, str], report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The objects by name: now, and again after every change. Errors are reported, and the request is repeated."""
    objects: dict[str, Any] = {}
    version, delay, empty_watches = "", FIRST_DELAY, 0
    while True:
        began = time.monotonic()
        try:
            if not version:
                objects, version = list_all(path, query)
                yield dict(objects)
            for kind, item in events(path, query, version):
                version, delay, empty_watches = item["metadata"]["resourceVersion"], FIRST_DELAY, 0
                if kind == "BOOKMARK":
                    continue
                if kind == "DELETED":
                    objects.pop(item["metadata"]["name"], None)
                else:
                    objects[item["metadata"]["name"]] = item
                yield dict(objects)
            # If the server closes watches at once, it may not know this version any more.
            if time.monotonic() - began < SHORT_WATCH_SECONDS:
                empty_watches += 1
                delay = min(delay * 2, LONGEST_DELAY)
                version = "" if empty_watches > 1 else version
        except (OSError, http.client.HTTPException, ValueError, ApiError) as error:
            if isinstance(error, ApiError) and error.status == http.client.GONE:
                version = ""
            else:
                report(f"the API server does not answer as expected ({error}); trying again")
            delay = min(delay * 2, 4.0)
        time.sleep(delay * random.uniform(0.5, 1.5))
