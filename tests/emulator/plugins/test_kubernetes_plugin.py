"""The emulated Kubernetes provider answers the engine's requests, on a real API server."""

from __future__ import annotations

import copy
import importlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import abc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi import _types as pulumi_types
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc, status_pb2

from sandbox.cluster.control_plane import ControlPlane
from sandbox.plugins.wire import UNKNOWN, Secret, read, write
from tests.emulator.cluster_helpers import JOB, NodeProcess, eventually, job
from tools.kubernetes_client import (
    CONFIG_MAP,
    PERSISTENT_VOLUME,
    POD,
    STRATEGIC,
    Api,
    Object,
)

MODULES = {"v1": "core/v1"}


class FailedError(Exception):
    """The provider's error; `failure` contains what the engine stores."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details())
        self.failure = pb.ErrorResourceInitFailed()
        details: dict[str, bytes] = dict(error.trailing_metadata() or ())
        if packed := details.get("grpc-status-details-bin"):
            status_pb2.Status.FromString(packed).details[0].Unpack(self.failure)

    @property
    def reasons(self) -> str:
        return "\n".join(self.failure.reasons)


class Plugin:
    """A running emulated Kubernetes provider."""

    def __init__(self, **settings: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "sandbox.plugins.kubernetes"], stdout=subprocess.PIPE)
        assert self.process.stdout
        port = int(self.process.stdout.readline())
        self.stub = provider_pb2_grpc.ResourceProviderStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        if settings:
            variables = {f"kubernetes:config:{key}": value for key, value in settings.items()}
            self.ask("Configure", pb.ConfigureRequest(variables=variables, acceptSecrets=True))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    def ask(self, method: str, request: Any) -> Any:
        try:
            return getattr(self.stub, method)(request, timeout=120)
        except grpc.RpcError as error:
            raise FailedError(error) from None

    def check(self, inputs: Object, olds: Object | None = None, token: str = "") -> tuple[Object, dict[str, str]]:
        request = pb.CheckRequest(urn=urn(inputs, token), news=write(inputs), olds=write(olds or {}))
        request.randomSeed = b"seed"
        answer = self.ask("Check", request)
        return read(answer.inputs), {failure.property: failure.reason for failure in answer.failures}

    def diff(self, state: Object, inputs: Object) -> Any:
        name = str(state["metadata"]["name"])
        return self.ask("Diff", pb.DiffRequest(id=name, urn=urn(state), olds=write(state), news=write(inputs)))

    def create(self, inputs: Object, preview: bool = False, timeout: float = 0) -> tuple[str, Object]:
        properties = write(self.check(inputs)[0])
        request = pb.CreateRequest(urn=urn(inputs), properties=properties, preview=preview, timeout=timeout)
        answer = self.ask("Create", request)
        return answer.id, read(answer.properties)

    def update(self, state: Object, inputs: Object, preview: bool = False) -> Object:
        news = write(self.check(inputs, state["__inputs"])[0])
        request = pb.UpdateRequest(id=ident(state), urn=urn(state), olds=write(state), news=news, preview=preview)
        return read(self.ask("Update", request).properties)

    def read(self, resource_id: str, state: Object, inputs: Object | None = None) -> tuple[str, Object, Object]:
        request = pb.ReadRequest(id=resource_id, urn=urn(state), properties=write(state if inputs else {}))
        request.inputs.CopyFrom(write(inputs or {}))
        answer = self.ask("Read", request)
        return answer.id, read(answer.properties), read(answer.inputs)

    def delete(self, state: Object) -> None:
        self.ask("Delete", pb.DeleteRequest(id=ident(state), urn=urn(state), properties=write(state)))


def urn(obj: Object, token: str = "") -> str:
    module = MODULES.get(obj["apiVersion"], obj["apiVersion"])
    return f"urn:pulumi:test::test::{token or f'kubernetes:{module}:' + obj['kind']}::thing"


def ident(state: Object) -> str:
    namespace = state["metadata"].get("namespace")
    return f"{namespace}/{state['metadata']['name']}" if namespace else str(state["metadata"]["name"])


@pytest.fixture(scope="module")
def plugin(cluster: ControlPlane) -> Iterator[Plugin]:
    started = Plugin(kubeconfig=cluster.kubeconfig.read_text())
    yield started
    started.close()


def config_map(namespace: str, **data: object) -> Object:
    metadata = {"name": "settings", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def volume(name: str, server: str) -> Object:
    spec = {"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec |= {"nfs": {"server": server, "path": "/"}, "persistentVolumeReclaimPolicy": "Retain"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str, namespace: str) -> Object:
    spec: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": name}
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("api_version", "module", "kind"),
    [
        ("apps/v1", "apps.v1", "DaemonSet"),
        ("batch/v1", "batch.v1", "Job"),
        ("rbac.authorization.k8s.io/v1", "rbac.v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "rbac.v1", "RoleBinding"),
        ("v1", "core.v1", "ConfigMap"),
        ("v1", "core.v1", "Namespace"),
        ("v1", "core.v1", "PersistentVolume"),
        ("v1", "core.v1", "PersistentVolumeClaim"),
        ("v1", "core.v1", "ServiceAccount"),
    ],
)
def test_accepts_every_property_of_the_sdk_and_no_other(
    plugin: Plugin, api_version: str, module: str, kind: str
) -> None:
    arguments = getattr(importlib.import_module(f"pulumi_kubernetes.{module}"), f"{kind}InitArgs")
    whole = filled(arguments) | {"apiVersion": api_version, "kind": kind}
    refused = set(plugin.check(whole)[1])
    assert {path for path in refused if not NEWER.search(path)} == set()
    changed_inputs = copy.deepcopy(whole)
    wanted = add_unknown(changed_inputs, "")
    assert len(wanted) > 2
    # If an object is rejected as a whole, its properties are not checked.
    beyond = {path for path in wanted for branch in refused if path.startswith((f"{branch}.", f"{branch}["))}
    assert set(plugin.check(changed_inputs)[1]) == (wanted - beyond) | refused


# Set by the server, not for server-side apply, or removed in Kubernetes 1.24.
NOT_INPUTS = ("managedFields", "generateName", "clusterName")

# Properties of Kubernetes 1.37: the SDK has them, the API server of the sandbox does not.
NEWER = re.compile(
    r"(httpGet\.protocol|grpc\.mode|emptyDir\.mode|\.user|\.defaultUser|\.bindMountOptions|resourceClaims\[0\]\.source"
    r"|\.evictionResponders|\.workloadRef|ephemeral\.readOnly|spec\.scheduling)$"
)


def filled(annotation: Any) -> Any:
    """A value of an SDK argument's type with all its properties."""
    if isinstance(annotation, type) and pulumi_types.is_input_type(annotation):
        types = pulumi_types.input_type_types(annotation)
        return {name: filled(types[name]) for name in types if name not in NOT_INPUTS}
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (list, abc.Sequence):
        return [filled(parts[0])]
    if origin in (dict, abc.Mapping):
        return {"key": filled(parts[1])}
    simple: dict[Any, Any] = {str: "text", int: 1, bool: True, float: 1.0, Any: "text"}
    if annotation in simple or origin is Literal:
        return simple.get(annotation) or parts[0]
    for part in parts:
        if get_origin(part) is not abc.Awaitable and part is not type(None):
            return filled(part)
    raise AssertionError(f"what is {annotation}?")


