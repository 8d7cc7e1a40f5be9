"""The emulated AWS: a moto server on 127.0.0.1 with the patches of `patches/`."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # moto is imported in two thirds of the time.
    gc.disable()
# Set before moto is imported. Without it, moto cannot attach AWS-managed policies.
os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from sandbox.cloud import patches, recorded_calls
from sandbox.cloud.recorded_calls import Application, Environment
from sandbox.cloud.repeated_calls import answered_once


def one_at_a_time(application: Application) -> Application:
    """Handle one request at a time: moto fails if a request changes a dictionary while another one reads it."""
    lock = threading.Lock()

    def answer(environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return [b"".join(application(environ, start_response))]

    return answer


class RequestHandler(WSGIRequestHandler):
    """Sends headers and body in one piece. A client that gets them in two can close the connection in between."""

    wbufsize = 1 << 20

    def run_wsgi(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            del self.headers["Expect"]
        super().run_wsgi()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.cloud.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1 to listen on")
    parser.add_argument("--calls", type=Path, help="file that records every API call")
    given = parser.parse_args()
    port = given.port
    patches.apply()
    moto: Application = DomainDispatcherApplication(create_backend_app)
    recorded = recorded_calls.recorded(moto, given.calls) if given.calls else moto
    application = one_at_a_time(answered_once(recorded))
    try:
        server = make_server("127.0.0.1", port, application, threaded=True, request_handler=RequestHandler)
    except (OSError, SystemExit) as error:
        raise SystemExit(f"--port {port}: cannot listen on this port of 127.0.0.1. Use a free port.") from error
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gc.freeze()
    gc.enable()
    print(f"The emulated AWS listens on http://127.0.0.1:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
