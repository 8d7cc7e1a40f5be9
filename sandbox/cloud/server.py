"""The emulated AWS: a moto server on 127.0.0.1 with the patches of `patches/`."""

from __future__ import annotations

import argparse
import functools
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

from moto import backends
from moto.core import responses
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import method_names_from_class
from moto.iam import models as iam
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from sandbox.cloud import patches, recorded_calls
from sandbox.cloud.recorded_calls import Application, Environment


def one_at_a_time(application: Application) -> Application:
    """Handle one request at a time: moto fails if a request changes a dictionary while another one reads it."""
    lock = threading.Lock()

    def answer(environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start_response))

    return answer


def do_once() -> None:
    """Replace functions of moto that repeat the same work for each request: a fifth of its CPU time."""
    # This one looks at every file in the folder of moto.
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    # This one looks at every attribute of a class.
    vars(responses)["method_names_from_class"] = functools.cache(method_names_from_class)
    # This one creates IAM, with the 1600 policies of AWS, in every partition.
    iam.get_account_id_from = account_of


def account_of(access_key: str) -> str:
    """The account of an access key, in the partitions that are used."""
    for account, partitions in list(iam.iam_backends.items()):
        if any(access_key in backend.access_keys for backend in list(partitions.values())):
            return str(account)
    return DEFAULT_ACCOUNT_ID


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.cloud.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1 to listen on")
    parser.add_argument("--calls", type=Path, help="file that records every API call")
    given = parser.parse_args()
    port = given.port
    patches.apply()
    do_once()
    moto: Application = DomainDispatcherApplication(create_backend_app)
    application = one_at_a_time(recorded_calls.recorded(moto, given.calls) if given.calls else moto)
    try:
        server = make_server("127.0.0.1", port, application, threaded=True)
    except (OSError, SystemExit) as error:
        raise SystemExit(f"--port {port}: cannot listen on this port of 127.0.0.1. Use a free port.") from error
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gc.freeze()
    gc.enable()
    print(f"The emulated AWS listens on http://127.0.0.1:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
