"""The engine's protocol: requests in, the steps of operations.py, answers and one-line errors out."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from botocore.exceptions import ClientError
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.plugins.aws import operations, wire
from sandbox.plugins.aws.cloud import Cloud, StandInError, read_settings
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import Misuse, State, Unknown, accept, as_inputs
from sandbox.plugins.aws.rows import Row
from sandbox.plugins.aws.table import ROWS

VERSION = "7.51.1"  # of the SDK whose names are spoken
THREADS = 32
LARGEST_MESSAGE = 400 * 1024 * 1024  # the engine's own limit

Handler = Callable[["Servicer", Any, Any], Any]


def _row(urn: str) -> Row:
    token = urn.split("::")[2].rsplit("$", 1)[-1]
    if token not in ROWS:
        raise StandInError(
            f"{token} is not a resource type of the emulated AWS provider; docs/emulated-aws-provider.md lists them"
        )
    return ROWS[token]


def _answers(handler: Handler) -> Handler:
    """Turn what goes wrong into one line, and what is there but unfinished into what the engine remembers."""

    @functools.wraps(handler)
    def handle(self: Servicer, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return handler(self, request, context)
        except operations.UnfinishedError as error:
            detail = provider_pb2.ErrorResourceInitFailed(
                id=error.identity,
                properties=wire.write(error.state),
                inputs=wire.write(error.inputs),
                reasons=[error.reason],
            )
            packed = any_pb2.Any()
            packed.Pack(detail)
            status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=error.reason, details=[packed])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            return context.abort(grpc.StatusCode.UNKNOWN, error.reason)
        except (StandInError, ClientError) as error:
            return context.abort(grpc.StatusCode.UNKNOWN, operations.explain(error))

    return handle


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """One thread a request, so that slow calls do not wait for one another."""

    def __init__(self) -> None:
        self._cloud: Cloud | None = None

    def _of(self, urn: str, props: State) -> tuple[Row, Cloud]:
        """The row of a resource, and the cloud in the region that its own properties name."""
        row, region = _row(urn), props.get("region")
        return row, self._configured().within(region if "region" in row.inputs and isinstance(region, str) else None)

    def _configured(self) -> Cloud:
        if self._cloud is None:
            raise StandInError("the provider is not configured yet")
        return self._cloud

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=VERSION)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._cloud:
            self._cloud.stopping.set()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        news = wire.read(request.news)
        failures = []
        if not any(isinstance(value, Unknown) for value in news.values()):
            try:
                read_settings(news)
            except StandInError as error:
                failures.append(Misuse("", str(error)))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(failures))

    @_answers
    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        olds, news = wire.read(request.olds), wire.read(request.news)
        changed = sorted(name for name in olds.keys() | news.keys() if olds.get(name) != news.get(name))
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed,
            replaces=[name for name in changed if name == "region"],
        )

    @_answers
    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._cloud = Cloud(read_settings(wire.read(request.args)))
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    @_answers
    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        olds, news = wire.read(request.olds), wire.read(request.news)
        row, cloud = self._of(request.urn, news)
        inputs, misuses = operations.check(row, cloud, request.urn, olds, news, request.randomSeed)
        return provider_pb2.CheckResponse(inputs=wire.write(inputs), failures=_failures(misuses))

    @_answers
    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        olds, news = wire.read(request.olds), wire.read(request.news)
        row, _ = self._of(request.urn, news)
        found = [
            each
            for each in operations.find_differences(row, olds, news)
            if not any(_within(each.path, path) for path in request.ignoreChanges)
        ]
        replaces = [each.path for each in found if each.replaces]
        auto = row.autoname.property if row.autoname else ""
        named = bool(auto) and auto not in news.get("__defaults", ()) and news.get(auto) == olds.get(auto)
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if found else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=sorted({operations.top(each.path) for each in found}),
            replaces=replaces,
            deleteBeforeReplace=bool(replaces) and (named or row.delete_first),
            detailedDiff={
                each.path: provider_pb2.PropertyDiff(
                    kind=provider_pb2.PropertyDiff.Kind.Value(each.kind + ("_REPLACE" if each.replaces else ""))
                )
                for each in found
            },
            hasDetailedDiff=True,
        )

    @_answers
    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        want = wire.read(request.properties)
        row, cloud = self._of(request.urn, want)
        if request.preview:
            return provider_pb2.CreateResponse(properties=wire.write(operations.planned(row, want)))
        identity, state = operations.create(row, cloud, want, request.timeout or row.seconds)
        return provider_pb2.CreateResponse(id=identity, properties=wire.write(state))

    @_answers
    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        before, inputs = wire.read(request.properties), wire.read(request.inputs)
        row, cloud = self._of(request.urn, before)
        state = operations.look(row, cloud, request.id, before)
        if state is None:
            return provider_pb2.ReadResponse()
        identity = row.known_as(cloud, state) if row.known_as and not before else request.id
        asked = as_inputs(operations.comparable(row), state, inputs)
        asked["__defaults"] = inputs.get("__defaults", [])
        return provider_pb2.ReadResponse(id=identity, properties=wire.write(state), inputs=wire.write(asked))

    @_answers
    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        olds, want = wire.read(request.olds), wire.read(request.news)
        row, cloud = self._of(request.urn, want)
        if request.preview:
            return provider_pb2.UpdateResponse(properties=wire.write(operations.planned_update(row, olds, want)))
        state = operations.update(row, cloud, request.id, olds, want, request.timeout or row.seconds)
        return provider_pb2.UpdateResponse(properties=wire.write(state))

    @_answers
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        state = wire.read(request.properties)
        row, cloud = self._of(request.urn, state)
        operations.delete(row, cloud, request.id, state, request.timeout or row.seconds)
        return empty_pb2.Empty()

    @_answers
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.tok not in INVOKES:
            raise StandInError(
                f"{request.tok} is not a function that the stand-in knows; it has: {', '.join(sorted(INVOKES))}"
            )
        invoke = INVOKES[request.tok]
        given, misuses = accept(invoke.inputs, {k: v for k, v in wire.read(request.args).items() if v is not None})
        if misuses:
            return provider_pb2.InvokeResponse(failures=_failures(misuses))
        cloud = self._configured()
        region = given.get("region") if "region" in invoke.inputs else None
        result = invoke.answer(cloud.within(region), given)
        return provider_pb2.InvokeResponse(**{"return": wire.write(result)})


def _within(path: str, ignored: str) -> bool:
    return path == ignored or path.startswith((f"{ignored}.", f"{ignored}["))


def _failures(misuses: list[Misuse]) -> list[Any]:
    return [provider_pb2.CheckFailure(property=each.path, reason=each.reason) for each in misuses]


def serve() -> tuple[grpc.Server, int]:
    """Start serving on a free loopback port; stop when whoever started this process is no more."""
    options = [("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.max_send_message_length", LARGEST_MESSAGE)]
    server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    threading.Thread(target=_stop_with, args=(os.getppid(), server), daemon=True).start()
    return server, port


def _stop_with(parent: int, server: grpc.Server) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(1)
    server.stop(grace=30)
