"""What both emulated providers share: errors in the form that the engine expects, and the process that it starts."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
from google.protobuf import any_pb2, struct_pb2
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

THREADS = 64  # each wait occupies a thread, and the engine sends many requests at once
GRACE_SECONDS = 0.5  # the engine reports a plugin that does not end soon after SIGINT

_Self = TypeVar("_Self")
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
Handler = Callable[[_Self, _Request, grpc.ServicerContext], _Response]


class ProviderError(Exception):
    """An error for the user, in one line."""


class InitFailedError(Exception):
    """The resource exists but is not as requested: the engine stores its state together with the reasons."""

    def __init__(
        self,
        reasons: list[str],
        identity: str,
        properties: struct_pb2.Struct,
        inputs: struct_pb2.Struct | None = None,
    ) -> None:
        super().__init__(reasons[0])
        self.detail = provider_pb2.ErrorResourceInitFailed(
            id=identity, properties=properties, inputs=inputs, reasons=reasons
        )


def reports_errors(
    *expected: type[Exception], explain: Callable[[Exception], str] = str
) -> Callable[[Handler[_Self, _Request, _Response]], Handler[_Self, _Request, _Response]]:
    """Turn the expected errors of a handler into what the engine shows the user."""

    def decorate(handler: Handler[_Self, _Request, _Response]) -> Handler[_Self, _Request, _Response]:
        @functools.wraps(handler)
        def handle(self: _Self, request: _Request, context: grpc.ServicerContext) -> _Response:
            try:
                return handler(self, request, context)
            except InitFailedError as error:
                detail = any_pb2.Any()
                detail.Pack(error.detail)
                status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
                raise
            except (ProviderError, *expected) as error:  # type: ignore[misc]
                context.abort(grpc.StatusCode.UNKNOWN, explain(error))
                raise

        return handle

    return decorate


def plugin_version() -> str:
    """The version of the SDK. The Python of the sandbox does not have the SDK, so choice.py passes its version."""
    return os.environ.get("PLUGIN_VERSION", "")


def type_token(urn: str) -> str:
    """The type in a URN, without the types of its parents."""
    return urn.split("::")[2].rsplit("$", 1)[-1]


def is_ignored(path: str, ignored: Iterable[str]) -> bool:
    """Whether a property path is one of `ignoreChanges`, or lies inside one of them."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in ignored)


def failures(found: Iterable[tuple[str, str]]) -> list[provider_pb2.CheckFailure]:
    return [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in found]


def diff_changes(changed: bool) -> provider_pb2.DiffResponse.DiffChanges.ValueType:
    return provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE


def serve(servicer: provider_pb2_grpc.ResourceProviderServicer, cancel: Callable[[], None]) -> None:
    """Serve on a free loopback port and print the port; end when the engine says so or has ended."""
    server = grpc.server(ThreadPoolExecutor(THREADS), options=_GRPC_CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def stop(*_: object) -> None:
        cancel()
        server.stop(grace=GRACE_SECONDS)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print(port, flush=True)
    parent = os.getppid()
    while server.wait_for_termination(timeout=1):
        if os.getppid() != parent:
            stop()
    os._exit(0)  # requests that are still running must not keep the process alive