def add_unknown(value: Any, path: str) -> set[str]:
    """Add an unknown property to every object, and return their paths."""
    if isinstance(value, list):
        return {place for at, item in enumerate(value) for place in add_unknown(item, f"{path}[{at}]")}
    if not isinstance(value, dict):
        return set()
    places = {place for key, item in value.items() for place in add_unknown(item, f"{path}.{key}" if path else key)}
    value["surprise"] = {}
    return places | {f"{path}.surprise" if path else "surprise"}


REFUSED = {
    "kubernetes:apps/v1:Deployment": {"apiVersion": "apps/v1", "kind": "Deployment"},
    "kubernetes:core/v1:ConfigMapPatch": {"apiVersion": "v1", "kind": "ConfigMap"},
    "kubernetes:core/v1:ConfigMapList": {"apiVersion": "v1", "kind": "ConfigMapList"},
    "kubernetes:helm.sh/v3:Release": {"chart": "nginx"},
    "kubernetes:example.com/v1:Thing": {"apiVersion": "example.com/v1", "kind": "Thing"},
}


@pytest.mark.parametrize("token", REFUSED)
def test_unsupported_resources_are_rejected(plugin: Plugin, token: str) -> None:
    with pytest.raises(FailedError, match="has no"):
        plugin.check({"apiVersion": "", "kind": ""} | REFUSED[token], token=token)


