"""The engine's requests for AWS resources: read the message, run the operation for its type, write the answer."""

from __future__ import annotations

from botocore.exceptions import ClientError
from google.protobuf import empty_pb2
from grpc import ServicerContext as Context
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from sandbox.plugins.aws import operations
from sandbox.plugins.aws.cloud import Cloud, read_settings
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import Difference, accept, as_inputs, with_place
from sandbox.plugins.aws.rows import Row
from sandbox.plugins.aws.table import ROWS
from sandbox.plugins.servicer import (
    ProviderError,
    diff_changes,
    failures,
    is_ignored,
    plugin_version,
    reports_errors,
    type_token,
)
from sandbox.plugins.wire import State, Unknown, read, reveal, write

PAGE = "docs/emulated-aws-provider.md"

_reports_errors = reports_errors(ClientError, explain=operations.explain)


def _row(urn: str) -> Row:
    token = type_token(urn)
    if token not in ROWS:
        raise ProviderError(f"{token} is not a resource type of the emulated AWS provider; {PAGE} lists them")
    return ROWS[token]


def _identity(row: Row, identity: str, state: State) -> str:
    """The ID by which the provider finds a resource. An import has no state."""
    return str(state.get("id", "")) if row.framework and state else identity


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One configured provider. Each request runs in its own thread."""

    def __init__(self) -> None:
        self._cloud: Cloud | None = None

    def _configured(self) -> Cloud:
        if self._cloud is None:
            raise ProviderError("the emulated AWS provider is not configured yet")
        return self._cloud

    def cancel(self) -> None:
        if self._cloud:
            self._cloud.stopping.set()

    def Handshake(  # noqa: N802
        self, request: provider_pb2.ProviderHandshakeRequest, context: Context
    ) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802
        return plugin_pb2.PluginInfo(version=plugin_version())

    def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:  # noqa: N802
        self.cancel()
        return empty_pb2.Empty()

    @_reports_errors
    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, context: Context
    ) -> provider_pb2.CheckResponse:
        news = reveal(read(request.news))
        problems: list[tuple[str, str]] = []
        if not any(isinstance(value, Unknown) for value in news.values()):
            try:
                read_settings(news)
            except ProviderError as error:
                problems.append(("", str(error)))
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures(problems))

    @_reports_errors
    def DiffConfig(self, request: provider_pb2.DiffRequest, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802
        olds, news = read(request.olds), read(request.news)
        changed = sorted(name for name in olds.keys() | news.keys() if olds.get(name) != news.get(name))
        replaces = [name for name in changed if name == "region"]
        return provider_pb2.DiffResponse(changes=diff_changes(bool(changed)), diffs=changed, replaces=replaces)

    @_reports_errors
    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, context: Context
    ) -> provider_pb2.ConfigureResponse:
        self._cloud = Cloud(read_settings(reveal(read(request.args))))
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    @_reports_errors
    def Check(self, request: provider_pb2.CheckRequest, context: Context) -> provider_pb2.CheckResponse:  # noqa: N802
        olds, news = reveal(read(request.olds)), reveal(read(request.news))
        cloud = self._configured()
        inputs, problems = operations.check(_row(request.urn), cloud, request.urn, olds, news, request.randomSeed)
        return provider_pb2.CheckResponse(inputs=write(inputs), failures=failures(problems))

    @_reports_errors
    def Diff(self, request: provider_pb2.DiffRequest, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802
        olds, news = reveal(read(request.olds)), reveal(read(request.news))
        row = _row(request.urn)
        found = [
            each
            for each in operations.find_differences(row, olds, news)
            if not is_ignored(each.path, request.ignoreChanges)
        ]
        found += [Difference(name, "UPDATE", False) for name in row.renewed if found]
        replaces = [each.path for each in found if each.replaces]
        return provider_pb2.DiffResponse(
            changes=diff_changes(bool(found)),
            diffs=sorted({operations.top(each.path) for each in found}),
            replaces=replaces,
            deleteBeforeReplace=bool(replaces) and operations.deletes_first(row, olds, news),
            detailedDiff={
                each.path: provider_pb2.PropertyDiff(
                    kind=provider_pb2.PropertyDiff.Kind.Value(each.kind + ("_REPLACE" if each.replaces else ""))
                )
                for each in found
            },
            hasDetailedDiff=True,
        )

    @_reports_errors
    def Create(self, request: provider_pb2.CreateRequest, context: Context) -> provider_pb2.CreateResponse:  # noqa: N802
        want = reveal(read(request.properties))
        row = _row(request.urn)
        if request.preview:
            return provider_pb2.CreateResponse(properties=write(operations.planned(row, want)))
        identity, state = operations.create(row, self._configured(), want, request.timeout or row.seconds)
        return provider_pb2.CreateResponse(id=identity, properties=write(state))

    @_reports_errors
    def Read(self, request: provider_pb2.ReadRequest, context: Context) -> provider_pb2.ReadResponse:  # noqa: N802
        before, inputs = reveal(read(request.properties)), reveal(read(request.inputs))
        row, cloud = _row(request.urn), self._configured()
        state = operations.look(row, cloud, _identity(row, request.id, before), before)
        if state is None:
            return provider_pb2.ReadResponse()
        identity = row.known_as(cloud, state) if row.known_as and not before else request.id
        asked = as_inputs(operations.comparable(row), state, inputs)
        asked["__defaults"] = inputs.get("__defaults", [])
        return provider_pb2.ReadResponse(id=identity, properties=write(state), inputs=write(asked))

    @_reports_errors
    def Update(self, request: provider_pb2.UpdateRequest, context: Context) -> provider_pb2.UpdateResponse:  # noqa: N802
        olds, want = reveal(read(request.olds)), reveal(read(request.news))
        row = _row(request.urn)
        if request.preview:
            return provider_pb2.UpdateResponse(properties=write(operations.planned_update(row, olds, want)))
        identity = _identity(row, request.id, olds)
        state = operations.update(row, self._configured(), identity, olds, want, request.timeout or row.seconds)
        return provider_pb2.UpdateResponse(properties=write(state))

    @_reports_errors
    def Delete(self, request: provider_pb2.DeleteRequest, context: Context) -> empty_pb2.Empty:  # noqa: N802
        state = reveal(read(request.properties))
        row = _row(request.urn)
        identity = _identity(row, request.id, state)
        operations.delete(row, self._configured(), identity, state, request.timeout or row.seconds)
        return empty_pb2.Empty()

    @_reports_errors
    def Invoke(self, request: provider_pb2.InvokeRequest, context: Context) -> provider_pb2.InvokeResponse:  # noqa: N802
        if request.tok not in INVOKES:
            raise ProviderError(f"{request.tok} is not a function of the emulated AWS provider; {PAGE} lists them")
        invoke = INVOKES[request.tok]
        args = reveal(read(request.args))
        given, problems = accept(invoke.inputs, {name: value for name, value in args.items() if value is not None})
        if problems:
            table = "INVOKES in sandbox/plugins/aws/invokes.py"
            return provider_pb2.InvokeResponse(failures=failures(with_place(problems, table)))
        return provider_pb2.InvokeResponse(**{"return": write(invoke.answer(self._configured(), given))})
