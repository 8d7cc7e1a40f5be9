"""The engine's requests for Kubernetes objects, carried out by the API server of the cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

import grpc
from google.protobuf import empty_pb2, struct_pb2
from grpc import ServicerContext as Context
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

from sandbox.plugins.kubernetes import awaits, diff, openapi
from sandbox.plugins.kubernetes.kinds import rule_of
from sandbox.plugins.servicer import (
    InitFailedError,
    ProviderError,
    diff_changes,
    failures,
    is_ignored,
    plugin_version,
    reports_errors,
)
from sandbox.plugins.wire import Secret, State, Value, has_secret, has_unknown, read, reveal, write
from tools.kubernetes_client import (
    APPLY,
    Api,
    ApiError,
    Kind,
    KubeconfigError,
    Object,
    UnreachableError,
    load_kubeconfig,
)

SETTINGS = ("clusterIdentifier", "kubeconfig")
FIELD_MANAGER = "pulumi-kubernetes"
_reports_errors = reports_errors(KubeconfigError, ApiError, UnreachableError)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One configured provider. Each request runs in its own thread."""

    def __init__(self, engine: str) -> None:
        self.engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None
        self.configured: Api | None = None
        self.cancelled = threading.Event()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802
        return plugin_pb2.PluginInfo(version=plugin_version())

    def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    @_reports_errors
    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, context: Context
    ) -> provider_pb2.CheckResponse:
        given = read(request.news)
        bad = [(name, "is required by the emulated provider") for name in SETTINGS if not given.get(name)]
        bad += [
            (
                name,
                "is not supported by the emulated provider, because the program does not set it. "
                "Add it to SETTINGS in sandbox/plugins/kubernetes/provider.py",
            )
            # The engine adds the version.
            for name in sorted(given.keys() - {*SETTINGS, "version"})
        ]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures(bad))

    @_reports_errors
    def DiffConfig(  # noqa: N802
        self, request: provider_pb2.DiffRequest, context: Context
    ) -> provider_pb2.DiffResponse:
        olds, news = reveal(read(request.olds)), reveal(read(request.news))
        changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key))
        # The identifier says which cluster it is, so the kubeconfig does not matter.
        replaces = [key for key in changed if key == "clusterIdentifier"]
        return provider_pb2.DiffResponse(changes=diff_changes(bool(changed)), diffs=changed, replaces=replaces)

    @_reports_errors
    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, context: Context
    ) -> provider_pb2.ConfigureResponse:
        self.configured = Api(load_kubeconfig(request.variables["kubernetes:config:kubeconfig"]))
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    @_reports_errors
    def Check(self, request: provider_pb2.CheckRequest, context: Context) -> provider_pb2.CheckResponse:  # noqa: N802
        kind, inputs = rule_of(request.urn).kind, diff.without_nulls(read(request.news))
        bad: list[tuple[diff.Path, str]] = []
        for key, value in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if inputs.setdefault(key, value) != value:
                bad.append(((key,), f"must be {value!r} for this resource, is {inputs[key]!r}"))
        plain: Object = reveal(inputs)
        metadata = plain.get("metadata", {})
        if isinstance(metadata, dict):
            required = {"name", "namespace"} if kind.namespaced else {"name"}
            missing = sorted(required - metadata.keys())
            bad += [(("metadata", name), "is required by the emulated provider") for name in missing]
        bad += [(("metadata", "annotations"), problem) for problem in awaits.unsupported_annotations(plain)]
        # A preview must work before the cluster exists.
        with contextlib.suppress(UnreachableError):
            bad += openapi.misfits(self._api.schemas(kind.api_version), kind, plain)
        found = failures((diff.format_path(path), reason) for path, reason in bad)
        return provider_pb2.CheckResponse(inputs=write(inputs), failures=found)

    @_reports_errors
    def Diff(self, request: provider_pb2.DiffRequest, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802
        rule, live, news = rule_of(request.urn), _object(request.olds), _object(request.news)
        pruned = diff.prune(live, _object(request.old_inputs))
        changes = [
            change for change in diff.changes(pruned, news, live) if not is_ignored(str(change), request.ignoreChanges)
        ]
        detailed, replaces = {}, []
        for change in changes:
            replaced = diff.replaces(change, rule.replacing)
            kind = provider_pb2.PropertyDiff.Kind.Value(change.kind + ("_REPLACE" if replaced else ""))
            detailed[str(change)] = provider_pb2.PropertyDiff(kind=kind, inputDiff=change.kind == "DELETE")
            if replaced:
                replaces.append(str(change))
        return provider_pb2.DiffResponse(
            changes=diff_changes(bool(changes)),
            replaces=replaces,
            detailedDiff=detailed,
            hasDetailedDiff=True,
            deleteBeforeReplace=bool(replaces) and _takes_the_same_name(news, live),
        )

    @_reports_errors
    def Create(  # noqa: N802
        self, request: provider_pb2.CreateRequest, context: Context
    ) -> provider_pb2.CreateResponse:
        kind, raw = rule_of(request.urn).kind, read(request.properties)
        inputs: Object = reveal(raw)
        as_given = provider_pb2.CreateResponse(properties=request.properties)
        if request.preview and has_unknown(inputs):
            return as_given
        try:
            metadata = inputs["metadata"]
            if self._api.find(kind, metadata.get("namespace", ""), metadata["name"]):
                raise ApiError(409, {"message": "it already exists"})
            live = self._apply(kind, inputs, request.preview)
        except (ApiError, UnreachableError) as error:
            # In a preview the namespace or cluster may not exist yet, and the replaced object may still exist.
            if request.preview and (isinstance(error, UnreachableError) or error.code in (403, 404, 409)):
                return as_given
            raise ProviderError(f"{kind.kind} {_id(inputs)} could not be created: {error}") from error
        if request.preview:
            live.pop("status", None)
            return provider_pb2.CreateResponse(properties=write(conceal(live, raw)))
        return provider_pb2.CreateResponse(
            id=_id(live), properties=self._await(request.urn, raw, live, request.timeout)
        )

    @_reports_errors
    def Update(  # noqa: N802
        self, request: provider_pb2.UpdateRequest, context: Context
    ) -> provider_pb2.UpdateResponse:
        kind, raw = rule_of(request.urn).kind, read(request.news)
        inputs: Object = reveal(raw)
        if request.preview and has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=request.news)
        try:
            live = self._apply(kind, inputs, request.preview)
        except ApiError as error:
            raise ProviderError(f"{kind.kind} {_id(inputs)} could not be updated: {error}") from error
        if request.preview:
            return provider_pb2.UpdateResponse(properties=write(conceal(live, raw)))
        return provider_pb2.UpdateResponse(properties=self._await(request.urn, raw, live, request.timeout))

    @_reports_errors
    def Read(self, request: provider_pb2.ReadRequest, context: Context) -> provider_pb2.ReadResponse:  # noqa: N802
        kind, raw, old_inputs = rule_of(request.urn).kind, read(request.inputs), _object(request.inputs)
        if not old_inputs:
            raise ProviderError(f"the emulated Kubernetes provider cannot import {kind.kind} {request.id}")
        namespace, _, name = request.id.rpartition("/")
        live = self._api.find(kind, namespace, name)
        if live is None:
            return provider_pb2.ReadResponse()
        inputs = write(conceal(diff.prune(live, old_inputs), raw))
        properties = write(conceal(live, raw))
        reasons = awaits.readiness(self._api, old_inputs, live)
        if reasons is not None:
            raise InitFailedError([f"{kind.kind} {_id(live)} is not ready", *reasons], request.id, properties, inputs)
        return provider_pb2.ReadResponse(id=request.id, properties=properties, inputs=inputs)

    @_reports_errors
    def Delete(self, request: provider_pb2.DeleteRequest, context: Context) -> empty_pb2.Empty:  # noqa: N802
        kind, live = rule_of(request.urn).kind, _object(request.properties)
        namespace, _, name = request.id.rpartition("/")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        try:
            self._api.request("DELETE", kind.path(namespace, name), options)
        except ApiError as error:
            if error.code == 404:
                return empty_pb2.Empty()
            raise
        seconds = request.timeout or awaits.DEFAULT_SECONDS
        try:
            awaits.until_gone(self._wait(request.urn), kind, _object(request.old_inputs), live, seconds)
        except awaits.NotReadyError as error:
            raise ProviderError(str(error)) from error
        return empty_pb2.Empty()

    @property
    def _api(self) -> Api:
        if self.configured is None:
            raise ProviderError("the emulated Kubernetes provider is not configured yet")
        return self.configured

    def _apply(self, kind: Kind, inputs: Object, preview: bool) -> Object:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"} | ({"dryRun": "All"} if preview else {})
        metadata = inputs["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        return self._api.request("PATCH", path, inputs, query, APPLY)

    def _await(self, urn: str, raw: State, live: Object, seconds: float) -> struct_pb2.Struct:
        """Wait until the object is ready and return its state."""
        kind, inputs = rule_of(urn).kind, reveal(raw)
        problem: Exception
        try:
            ready = awaits.until_ready(self._wait(urn), kind, inputs, live, seconds or awaits.DEFAULT_SECONDS)
            return write(conceal(ready, raw))
        except awaits.NotReadyError as error:
            problem, live, reasons = error, error.live, error.reasons
        except (ApiError, UnreachableError) as error:
            # The object exists, so the engine must store it whatever goes wrong now.
            problem, reasons = error, []
        raise InitFailedError([str(problem), *reasons], _id(live), write(conceal(live, raw)))

    def _wait(self, urn: str) -> awaits.Wait:
        last = ""

        def show(message: str) -> None:
            nonlocal last
            if message != last and self.engine:
                last = message
                request = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=message, urn=urn, ephemeral=True)
                with contextlib.suppress(grpc.RpcError):
                    self.engine.Log(request)

        return awaits.Wait(self._api, show, self.cancelled)


def _object(struct: struct_pb2.Struct) -> Object:
    """A Kubernetes object in a message, without its Secret wrappers."""
    return reveal(read(struct))


def _takes_the_same_name(news: Object, live: Object) -> bool:
    metadata, old = news.get("metadata"), live["metadata"]
    return isinstance(metadata, dict) and all(metadata.get(key) == old.get(key) for key in ("name", "namespace"))


def _id(obj: Object) -> str:
    metadata = obj["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def conceal(value: Mapping[str, Value], like: Mapping[str, Value]) -> State:
    """The value with Secret wherever the inputs had one."""
    concealed = dict(value)
    for key, theirs in like.items():
        ours = concealed.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            concealed[key] = conceal(ours, theirs)
        elif ours is not None and has_secret(theirs):
            concealed[key] = Secret(ours)
    return concealed