@pytest.mark.parametrize(
    ("change", "path", "why"),
    [
        ({"kind": "Secret"}, "kind", "must be 'ConfigMap'"),
        ({"data": {"a": 1}}, "data.a", "must be string"),
        ({"metadata": {"generateName": "a"}}, "metadata.generateName", "not supported"),
        ({"metadata": {"annotations": {"pulumi.com/waitFor": "ready"}}}, "metadata.annotations", "expected jsonpath="),
        (
            {"metadata": {"annotations": {"pulumi.com/waitFor": "jsonpath={.a[*]}"}}},
            "metadata.annotations",
            "supports",
        ),
    ],
)
def test_check_reports_invalid_inputs(plugin: Plugin, change: Object, path: str, why: str) -> None:
    failures = plugin.check(config_map("default") | change, token="kubernetes:core/v1:ConfigMap")[1]
    assert why in failures[path]


def test_unsupported_settings_and_functions_are_rejected(plugin: Plugin) -> None:
    settings = {"kubeconfig": "x", "renderYamlToDirectory": "/x", "enableServerSideApply": "false"}
    answer = plugin.ask("CheckConfig", pb.CheckRequest(news=write(settings)))
    assert {failure.property for failure in answer.failures} == {"renderYamlToDirectory", "enableServerSideApply"}
    assert plugin.ask("CheckConfig", pb.CheckRequest(news=write({}))).failures[0].property == "kubeconfig"
    with pytest.raises(FailedError, match="has no function kubernetes:yaml:decode"):
        plugin.ask("Invoke", pb.InvokeRequest(tok="kubernetes:yaml:decode"))


def test_generated_names_are_kept(plugin: Plugin) -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap"}
    first, _ = plugin.check(nameless)
    assert first["metadata"]["name"].startswith("thing-")
    assert first["metadata"]["namespace"] == "default"
    assert plugin.check(nameless, first)[0] == first


def test_preview_asks_the_cluster_and_changes_nothing(plugin: Plugin, api: Api, namespace: str) -> None:
    resource_id, outputs = plugin.create(job("previewed", namespace, "true"), preview=True)
    assert resource_id == ""
    assert outputs["spec"]["completionMode"] == "NonIndexed"
    assert "status" not in outputs
    assert api.list(JOB, namespace) == []
    wrong = job("previewed", namespace, "true")
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    with pytest.raises(FailedError, match="restartPolicy"):
        plugin.create(wrong, preview=True)


def test_preview_works_with_unknown_values_and_missing_namespaces(plugin: Plugin) -> None:
    nowhere = config_map("missing", a="b")
    assert plugin.create(nowhere, preview=True)[1]["data"] == {"a": "b"}
    assert plugin.create(config_map("default", a=UNKNOWN), preview=True)[1]["data"] == {"a": UNKNOWN}


def test_state_has_the_outputs_of_the_sdk(plugin: Plugin, api: Api, namespace: str) -> None:
    resource_id, state = plugin.create(config_map(namespace, a="b"))
    live = api.get(CONFIG_MAP, namespace, "settings")
    assert resource_id == f"{namespace}/settings"
    assert state["metadata"]["uid"] == live["metadata"]["uid"]
    assert (state["apiVersion"], state["kind"], state["data"]) == ("v1", "ConfigMap", {"a": "b"})
    assert managers(live) == [("pulumi-kubernetes", "Update")]
    plugin.update(state, config_map(namespace, a="c"))
    assert managers(api.get(CONFIG_MAP, namespace, "settings")) == [(state["__fieldManager"], "Apply")]


def managers(live: Object) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["operation"]) for entry in live["metadata"]["managedFields"]]


