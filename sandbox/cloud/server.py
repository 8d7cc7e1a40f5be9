"""AWS on this machine: moto's server on loopback, its gaps mended."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Before moto is imported: without it every attachment of an AWS-managed policy fails.
os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from sandbox.cloud import patches, recorded_calls
from sandbox.cloud.recorded_calls import Application, Environment


def one_at_a_time(application: Application) -> Application:
    """moto's backends are plain dictionaries: a listing fails while another request adds to what it lists."""
    lock = threading.Lock()

    def answer(environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start_response))

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.cloud.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="a free port of 127.0.0.1")
    parser.add_argument("--calls", type=Path, help="a file to write each call to")
    given = parser.parse_args()
    port = given.port
    patches.apply()
    moto: Application = DomainDispatcherApplication(create_backend_app)
    application = one_at_a_time(recorded_calls.recorded(moto, given.calls) if given.calls else moto)
    try:
        server = make_server("127.0.0.1", port, application, threaded=True)
    except (OSError, SystemExit) as error:
        raise SystemExit(f"port {port} of 127.0.0.1 cannot be listened on: choose another") from error
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"AWS answers at http://127.0.0.1:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
