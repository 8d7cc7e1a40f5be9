"""A local HTTP server that plays the role of GitHub, and the commands that use it."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from unittest import mock

TOKEN = "token-of-this-run"


class FakeGitHub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def respond(self, method: str, path: str, content: Any) -> tuple[int, object]:
        """The status and the answer."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    server: FakeGitHub

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        status, answer = self.server.respond(self.command, self.path, json.loads(body or b"null"))
        self.send_response(status if self.headers["Authorization"] == f"Bearer {TOKEN}" else 401)
        self.end_headers()
        if status != 204:
            self.wfile.write(json.dumps(answer).encode())

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


Fake = TypeVar("Fake", bound=FakeGitHub)


@contextmanager
def serving(server: Fake) -> Iterator[Fake]:
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:
            server.shutdown()


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(main: Callable[[], None], *arguments: str, stdin: str = "", **environment: str) -> Done:
    """A command in this process. A process of its own takes half a second."""
    out, error, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["command", *arguments]),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(error),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
    return Done(code, out.getvalue(), error.getvalue())