def test_existing_object_is_taken_over_with_upsert(plugin: Plugin, cluster: ControlPlane, namespace: str) -> None:
    plugin.create(config_map(namespace, a="old"))
    with pytest.raises(FailedError, match="already exists"):
        plugin.create(config_map(namespace, a="new"))
    upserting = Plugin(kubeconfig=str(cluster.kubeconfig), upsertExistingObjects="true", enablePatchForce="true")
    try:
        assert upserting.create(config_map(namespace, a="new"))[1]["data"] == {"a": "new"}
    finally:
        upserting.close()


def test_secrets_stay_secret(plugin: Plugin, namespace: str) -> None:
    metadata = {"name": "key", "namespace": namespace}
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": Secret("b")}}
    state = plugin.create(inputs)[1]
    assert state["data"] == Secret({"a": "Yg=="})
    assert state["__inputs"]["stringData"] == {"a": Secret("b")}


def test_create_waits_for_a_job(plugin: Plugin, node: NodeProcess, namespace: str) -> None:
    state = plugin.create(job("short", namespace, "sleep 1"))[1]
    assert state["status"]["succeeded"] == 1


def test_failed_job_is_stored_and_shows_its_last_log_lines(plugin: Plugin, node: NodeProcess, namespace: str) -> None:
    with pytest.raises(FailedError) as caught:
        plugin.create(job("broken", namespace, "echo no such record: 17; exit 3"))
    assert "no such record: 17" in caught.value.reasons
    assert "BackoffLimitExceeded" in caught.value.reasons
    state: Object = read(caught.value.failure.properties)
    assert caught.value.failure.id == f"{namespace}/broken"
    assert state["status"]["failed"] == 1
    with pytest.raises(FailedError) as again:
        plugin.read(f"{namespace}/broken", state, state["__inputs"])
    assert "no such record: 17" in again.value.reasons
    unready = copy.deepcopy(state["__inputs"])
    assert plugin.diff(state, unready).changes == pb.DiffResponse.DIFF_NONE
    unready["metadata"]["annotations"] = {"pulumi.com/replaceUnready": "true"}
    answer = plugin.diff(state, unready)
    assert list(answer.replaces) == ['.metadata.annotations["pulumi.com/replaceUnready"]']
    assert answer.deleteBeforeReplace


def test_replace_unready_replaces_every_job_that_is_not_complete(
    plugin: Plugin, api: Api, node: NodeProcess, namespace: str
) -> None:
    """As in the official provider: even a running Job is replaced."""
    inputs = job("long", namespace, "sleep 2")
    inputs["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true", "pulumi.com/replaceUnready": "true"}
    state = plugin.create(inputs)[1]
    answer = plugin.diff(state, state["__inputs"])
    assert list(answer.replaces) == ['.metadata.annotations["pulumi.com/replaceUnready"]']
    assert answer.deleteBeforeReplace
    eventually(lambda: api.get(JOB, namespace, "long")["status"].get("succeeded"))
    eventually(lambda: plugin.diff(state, state["__inputs"]).changes == pb.DiffResponse.DIFF_NONE)
    plugin.delete(state)
    assert plugin.diff(state, state["__inputs"]).changes == pb.DiffResponse.DIFF_NONE


def test_replace_unready_is_ignored_for_other_kinds(plugin: Plugin) -> None:
    inputs = config_map("default", a="b")
    inputs["metadata"]["annotations"] = {"pulumi.com/replaceUnready": "true"}
    previewed(plugin, inputs)


def test_only_a_final_failure_ends_a_job_with_a_failure_policy(
    plugin: Plugin, api: Api, node: NodeProcess, namespace: str
) -> None:
    """The policy of the training Job: other failures are retried, and `up` learns of the final one at once."""
    script = "test $JOB_COMPLETION_INDEX = 0 && exit 1; sleep 5; exit 100"
    not_final = {"containerName": "main", "operator": "NotIn", "values": [100]}
    policy = {"rules": [{"action": "Ignore", "onExitCodes": not_final}]}
    inputs = job("final", namespace, script, podFailurePolicy=policy, **JOB_SPEC)
    with pytest.raises(FailedError, match="failed") as caught:
        plugin.create(inputs, timeout=60)
    assert "BackoffLimitExceeded" in caught.value.reasons
    codes = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        for pod in api.list(POD, namespace)
        if pod["status"].get("phase") == "Failed"
    ]
    assert set(codes) == {1, 100}


