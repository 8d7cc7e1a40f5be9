"""The engine's requests for Kubernetes objects, carried out by the API server of the cluster."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from google.protobuf import empty_pb2, struct_pb2
from grpc import ServicerContext as Context
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

from sandbox.plugins.kubernetes import annotation, awaits, diff, openapi
from sandbox.plugins.servicer import (
    InitFailedError,
    ProviderError,
    diff_changes,
    failures,
    is_ignored,
    reports_errors,
    type_token,
)
from sandbox.plugins.wire import Secret, State, Unknown, Value, has_secret, has_unknown, read, reveal, write
from tools.kubernetes_client import (
    APPLY,
    JSON_PATCH,
    Api,
    ApiError,
    Kind,
    KubeconfigError,
    Object,
    UnreachableError,
    load_kubeconfig,
)

VERSION = "4.34.2"  # of the SDK whose names this provider uses
PAGE = "docs/emulated-kubernetes-provider.md"
SETTINGS = {
    "clusterIdentifier",
    "context",
    "deleteUnreachable",
    "enableConfigMapMutable",
    "enablePatchForce",
    "enableServerSideApply",
    "kubeconfig",
    "namespace",
    "suppressDeprecationWarnings",
    "suppressHelmHookWarnings",
    "upsertExistingObjects",
    "version",
}
# The official provider waits for these with rules that are not implemented here.
REFUSED_KINDS = {
    "CustomResourceDefinition",
    "Deployment",
    "Ingress",
    "PodDisruptionBudget",
    "ReplicationController",
    "ResourceQuota",
    "Service",
    "StatefulSet",
}
_CREATE_TRIES = 6
_CREATOR = "pulumi-kubernetes"  # the field manager of a create
# An update takes over the fields of these managers.
_TAKEN_OVER = {
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    (_CREATOR, "Update"),
    ("pulumi-kubernetes.exe", "Update"),
    ("pulumi-resource-kubernetes", "Update"),
}
_INPUTS, _FIELD_MANAGER, _API_VERSION = "__inputs", "__fieldManager", "__initialApiVersion"


_reports_errors = reports_errors(KubeconfigError, ApiError, UnreachableError, awaits.AnnotationError)


@dataclass(frozen=True)
class ProviderSettings:
    """The provider's configuration."""

    api: Api
    namespace: str
    upsert: bool = False
    patch_force: bool = False
    configmap_mutable: bool = False
    delete_unreachable: bool = False


@dataclass(frozen=True)
class Target:
    """The type and URN of the object in a request."""

    urn: str
    api_version: str
    kind: str

    @property
    def name(self) -> str:
        return self.urn.rsplit("::", 1)[-1]


