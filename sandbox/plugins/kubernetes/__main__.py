"""The executable that the engine starts: serves on a free loopback port, prints it, and ends with the engine."""

from __future__ import annotations

import os
import signal
import sys
from concurrent import futures

import grpc
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2_grpc

from sandbox.plugins.kubernetes.provider import Provider

# Each await holds a thread, and the engine asks for many at once.
_THREADS = 64


def main() -> None:
    engine = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    provider = Provider(engine)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), options=_GRPC_CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)

    def stop(*_: object) -> None:
        provider.cancelled.set()
        server.stop(grace=1)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    parent = os.getppid()
    while server.wait_for_termination(timeout=1):
        if os.getppid() != parent:
            stop()


main()