@pytest.mark.parametrize("custom", [0, 1])
def test_wait_ends_at_the_timeout(plugin: Plugin, node: NodeProcess, namespace: str, custom: float) -> None:
    inputs = job("long", namespace, "sleep 60")
    inputs["metadata"]["annotations"] = {} if custom else {"pulumi.com/timeoutSeconds": "1"}
    with pytest.raises(FailedError, match="not ready after 1 s") as caught:
        plugin.create(inputs, timeout=custom)
    state: Object = read(caught.value.failure.properties)
    assert state["metadata"]["name"] == "long"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("pulumi.com/waitFor", "jsonpath={.status.startTime}"),
        ("pulumi.com/waitFor", '["jsonpath={.status.active}=1", "jsonpath={.status.startTime}"]'),
        ("pulumi.com/skipAwait", "true"),
    ],
)
def test_a_job_need_not_be_waited_for(
    plugin: Plugin, node: NodeProcess, namespace: str, annotation: str, value: str
) -> None:
    inputs = job("long", namespace, "sleep 60")
    inputs["metadata"]["annotations"] = {annotation: value}
    state = plugin.create(inputs)[1]
    assert ("startTime" in state["status"]) == (annotation == "pulumi.com/waitFor")
    inputs["metadata"]["labels"] = {"new": "label"}
    state = plugin.update(state, inputs)
    if annotation == "pulumi.com/skipAwait":
        assert plugin.read(f"{namespace}/long", state, state["__inputs"])[0] == f"{namespace}/long"
    else:
        with pytest.raises(FailedError, match="is not ready"):
            plugin.read(f"{namespace}/long", state, state["__inputs"])


def test_wait_for_a_condition(plugin: Plugin, node: NodeProcess, namespace: str) -> None:
    inputs = job("short", namespace, "true")
    inputs["metadata"]["annotations"] = {"pulumi.com/waitFor": "condition=complete"}
    conditions = plugin.create(inputs)[1]["status"]["conditions"]
    assert "Complete" in [condition["type"] for condition in conditions]


def test_volume_and_claim_are_awaited_and_deleted(plugin: Plugin, api: Api, namespace: str) -> None:
    pv = plugin.create(volume(namespace, "fs-0123"))[1]
    assert pv["status"]["phase"] in ("Available", "Bound")
    pvc = plugin.create(claim(namespace, namespace))[1]
    assert pvc["status"]["phase"] == "Bound"
    assert plugin.diff(pv, pv["__inputs"]).changes == pb.DiffResponse.DIFF_NONE
    plugin.delete(pvc)
    plugin.delete(pv)
    assert api.find(PERSISTENT_VOLUME, "", namespace) is None
    plugin.delete(pv)


def test_cancel_ends_the_wait(cluster: ControlPlane, node: NodeProcess, namespace: str) -> None:
    own = Plugin(kubeconfig=str(cluster.kubeconfig))
    threading.Timer(1, lambda: own.ask("Cancel", empty_pb2.Empty())).start()
    try:
        with pytest.raises(FailedError, match="was cancelled"):
            own.create(job("long", namespace, "sleep 60"))
    finally:
        own.close()


JOB_SPEC = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "completionMode": "Indexed"}


@pytest.mark.parametrize(
    ("path", "value", "replaced"),
    [
        ("spec.parallelism", 3, True),
        ("spec.completions", 3, True),
        ("spec.template.spec.containers.0.image", "other", True),
        ("spec.template.spec.containers.0.env", [{"name": "A", "value": "b"}], True),
        ("spec.template.metadata", {"labels": {"a": "b"}}, True),
        ("spec.backoffLimit", 4, False),
        ("spec.activeDeadlineSeconds", 60, False),
        ("metadata.annotations", {"pulumi.com/timeoutSeconds": "9"}, False),
        ("metadata.labels", {"a": UNKNOWN}, False),
        ("metadata.name", "other", True),
        ("metadata.namespace", "other", True),
        ("spec", UNKNOWN, True),
        ("spec.template.spec.containers.0.image", UNKNOWN, True),
        ("metadata", UNKNOWN, True),
    ],
)
def test_changes_that_replace_a_job(plugin: Plugin, path: str, value: object, replaced: bool) -> None:
    state = previewed(plugin, job("thing", "default", "true", **JOB_SPEC))
    answer = plugin.diff(state, changed(state["__inputs"], path, value))
    assert answer.changes == pb.DiffResponse.DIFF_SOME
    assert bool(answer.replaces) == replaced
    kinds = {pb.PropertyDiff.Kind.Name(entry.kind).endswith("_REPLACE") for entry in answer.detailedDiff.values()}
    assert kinds >= {replaced}
    assert answer.deleteBeforeReplace == (replaced and path.startswith("spec"))