def target(urn: str) -> Target:
    """Read kubernetes:GROUP/VERSION:KIND out of a URN; core/v1 is the API's v1."""
    token = type_token(urn)
    package, module, kind = token.split(":")
    group, _, version = module.partition("/")
    foreign = package != "kubernetes" or not version or group in ("helm.sh", "kustomize", "yaml")
    if foreign or kind.endswith(("Patch", "List")) or kind in REFUSED_KINDS:
        raise ProviderError(f"the emulated Kubernetes provider has no {token}; {PAGE} lists what it supports")
    return Target(urn, version if group == "core" else module, kind)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One configured provider. Each request runs in its own thread."""

    def __init__(self, engine: str) -> None:
        self.engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None
        self.settings: ProviderSettings | None = None
        self.cancelled = threading.Event()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:  # noqa: N802
        return plugin_pb2.PluginInfo(version=VERSION)

    def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    @_reports_errors
    def Invoke(  # noqa: N802
        self, request: provider_pb2.InvokeRequest, context: Context
    ) -> provider_pb2.InvokeResponse:
        raise ProviderError(
            f"the emulated Kubernetes provider has no function {request.tok}; {PAGE} lists what it supports"
        )

    @_reports_errors
    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, context: Context
    ) -> provider_pb2.CheckResponse:
        given = reveal(read(request.news))
        unsupported = f"is not supported by the emulated provider; it accepts: {', '.join(sorted(SETTINGS))}"
        bad = [(name, unsupported) for name in sorted(given.keys() - SETTINGS)]
        if given.get("enableServerSideApply") == "false":
            bad.append(("enableServerSideApply", "false is not supported by the emulated provider; remove the setting"))
        if not given.get("kubeconfig"):
            reason = "is required: the emulated provider does not read your own kubeconfig; give a path or the contents"
            bad.append(("kubeconfig", reason))
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures(bad))

    @_reports_errors
    def DiffConfig(  # noqa: N802
        self, request: provider_pb2.DiffRequest, context: Context
    ) -> provider_pb2.DiffResponse:
        olds, news = reveal(read(request.olds)), reveal(read(request.news))
        changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key))
        identifiers = olds.get("clusterIdentifier"), news.get("clusterIdentifier")
        replaces = []
        if all(identifiers):
            # The user says which cluster it is, so the kubeconfig does not matter.
            replaces = ["clusterIdentifier"] if "clusterIdentifier" in changed else []
        elif unknown := [key for key in ("kubeconfig", "context") if isinstance(news.get(key), Unknown)]:
            replaces = unknown
        elif _cluster(olds) != _cluster(news):
            replaces = [key for key in ("kubeconfig", "context") if key in changed]
        return provider_pb2.DiffResponse(changes=diff_changes(bool(changed)), diffs=changed, replaces=replaces)

    @_reports_errors
    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, context: Context
    ) -> provider_pb2.ConfigureResponse:
        given = {key.rsplit(":", 1)[-1]: value for key, value in request.variables.items()}
        config = load_kubeconfig(given["kubeconfig"], given.get("context", ""))
        self.settings = ProviderSettings(
            api=Api(config),
            namespace=given.get("namespace") or config.namespace or "default",
            upsert=given.get("upsertExistingObjects") == "true",
            patch_force=given.get("enablePatchForce") == "true",
            configmap_mutable=given.get("enableConfigMapMutable") == "true",
            delete_unreachable=given.get("deleteUnreachable") == "true",
        )
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    @_reports_errors
    def Check(self, request: provider_pb2.CheckRequest, context: Context) -> provider_pb2.CheckResponse:  # noqa: N802
        it, olds, news = target(request.urn), _object(request.olds), read(request.news)
        try:
            kind: Kind | None = self._kind(it)
        except UnreachableError:
            # A preview must work before the cluster exists.
            kind = None
        inputs = diff.without_nulls(news)
        bad: list[tuple[diff.Path, str]] = []
        for key, value in (("apiVersion", it.api_version), ("kind", it.kind)):
            if inputs.setdefault(key, value) != value:
                bad.append(((key,), f"must be {value!r} for this resource, is {inputs[key]!r}"))
        if isinstance(inputs.setdefault("metadata", {}), dict):
            namespaced = kind.namespaced if kind else not olds or "namespace" in olds["metadata"]
            inputs["metadata"] = self._named(it, inputs["metadata"], olds, request.randomSeed, namespaced)
            if "generateName" in inputs["metadata"]:
                bad.append((("metadata", "generateName"), "is not supported with server-side apply; give a name"))
        plain: Object = reveal(inputs)
        if given := annotation.get(plain, annotation.WAIT_FOR):
            try:
                awaits.parse_wait_for(given)
            except awaits.AnnotationError as error:
                bad.append((("metadata", "annotations"), str(error)))
        if kind:
            bad += openapi.misfits(self._config.api.schemas(it.api_version), kind, plain)
        found = failures((diff.format_path(path), reason) for path, reason in bad)
        return provider_pb2.CheckResponse(inputs=write(inputs), failures=found)

    @_reports_errors
    def Diff(self, request: provider_pb2.DiffRequest, context: Context) -> provider_pb2.DiffResponse:  # noqa: N802
        it, live = target(request.urn), _object(request.olds)
        news = diff.without_server_fields(_object(request.news))
        old_inputs = live.pop(_INPUTS, {})
        pruned = diff.prune(live, diff.without_server_fields(old_inputs))
        if isinstance(news.get("metadata"), dict) and news["metadata"].get("name"):
            pruned.setdefault("metadata", {})["name"] = live["metadata"]["name"]
        changes = [
            change for change in diff.changes(pruned, news, live) if not is_ignored(str(change), request.ignoreChanges)
        ]
        detailed, replaces = {}, []
        for change in changes:
            replaced = diff.replaces(change, it.api_version, it.kind, self._config.configmap_mutable)
            kind = provider_pb2.PropertyDiff.Kind.Value(change.kind + ("_REPLACE" if replaced else ""))
            detailed[str(change)] = provider_pb2.PropertyDiff(kind=kind, inputDiff=change.kind == "DELETE")
            if replaced or (change.kind == "DELETE" and change.path == ("metadata",)):
                replaces.append(str(change))
        if annotation.is_true(news, annotation.REPLACE_UNREADY) and self._is_unready(it, live):
            replaces.append(f'.metadata.annotations["{annotation.REPLACE_UNREADY}"]')
        return provider_pb2.DiffResponse(
            changes=diff_changes(bool(changes or replaces)),
            replaces=replaces,
            detailedDiff=detailed,
            hasDetailedDiff=True,
            deleteBeforeReplace=bool(replaces) and _takes_the_same_name(news, live),
        )

    @_reports_errors
    def Create(  # noqa: N802
        self, request: provider_pb2.CreateRequest, context: Context
    ) -> provider_pb2.CreateResponse:
        it, raw = target(request.urn), read(request.properties)
        inputs: Object = reveal(raw)
        as_given = provider_pb2.CreateResponse(properties=request.properties)
        if request.preview and has_unknown(inputs):
            return as_given
        manager = _field_manager(inputs, {})
        try:
            live = self._make(it, inputs, manager, request.preview)
        except (ApiError, UnreachableError) as error:
            # In a preview the namespace or cluster may not exist yet, and the replaced object may still exist.
            if request.preview and (isinstance(error, UnreachableError) or error.code in (403, 404, 409)):
                return as_given
            raise ProviderError(f"{_label(it, inputs)} could not be created: {error}") from error
        if request.preview:
            live.pop("status", None)
            return provider_pb2.CreateResponse(properties=write(_state(raw, live, manager, it.api_version)))
        properties = self._await(it, raw, live, manager, request.timeout, update=False)
        return provider_pb2.CreateResponse(id=_id(live), properties=properties)

    @_reports_errors
    def Update(  # noqa: N802
        self, request: provider_pb2.UpdateRequest, context: Context
    ) -> provider_pb2.UpdateResponse:
        it, raw, old = target(request.urn), read(request.news), _object(request.olds)
        inputs: Object = reveal(raw)
        if request.preview and has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=request.news)
        manager = _field_manager(inputs, old)
        try:
            kind = self._kind(it)
            force = self._take_over(kind, inputs, manager, request.preview)
            live = self._apply(kind, inputs, manager, request.preview, force)
        except ApiError as error:
            hint = (
                f'; to overwrite these fields, set the annotation {annotation.PATCH_FORCE}: "true"'
                if error.code == 409
                else ""
            )
            raise ProviderError(f"{_label(it, inputs)} could not be updated: {error}{hint}") from error
        if request.preview:
            return provider_pb2.UpdateResponse(properties=write(_state(raw, live, manager, it.api_version)))
        properties = self._await(it, raw, live, manager, request.timeout, update=True)
        return provider_pb2.UpdateResponse(properties=properties)

    @_reports_errors
    def Read(self, request: provider_pb2.ReadRequest, context: Context) -> provider_pb2.ReadResponse:  # noqa: N802
        it, raw = target(request.urn), read(request.inputs)
        state, old_inputs = _object(request.properties), _object(request.inputs)
        namespace, _, name = request.id.rpartition("/")
        try:
            live = self._config.api.find(self._kind(it), namespace or self._config.namespace, name)
        except UnreachableError:
            if not self._config.delete_unreachable:
                raise
            live = None
        if live is None:
            return provider_pb2.ReadResponse()
        imported = not old_inputs.get("kind") and not state.get("kind")
        inputs = diff.without_server_fields(live if imported else diff.prune(live, old_inputs))
        inputs.pop("status", None)
        manager = _field_manager(old_inputs, state)
        inputs = conceal(inputs, raw)
        properties = write(_state(inputs, live, manager, it.api_version))
        reasons = None if imported else awaits.readiness(self._config.api, old_inputs, live)
        if reasons is not None:
            message = f"{_label(it, live)} is not ready"
            raise InitFailedError([message, *reasons], request.id, properties, write(inputs))
        return provider_pb2.ReadResponse(id=request.id, properties=properties, inputs=write(inputs))

    @_reports_errors
    def Delete(self, request: provider_pb2.DeleteRequest, context: Context) -> empty_pb2.Empty:  # noqa: N802
        it, live = target(request.urn), _object(request.properties)
        inputs = live.get(_INPUTS, {})
        policy = (annotation.get(inputs, annotation.DELETION_PROPAGATION) or "foreground").capitalize()
        namespace, _, name = request.id.rpartition("/")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        try:
            kind = self._kind(it)
            self._config.api.request("DELETE", kind.path(namespace, name), options)
        except ApiError as error:
            if error.code == 404:
                return empty_pb2.Empty()
            raise
        except UnreachableError:
            if self._config.delete_unreachable:
                return empty_pb2.Empty()
            raise
        seconds = awaits.timeout(inputs, request.timeout)
        try:
            awaits.until_gone(self._wait(it), kind, inputs, live, seconds)
        except awaits.NotReadyError as error:
            raise ProviderError(str(error)) from error
        return empty_pb2.Empty()

    @property
    def _config(self) -> ProviderSettings:
        if self.settings is None:
            raise ProviderError("the emulated Kubernetes provider is not configured yet")
        return self.settings

    def _kind(self, it: Target) -> Kind:
        kind = self._config.api.kind(it.api_version, it.kind)
        if kind is None:
            raise ProviderError(f"the cluster at {self._config.api.config.server} has no {it.api_version} {it.kind}")
        return kind

    def _named(self, it: Target, metadata: Object, olds: Object, seed: bytes, namespaced: bool) -> Object:
        """The metadata with a generated name and the default namespace, if they are missing."""
        named = dict(metadata)
        if not named.get("name"):
            kept = annotation.is_true(olds, annotation.AUTONAMED) and olds["metadata"]["name"]
            named["name"] = kept or f"{it.name}-{random.Random(seed).getrandbits(32):08x}"
            given = named.get("annotations") or {}
            if isinstance(given, dict):
                named["annotations"] = given | {annotation.AUTONAMED: "true"}
        if namespaced and not named.get("namespace"):
            named["namespace"] = self._config.namespace
        return named

    def _is_unready(self, it: Target, live: Object) -> bool:
        """Whether a Job is not complete now, so a running Job is unready too. As in the official provider."""
        if it.kind != "Job":
            self._log(it.urn, f"{annotation.REPLACE_UNREADY} is not supported for this resource", engine_pb2.WARNING)
            return False
        try:
            now = self._config.api.find(self._kind(it), live["metadata"].get("namespace", ""), live["metadata"]["name"])
        except UnreachableError:
            self._log(it.urn, f"cannot reach the cluster to check {annotation.REPLACE_UNREADY}", engine_pb2.WARNING)
            return False
        except ApiError:
            return False
        return now is not None and not awaits.job_ready(now)

    def _make(self, it: Target, inputs: Object, manager: str, preview: bool) -> Object:
        """Create the object; wait shortly for its namespace."""
        kind, metadata = self._kind(it), inputs["metadata"]
        for attempt in range(_CREATE_TRIES):
            try:
                if self._config.upsert:
                    return self._apply(kind, inputs, manager, preview)
                query = {"fieldManager": _CREATOR, "fieldValidation": "Strict"} | ({"dryRun": "All"} if preview else {})
                return self._config.api.request("POST", kind.path(metadata.get("namespace", "")), inputs, query)
            except ApiError as error:
                if error.code == 409:
                    hint = "import it, or set upsertExistingObjects on the provider"
                    raise ApiError(409, {"message": f"{error}; {hint}"}) from error
                if error.code != 404 or preview or attempt == _CREATE_TRIES - 1:
                    raise
            self.cancelled.wait(2**attempt)
        raise AssertionError("the last attempt returns or raises an error")

    def _take_over(self, kind: Kind, inputs: Object, manager: str, preview: bool) -> bool:
        """Become the manager of the fields that were written without server-side apply, as by a create.

        Returns whether a preview must overwrite these fields, because it cannot change their manager.
        """
        metadata = inputs["metadata"]
        live = self._config.api.find(kind, metadata.get("namespace", ""), metadata["name"])
        entries = (live or {"metadata": {}})["metadata"].get("managedFields") or []
        taken = [entry for entry in entries if (entry["manager"], entry["operation"]) in _TAKEN_OVER]
        if not live or preview or not taken:
            return not live or any(entry["manager"] == _CREATOR for entry in taken)
        kept = [entry for entry in entries if entry not in taken]
        own = next(
            (e for e in kept if (e["manager"], e["operation"]) == (manager, "Apply") and "subresource" not in e), None
        )
        if own is None:
            own = {**taken[0], "manager": manager, "operation": "Apply", "fieldsV1": {}}
            kept.append(own)
        for entry in taken:
            own["fieldsV1"] = _merged(own["fieldsV1"], entry["fieldsV1"])
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        replace = {"op": "replace", "path": "/metadata/managedFields", "value": kept}
        self._config.api.request("PATCH", path, [replace], {}, JSON_PATCH)
        return False

    def _apply(self, kind: Kind, inputs: Object, manager: str, preview: bool, force: bool = False) -> Object:
        force = force or self._config.patch_force or annotation.is_true(inputs, annotation.PATCH_FORCE)
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if preview:
            query["dryRun"] = "All"
        metadata = inputs["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        return self._config.api.request("PATCH", path, inputs, query, APPLY)

    def _await(
        self, it: Target, raw: State, live: Object, manager: str, seconds: float, update: bool
    ) -> struct_pb2.Struct:
        """Wait until the object is ready and return its state."""
        inputs: Object = reveal(raw)
        wait_seconds = awaits.timeout(inputs, seconds)
        problem: Exception
        try:
            ready = awaits.until_ready(self._wait(it), self._kind(it), inputs, live, wait_seconds, update)
            return write(_state(raw, ready, manager, it.api_version))
        except awaits.NotReadyError as error:
            problem, live, reasons = error, error.live, error.reasons
        except (ApiError, UnreachableError, awaits.AnnotationError) as error:
            # The object exists, so the engine must store it whatever goes wrong now.
            problem, reasons = error, []
        properties = write(_state(raw, live, manager, it.api_version))
        raise InitFailedError([str(problem), *reasons], _id(live), properties)

    def _log(self, urn: str, message: str, severity: engine_pb2.LogSeverity.ValueType, ephemeral: bool = False) -> None:
        if self.engine:
            request = engine_pb2.LogRequest(severity=severity, message=message, urn=urn, ephemeral=ephemeral)
            with contextlib.suppress(grpc.RpcError):
                self.engine.Log(request)

    def _wait(self, it: Target) -> awaits.Wait:
        last = ""

        def show(message: str) -> None:
            nonlocal last
            if message != last:
                last = message
                self._log(it.urn, message, engine_pb2.INFO, ephemeral=True)

        return awaits.Wait(self._config.api, show, self.cancelled)


def _object(struct: struct_pb2.Struct) -> Object:
    """A Kubernetes object in a message, without its Secret wrappers."""
    return reveal(read(struct))


def _cluster(settings: State) -> Object | None:
    """The cluster in the kubeconfig; the official provider compares the same part."""
    try:
        return load_kubeconfig(str(settings["kubeconfig"]), str(settings.get("context", ""))).cluster
    except (KeyError, KubeconfigError):
        return None


def _takes_the_same_name(news: Object, live: Object) -> bool:
    metadata, old = news.get("metadata"), live["metadata"]
    if not isinstance(metadata, dict) or annotation.is_true(news, annotation.AUTONAMED):
        return False
    return all(metadata.get(key, "") == old.get(key, "") for key in ("name", "namespace"))


def _field_manager(inputs: Object, state: Object) -> str:
    given = annotation.get(inputs, annotation.FIELD_MANAGER)
    return given or state.get(_FIELD_MANAGER) or f"pulumi-kubernetes-{secrets.token_hex(4)}"


def _merged(one: Object, other: Object) -> Object:
    """The fields of two field managers together."""
    return {key: _merged(one.get(key, {}), other.get(key, {})) for key in one | other}


def _id(live: Object) -> str:
    metadata = live["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def _label(it: Target, obj: Object) -> str:
    return f"{it.kind} {_id(obj)}"


def _state(inputs: State, live: Object, manager: str, api_version: str) -> State:
    """The state that the engine stores: the live object, and what a later diff needs."""
    own: State = {_INPUTS: inputs, _FIELD_MANAGER: manager, _API_VERSION: api_version}
    return conceal(live, inputs) | own


def conceal(value: State, like: Mapping[str, Value]) -> State:
    """The value with Secret wherever the inputs had one, and around the data of a Secret object."""
    if value.get("kind") == "Secret":
        return {key: Secret(item) if key in ("data", "stringData") else item for key, item in value.items()}
    concealed = dict(value)
    for key, theirs in like.items():
        ours = concealed.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            concealed[key] = conceal(ours, theirs)
        elif ours is not None and has_secret(theirs):
            concealed[key] = Secret(ours)
    return concealed
