"""The stand-in for pulumi-resource-kubernetes: what the engine asks, answered from a real API server."""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.cluster.api import APPLY, Api, ApiError, Kind, KubeconfigError, Object, UnreachableError, load_kubeconfig
from sandbox.plugins.kubernetes import annotation, awaits, diff, schema
from sandbox.plugins.kubernetes.values import (
    UNKNOWN,
    conceal,
    from_struct,
    has_unknown,
    reveal,
    to_struct,
)

VERSION = "4.34.2"  # of the SDK whose names are spoken
_SETTINGS = {
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
# The published plugin waits for these by rules that are not written here, so to accept them would be to lie.
_REFUSED_KINDS = {
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
_INPUTS, _FIELD_MANAGER, _API_VERSION = "__inputs", "__fieldManager", "__initialApiVersion"


class RefusalError(Exception):
    """What the program asks cannot or must not be done; the message is for its author."""


class PartialFailureError(Exception):
    """The object exists but is not as it should be: the engine keeps its state together with the reasons."""

    def __init__(self, message: str, failed: provider_pb2.ErrorResourceInitFailed) -> None:
        super().__init__(message)
        self.failed = failed


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _answering_errors(method: _Method) -> _Method:
    """Turn what goes wrong into the error the engine prints, or into a partial failure."""

    @functools.wraps(method)
    def answer(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except PartialFailureError as error:
            detail = any_pb2.Any()
            detail.Pack(error.failed)
            status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except (RefusalError, KubeconfigError, ApiError, UnreachableError, awaits.AnnotationError) as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return answer  # type: ignore[return-value]


@dataclass(frozen=True)
class Settings:
    """The provider's configuration."""

    api: Api
    namespace: str
    upsert: bool = False
    patch_force: bool = False
    configmap_mutable: bool = False
    delete_unreachable: bool = False


@dataclass(frozen=True)
class Target:
    """The object that a request is about."""

    urn: str
    api_version: str
    kind: str

    @property
    def name(self) -> str:
        return self.urn.rsplit("::", 1)[-1]


def target(urn: str) -> Target:
    """Read kubernetes:GROUP/VERSION:KIND out of a URN; core/v1 is the API's v1."""
    token = urn.split("::")[2].rsplit("$", 1)[-1]
    package, module, kind = token.split(":")
    group, _, version = module.partition("/")
    foreign = package != "kubernetes" or not version or group in ("helm.sh", "kustomize", "yaml")
    if foreign or kind.endswith(("Patch", "List")) or kind in _REFUSED_KINDS:
        raise RefusalError(f"the Kubernetes stand-in has no {token}; see docs/stand-ins.md for what it supports")
    return Target(urn, version if group == "core" else module, kind)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine; one instance a configured provider."""

    def __init__(self, engine: str) -> None:
        self.engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None
        self.settings: Settings | None = None
        self.cancelled = threading.Event()

    # What the engine asks of the provider itself.

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=VERSION)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    @_answering_errors
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise RefusalError(f"the Kubernetes stand-in has no function {request.tok}; see docs/stand-ins.md")

    @_answering_errors
    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        given = reveal(from_struct(request.news))
        failures = [
            provider_pb2.CheckFailure(property=name, reason="the Kubernetes stand-in has no such setting")
            for name in sorted(given.keys() - _SETTINGS)
        ]
        if given.get("enableServerSideApply") == "false":
            reason = "the Kubernetes stand-in has server-side apply only; leave the setting out"
            failures.append(provider_pb2.CheckFailure(property="enableServerSideApply", reason=reason))
        if not given.get("kubeconfig"):
            reason = "the Kubernetes stand-in reads no kubeconfig of yours by itself; give one (path or contents)"
            failures.append(provider_pb2.CheckFailure(property="kubeconfig", reason=reason))
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    @_answering_errors
    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        olds, news = reveal(from_struct(request.olds)), reveal(from_struct(request.news))
        changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key))
        identifiers = olds.get("clusterIdentifier"), news.get("clusterIdentifier")
        replaces = []
        if all(identifiers):
            # The user's word on whether it is another cluster counts more than any guess from the kubeconfig.
            replaces = ["clusterIdentifier"] if "clusterIdentifier" in changed else []
        elif any(news.get(key) is UNKNOWN for key in ("kubeconfig", "context")):
            replaces = [key for key in ("kubeconfig", "context") if news.get(key) is UNKNOWN]
        elif _cluster(olds) != _cluster(news):
            replaces = [key for key in ("kubeconfig", "context") if key in changed]
        return provider_pb2.DiffResponse(changes=_some(changed), diffs=changed, replaces=replaces)

    @_answering_errors
    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        given = {key.rsplit(":", 1)[-1]: value for key, value in request.variables.items()}
        config = load_kubeconfig(given["kubeconfig"], given.get("context", ""))
        self.settings = Settings(
            api=Api(config),
            namespace=given.get("namespace") or config.namespace or "default",
            upsert=given.get("upsertExistingObjects") == "true",
            patch_force=given.get("enablePatchForce") == "true",
            configmap_mutable=given.get("enableConfigMapMutable") == "true",
            delete_unreachable=given.get("deleteUnreachable") == "true",
        )
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    # What it asks about a resource.

    @_answering_errors
    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, olds, news = target(request.urn), reveal(from_struct(request.olds)), from_struct(request.news)
        try:
            kind: Kind | None = self._kind(it)
        except UnreachableError:
            # A preview of what a cluster to come will hold must not fail for want of the cluster.
            kind = None
        inputs = diff.without_nulls(news)
        bad: list[tuple[diff.Path, str]] = []
        for key, value in (("apiVersion", it.api_version), ("kind", it.kind)):
            if inputs.setdefault(key, value) != value:
                bad.append(((key,), f"must be {value!r} for this resource, is {inputs[key]!r}"))
        if isinstance(inputs.setdefault("metadata", {}), dict):
            old_metadata = olds.get("metadata", {})
            namespaced = kind.namespaced if kind else not olds or "namespace" in old_metadata
            inputs["metadata"] = self._named(it, inputs["metadata"], olds, request.randomSeed, namespaced)
            if "generateName" in inputs["metadata"]:
                bad.append((("metadata", "generateName"), "is not supported with server-side apply; give a name"))
        plain = reveal(inputs)
        if given := annotation.get(plain, annotation.WAIT_FOR):
            try:
                awaits.parse_wait_for(given)
            except awaits.AnnotationError as error:
                bad.append((("metadata", "annotations"), str(error)))
        if kind:
            bad += schema.misfits(self._known.api.schemas(it.api_version), kind, plain)
        failures = [provider_pb2.CheckFailure(property=diff.format_path(path), reason=why) for path, why in bad]
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=failures)

    @_answering_errors
    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, state = target(request.urn), reveal(from_struct(request.olds))
        news = diff.without_servers_own(reveal(from_struct(request.news)))
        old_inputs, live = state.pop(_INPUTS, {}), state
        pruned = diff.prune(live, diff.without_servers_own(old_inputs))
        if isinstance(news.get("metadata"), dict) and news["metadata"].get("name"):
            pruned.setdefault("metadata", {})["name"] = live["metadata"]["name"]
        changes = [
            change
            for change in diff.changes(pruned, news, live)
            if not any(_within(str(change), ignored) for ignored in request.ignoreChanges)
        ]
        detailed, replaces = {}, []
        for change in changes:
            replaced = diff.replaces(change, it.api_version, it.kind, self._known.configmap_mutable)
            kind = provider_pb2.PropertyDiff.Kind.Value(change.kind + ("_REPLACE" if replaced else ""))
            detailed[str(change)] = provider_pb2.PropertyDiff(kind=kind, inputDiff=change.kind == "DELETE")
            if replaced or (change.kind == "DELETE" and change.path == ("metadata",)):
                replaces.append(str(change))
        if it.kind == "Job" and annotation.is_true(news, annotation.REPLACE_UNREADY) and self._is_unready(it, live):
            replaces.append(f'.metadata.annotations["{annotation.REPLACE_UNREADY}"]')
        return provider_pb2.DiffResponse(
            changes=_some(changes or replaces),
            replaces=replaces,
            detailedDiff=detailed,
            hasDetailedDiff=True,
            deleteBeforeReplace=bool(replaces) and _takes_the_same_name(news, live),
        )

    @_answering_errors
    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, raw = target(request.urn), from_struct(request.properties)
        inputs = reveal(raw)
        as_given = provider_pb2.CreateResponse(properties=request.properties)
        if request.preview and has_unknown(inputs):
            return as_given
        manager = _field_manager(inputs, {})
        try:
            live = self._make(it, inputs, manager, request.preview)
        except (ApiError, UnreachableError) as error:
            # A preview does without what is not there yet (namespace, cluster) or still there (what this replaces).
            if request.preview and (isinstance(error, UnreachableError) or error.code in (403, 404, 409)):
                return as_given
            raise RefusalError(f"{_label(it, inputs)} could not be created: {error}") from error
        if request.preview:
            live.pop("status", None)
            return provider_pb2.CreateResponse(properties=to_struct(_state(raw, live, manager, it.api_version)))
        properties = self._await(it, raw, live, manager, request.timeout, update=False)
        return provider_pb2.CreateResponse(id=_id(live), properties=properties)

    @_answering_errors
    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, raw, old = target(request.urn), from_struct(request.news), reveal(from_struct(request.olds))
        inputs = reveal(raw)
        if request.preview and has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=request.news)
        manager = _field_manager(inputs, old)
        try:
            live = self._apply(self._kind(it), inputs, manager, request.preview)
        except ApiError as error:
            hint = (
                f'; to take those fields, annotate with {annotation.PATCH_FORCE}: "true"' if error.code == 409 else ""
            )
            raise RefusalError(f"{_label(it, inputs)} could not be updated: {error}{hint}") from error
        if request.preview:
            return provider_pb2.UpdateResponse(properties=to_struct(_state(raw, live, manager, it.api_version)))
        properties = self._await(it, raw, live, manager, request.timeout, update=True)
        return provider_pb2.UpdateResponse(properties=properties)

    @_answering_errors
    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, raw = target(request.urn), from_struct(request.inputs)
        state, old_inputs = reveal(from_struct(request.properties)), reveal(raw)
        namespace, _, name = request.id.rpartition("/")
        try:
            live = self._known.api.find(self._kind(it), namespace or self._known.namespace, name)
        except UnreachableError:
            if not self._known.delete_unreachable:
                raise
            live = None
        if live is None:
            return provider_pb2.ReadResponse()
        imported = not old_inputs.get("kind") and not state.get("kind")
        inputs = diff.without_servers_own(live if imported else diff.prune(live, old_inputs))
        inputs.pop("status", None)
        manager = _field_manager(old_inputs, state)
        inputs = conceal(inputs, raw)
        properties = to_struct(_state(inputs, live, manager, it.api_version))
        answer = {"id": request.id, "properties": properties, "inputs": to_struct(inputs)}
        reasons = None if imported else awaits.readiness(self._known.api, old_inputs, live)
        if reasons is not None:
            message = f"{_label(it, live)} is not ready"
            failed = provider_pb2.ErrorResourceInitFailed(reasons=[message, *reasons], **answer)
            raise PartialFailureError(message, failed)
        return provider_pb2.ReadResponse(**answer)

    @_answering_errors
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        it, live = target(request.urn), reveal(from_struct(request.properties))
        inputs = live.get(_INPUTS, {})
        policy = (annotation.get(inputs, annotation.DELETION_PROPAGATION) or "foreground").capitalize()
        namespace, _, name = request.id.rpartition("/")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        try:
            kind = self._kind(it)
            self._known.api.request("DELETE", kind.path(namespace, name), options)
        except ApiError as error:
            if error.code == 404:
                return empty_pb2.Empty()
            raise
        except UnreachableError:
            if self._known.delete_unreachable:
                return empty_pb2.Empty()
            raise
        seconds = awaits.timeout(inputs, request.timeout)
        try:
            awaits.until_gone(self._wait(it), kind, inputs, live, seconds)
        except awaits.NotReadyError as error:
            raise RefusalError(str(error)) from error
        return empty_pb2.Empty()

    # What these have in common.

    @property
    def _known(self) -> Settings:
        if self.settings is None:
            raise RefusalError("the Kubernetes stand-in was asked about a resource before it was configured")
        return self.settings

    def _kind(self, it: Target) -> Kind:
        kind = self._known.api.kind(it.api_version, it.kind)
        if kind is None:
            raise RefusalError(f"the cluster at {self._known.api.config.server} has no {it.api_version} {it.kind}")
        return kind

    def _named(self, it: Target, metadata: Object, olds: Object, seed: bytes, namespaced: bool) -> Object:
        """The metadata with a name of the plugin's making and the default namespace, where none is given."""
        named = dict(metadata)
        if not named.get("name"):
            kept = annotation.is_true(olds, annotation.AUTONAMED) and olds["metadata"]["name"]
            named["name"] = kept or f"{it.name}-{random.Random(seed).getrandbits(32):08x}"
            given = named.get("annotations") or {}
            if isinstance(given, dict):
                named["annotations"] = given | {annotation.AUTONAMED: "true"}
        if namespaced and not named.get("namespace"):
            named["namespace"] = self._known.namespace
        return named

    def _is_unready(self, it: Target, live: Object) -> bool:
        try:
            now = self._known.api.find(self._kind(it), live["metadata"].get("namespace", ""), live["metadata"]["name"])
        except UnreachableError:
            return False
        return now is not None and not awaits.job_ready(now)

    def _make(self, it: Target, inputs: Object, manager: str, preview: bool) -> Object:
        """Create the object; what it needs (its namespace, the end of one that has its name) may come in a moment."""
        kind, metadata = self._kind(it), inputs["metadata"]
        for attempt in range(_CREATE_TRIES):
            last = preview or attempt == _CREATE_TRIES - 1
            there = self._known.api.find(kind, metadata.get("namespace", ""), metadata["name"])
            going = there is not None and "deletionTimestamp" in there["metadata"]
            if there and (preview or not self._known.upsert or going) and (last or not going):
                hint = "it is being deleted" if going else "import it, or set upsertExistingObjects on the provider"
                raise ApiError(409, {"message": f"it already exists in the cluster; {hint}"})
            try:
                if not going:
                    return self._apply(kind, inputs, manager, preview)
            except ApiError as error:
                if error.code != 404 or last:
                    raise
            self.cancelled.wait(2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _apply(self, kind: Kind, inputs: Object, manager: str, preview: bool) -> Object:
        force = preview or self._known.patch_force or annotation.is_true(inputs, annotation.PATCH_FORCE)
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if preview:
            query["dryRun"] = "All"
        metadata = inputs["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        return self._known.api.request("PATCH", path, inputs, query, APPLY)

    def _await(self, it: Target, raw: Object, live: Object, manager: str, seconds: float, update: bool) -> Any:
        """Wait until the object is ready; its state, or a partial failure that carries it."""
        inputs = reveal(raw)
        wait_seconds = awaits.timeout(inputs, seconds)
        problem: Exception
        try:
            ready = awaits.until_ready(self._wait(it), self._kind(it), inputs, live, wait_seconds, update)
            return to_struct(_state(raw, ready, manager, it.api_version))
        except awaits.NotReadyError as error:
            problem, live, reasons = error, error.live, error.reasons
        except (ApiError, UnreachableError, awaits.AnnotationError) as error:
            # The object exists: whatever goes wrong now, the engine must hear of it.
            problem, reasons = error, []
        properties = to_struct(_state(raw, live, manager, it.api_version))
        failed = provider_pb2.ErrorResourceInitFailed(
            id=_id(live), properties=properties, reasons=[str(problem), *reasons]
        )
        raise PartialFailureError(str(problem), failed)

    def _wait(self, it: Target) -> awaits.Wait:
        told = ""

        def tell(message: str) -> None:
            nonlocal told
            if self.engine and message != told:
                told = message
                request = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=message, urn=it.urn, ephemeral=True)
                with contextlib.suppress(grpc.RpcError):
                    self.engine.Log(request)

        return awaits.Wait(self._known.api, tell, self.cancelled)


def _some(changes: Any) -> Any:
    return provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE


def _cluster(settings: Object) -> Object | None:
    """The cluster that the settings point to, by which the published plugin tells one from another."""
    try:
        return load_kubeconfig(settings["kubeconfig"], settings.get("context", "")).cluster
    except (KeyError, KubeconfigError):
        return None


def _within(path: str, ignored: str) -> bool:
    return path == ignored or path.startswith((f"{ignored}.", f"{ignored}["))


def _takes_the_same_name(news: Object, live: Object) -> bool:
    metadata, old = news.get("metadata"), live["metadata"]
    if not isinstance(metadata, dict) or annotation.is_true(news, annotation.AUTONAMED):
        return False
    return all(metadata.get(key, "") == old.get(key, "") for key in ("name", "namespace"))


def _field_manager(inputs: Object, state: Object) -> str:
    given = annotation.get(inputs, annotation.FIELD_MANAGER)
    return given or state.get(_FIELD_MANAGER) or f"pulumi-kubernetes-{secrets.token_hex(4)}"


def _id(live: Object) -> str:
    metadata = live["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def _label(it: Target, obj: Object) -> str:
    return f"{it.kind} {_id(obj)}"


def _state(inputs: Object, live: Object, manager: str, api_version: str) -> Object:
    """What the engine keeps: the live object under the SDK's output names, and what it takes to diff it."""
    own = {_INPUTS: inputs, _FIELD_MANAGER: manager, _API_VERSION: api_version}
    return conceal(live, inputs) | own