@pytest.mark.parametrize(
    ("inputs", "path", "value", "replaced"),
    [
        (config_map("default", a="b"), "data", {"a": "c"}, True),
        (config_map("default", a="b"), "data", UNKNOWN, True),
        (config_map("default", a="b"), "metadata.labels", {"a": "c"}, False),
        (volume("thing", "fs-1"), "spec.nfs.server", "fs-2", True),
        (volume("thing", "fs-1"), "spec.nfs.server", UNKNOWN, True),
        (volume("thing", "fs-1"), "spec.capacity", {"storage": "2Gi"}, False),
        (volume("thing", "fs-1"), "spec", UNKNOWN, True),
        (claim("thing", "default"), "spec.volumeName", "other", True),
        (claim("thing", "default"), "spec.resources.requests", {"storage": "2Gi"}, False),
        (claim("thing", "default"), "spec", UNKNOWN, True),
    ],
)
def test_changes_that_replace_other_kinds(
    plugin: Plugin, inputs: Object, path: str, value: object, replaced: bool
) -> None:
    state = previewed(plugin, inputs)
    answer = plugin.diff(state, changed(state["__inputs"], path, value))
    assert answer.changes == pb.DiffResponse.DIFF_SOME
    assert bool(answer.replaces) == answer.deleteBeforeReplace == replaced


def previewed(plugin: Plugin, inputs: Object) -> Object:
    """The state as the API server would create it."""
    state = plugin.create(inputs, preview=True)[1]
    assert plugin.diff(state, state["__inputs"]).changes == pb.DiffResponse.DIFF_NONE
    return state


def changed(inputs: Object, path: str, value: object) -> Object:
    changing = copy.deepcopy(inputs)
    *above, last = path.split(".")
    at: Any = changing
    for part in above:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return changing


@pytest.mark.parametrize("empty", [{"args": []}, {"tty": False}, {"workingDir": ""}])
def test_values_that_the_api_server_omits_are_not_differences(plugin: Plugin, empty: Object) -> None:
    inputs = job("thing", "default", "true")
    before = previewed(plugin, inputs)
    inputs["spec"]["template"]["spec"]["containers"][0] |= empty
    previewed(plugin, inputs)
    assert plugin.diff(before, plugin.check(inputs)[0]).changes == pb.DiffResponse.DIFF_NONE


def test_refresh_keeps_values_that_the_api_server_omits(plugin: Plugin, node: NodeProcess, namespace: str) -> None:
    inputs = job("thing", namespace, "true")
    inputs["spec"]["template"]["spec"]["containers"][0] |= {"env": [{"name": "A", "value": ""}], "args": []}
    resource_id, state = plugin.create(inputs)
    _, after, seen = plugin.read(resource_id, state, state["__inputs"])
    assert seen == state["__inputs"]
    assert plugin.diff(after, seen).changes == pb.DiffResponse.DIFF_NONE
    del seen["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert plugin.diff(after, seen).changes == pb.DiffResponse.DIFF_NONE


def test_explicit_zero_is_a_difference_if_the_cluster_has_a_value(plugin: Plugin) -> None:
    state = previewed(plugin, job("thing", "default", "true"))
    answer = plugin.diff(state, changed(state["__inputs"], "spec.suspend", True))
    assert answer.changes == pb.DiffResponse.DIFF_SOME
    state["spec"]["suspend"] = True
    answer = plugin.diff(state, changed(state["__inputs"], "spec.suspend", False))
    assert answer.changes == pb.DiffResponse.DIFF_SOME


def test_update_in_place_and_its_preview(plugin: Plugin, api: Api, node: NodeProcess, namespace: str) -> None:
    inputs = job("thing", namespace, "true")
    state = plugin.create(inputs)[1]
    inputs["spec"] = inputs["spec"] | {"backoffLimit": 4, "activeDeadlineSeconds": 60, "podReplacementPolicy": "Failed"}
    assert plugin.update(state, inputs, preview=True)["spec"]["backoffLimit"] == 4
    assert api.get(JOB, namespace, "thing")["spec"]["backoffLimit"] == 0
    after = plugin.update(state, inputs)
    assert after["spec"]["backoffLimit"] == 4
    assert after["metadata"]["uid"] == state["metadata"]["uid"]
    with pytest.raises(FailedError, match="immutable"):
        plugin.update(after, changed(inputs, "spec.completionMode", "Indexed"), preview=True)


def test_drift_is_detected_and_repaired(plugin: Plugin, api: Api, namespace: str) -> None:
    inputs = config_map(namespace, a="b")
    inputs["metadata"]["annotations"] = {"pulumi.com/patchForce": "true", "owner": "us"}
    resource_id, state = plugin.create(inputs)
    path = CONFIG_MAP.path(namespace, "settings")
    theirs = {"metadata": {"annotations": {"owner": "them", "extra": "theirs"}}}
    api.request("PATCH", path, theirs, {"fieldManager": "kubectl-edit"}, STRATEGIC)
    resource_id, state, seen = plugin.read(resource_id, state, state["__inputs"])
    assert seen["metadata"]["annotations"] == {"pulumi.com/patchForce": "true", "owner": "them"}
    assert list(plugin.diff(state, plugin.check(inputs)[0]).detailedDiff) == ["metadata.annotations.owner"]
    state = plugin.update(state, inputs)
    annotations = api.get(CONFIG_MAP, namespace, "settings")["metadata"]["annotations"]
    assert annotations["owner"] == "us"
    assert annotations["extra"] == "theirs"
    assert plugin.diff(state, plugin.check(inputs)[0]).changes == pb.DiffResponse.DIFF_NONE


def test_fields_of_other_managers_are_not_overwritten_by_default(plugin: Plugin, api: Api, namespace: str) -> None:
    inputs = config_map(namespace, a="b")
    state = plugin.create(inputs)[1]
    path = CONFIG_MAP.path(namespace, "settings")
    api.request("PATCH", path, {"data": {"a": "theirs"}}, {"fieldManager": "kubectl-edit"}, STRATEGIC)
    with pytest.raises(FailedError, match="patchForce"):
        plugin.update(state, inputs)


def test_an_object_whose_create_was_interrupted_can_be_adopted(plugin: Plugin, api: Api, namespace: str) -> None:
    inputs = job("interrupted", namespace, "true") | {"metadata": {"name": "interrupted", "namespace": namespace}}
    inputs["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true", "owner": "us"}
    resource_id, _ = plugin.create(inputs)
    uid = api.get(JOB, namespace, "interrupted")["metadata"]["uid"]
    # The engine has lost what the create returned: it knows the inputs alone.
    _, state, _ = plugin.read(resource_id, inputs, inputs)
    assert plugin.diff(state, inputs).changes == pb.DiffResponse.DIFF_NONE
    inputs["metadata"]["annotations"]["owner"] = "them"
    plugin.update(state, inputs)
    live = api.get(JOB, namespace, "interrupted")["metadata"]
    assert (live["uid"], live["annotations"]["owner"]) == (uid, "them")


def test_an_object_that_is_being_deleted_still_exists(plugin: Plugin, api: Api, namespace: str) -> None:
    inputs = config_map(namespace, a="b")
    inputs["metadata"]["finalizers"] = ["test/keep"]
    plugin.create(inputs)
    path = CONFIG_MAP.path(namespace, "settings")
    api.request("DELETE", path)
    with pytest.raises(FailedError, match="already exists"):
        plugin.create(config_map(namespace, a="b"))
    api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=STRATEGIC)


def test_deleted_object_is_detected(plugin: Plugin, api: Api, namespace: str) -> None:
    resource_id, state = plugin.create(config_map(namespace, a="b"))
    api.request("DELETE", CONFIG_MAP.path(namespace, "settings"))
    assert plugin.read(resource_id, state, state["__inputs"])[0] == ""


def test_import_reads_all_inputs(plugin: Plugin, api: Api, namespace: str) -> None:
    api.request("POST", CONFIG_MAP.path(namespace), config_map(namespace, a="b"))
    resource_id, state, inputs = plugin.read(f"{namespace}/settings", config_map(namespace))
    assert resource_id == f"{namespace}/settings"
    assert inputs == config_map(namespace, a="b")
    assert plugin.diff(state, inputs).changes == pb.DiffResponse.DIFF_NONE


def test_delete_waits_until_the_pods_are_gone(plugin: Plugin, api: Api, node: NodeProcess, namespace: str) -> None:
    inputs = job("long", namespace, "sleep 60")
    inputs["metadata"]["annotations"] = {"pulumi.com/waitFor": "jsonpath={.status.ready}=1"}
    state = plugin.create(inputs)[1]
    assert len(api.list(POD, namespace)) == 1
    plugin.delete(state)
    assert api.list(JOB, namespace) == api.list(POD, namespace) == []


def kubeconfig(server: str) -> str:
    cluster = [{"name": "a", "cluster": {"server": server}}]
    context = [{"name": "a", "context": {"cluster": "a"}}]
    return json.dumps({"clusters": cluster, "contexts": context, "current-context": "a", "users": []})


@pytest.mark.parametrize(
    ("olds", "news", "replaces"),
    [
        ({"kubeconfig": kubeconfig("https://a")}, {"kubeconfig": kubeconfig("https://b")}, ["kubeconfig"]),
        ({"kubeconfig": kubeconfig("https://a")}, {"kubeconfig": kubeconfig("https://a") + "\n"}, []),
        ({"kubeconfig": kubeconfig("https://a")}, {"kubeconfig": UNKNOWN}, ["kubeconfig"]),
        ({"kubeconfig": "{}", "clusterIdentifier": "x"}, {"kubeconfig": UNKNOWN, "clusterIdentifier": "x"}, []),
        (
            {"kubeconfig": "{}", "clusterIdentifier": "x"},
            {"kubeconfig": "{}", "clusterIdentifier": "y"},
            ["clusterIdentifier"],
        ),
    ],
)
def test_another_cluster_replaces_the_provider(plugin: Plugin, olds: Object, news: Object, replaces: list[str]) -> None:
    answer = plugin.ask("DiffConfig", pb.DiffRequest(olds=write(olds), news=write(news)))
    assert answer.changes == pb.DiffResponse.DIFF_SOME
    assert list(answer.replaces) == replaces


def test_preview_works_without_the_cluster_and_create_names_it() -> None:
    own = Plugin(kubeconfig=kubeconfig("https://127.0.0.1:1"))
    try:
        inputs, failures = own.check(config_map("default", a="b"))
        assert failures == {}
        assert own.create(inputs, preview=True)[1]["data"] == {"a": "b"}
        with pytest.raises(FailedError, match=r"https://127\.0\.0\.1:1 cannot be reached"):
            own.create(inputs)
    finally:
        own.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_provider_ends_when_the_engine_stops_it(
    cluster: ControlPlane, node: NodeProcess, namespace: str, number: signal.Signals
) -> None:
    own = Plugin(kubeconfig=str(cluster.kubeconfig))
    with ThreadPoolExecutor() as pool:
        creating = pool.submit(own.create, job("long", namespace, "sleep 60"))
        time.sleep(1)
        own.process.send_signal(number)
        try:
            assert own.process.wait(4) == 0
        finally:
            own.process.kill()
        assert creating.exception(10) is not None


def test_the_provider_ends_with_the_engine() -> None:
    start = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'sandbox.plugins.kubernetes']"
    start += ", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL); p.stdout.readline(); print(p.pid)"
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    proc = Path(f"/proc/{int(done.stdout)}/stat")
    eventually(lambda: not proc.exists() or proc.read_text().split()[2] == "Z", 10)
