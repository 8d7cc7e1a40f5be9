"""The emulated Kubernetes provider answers the engine's requests, on a real API server."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc, status_pb2

from sandbox.cluster.control_plane import ControlPlane
from sandbox.plugins.kubernetes.awaits import ANNOTATIONS, SKIP_AWAIT, WAIT_FOR
from sandbox.plugins.kubernetes.kinds import RULES
from sandbox.plugins.kubernetes.provider import SETTINGS
from sandbox.plugins.wire import UNKNOWN, Secret, read, write
from tests.emulator.cluster_helpers import JOB, NodeProcess, eventually, job
from tests.unit.program import EVERYTHING, run
from tools.kubernetes_client import CONFIG_MAP, POD, STRATEGIC, Api, Object

MODULES = {"v1": "core/v1"}
STARTED = "jsonpath={.status.startTime}"


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


@dataclass
class Resource:
    """What the engine stores of a resource."""

    id: str
    inputs: Object
    state: Object


class Plugin:
    """A running emulated Kubernetes provider."""

    def __init__(self, kubeconfig: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "sandbox.plugins.kubernetes"], stdout=subprocess.PIPE)
        assert self.process.stdout
        port = int(self.process.stdout.readline())
        self.stub = provider_pb2_grpc.ResourceProviderStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        variables = {"kubernetes:config:kubeconfig": kubeconfig}
        self.ask("Configure", pb.ConfigureRequest(variables=variables, acceptSecrets=True))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    def ask(self, method: str, request: Any) -> Any:
        try:
            return getattr(self.stub, method)(request, timeout=120)
        except grpc.RpcError as error:
            raise FailedError(error) from None

    def check(self, inputs: Object, token: str = "") -> tuple[Object, dict[str, str]]:
        answer = self.ask("Check", pb.CheckRequest(urn=urn(inputs, token), news=write(inputs)))
        return read(answer.inputs), {failure.property: failure.reason for failure in answer.failures}

    def diff(self, it: Resource, inputs: Object) -> Any:
        olds, old_inputs = write(it.state), write(it.inputs)
        request = pb.DiffRequest(id=it.id, urn=urn(it.inputs), olds=olds, old_inputs=old_inputs, news=write(inputs))
        return self.ask("Diff", request)

    def create(self, inputs: Object, preview: bool = False, timeout: float = 0) -> Resource:
        news = self.check(inputs)[0]
        request = pb.CreateRequest(urn=urn(inputs), properties=write(news), preview=preview, timeout=timeout)
        answer = self.ask("Create", request)
        return Resource(answer.id, news, read(answer.properties))

    def update(self, it: Resource, inputs: Object, preview: bool = False) -> Resource:
        news = self.check(inputs)[0]
        request = pb.UpdateRequest(
            id=it.id, urn=urn(inputs), olds=write(it.state), old_inputs=write(it.inputs), news=write(news)
        )
        request.preview = preview
        return Resource(it.id, news, read(self.ask("Update", request).properties))

    def read(self, it: Resource) -> Resource:
        request = pb.ReadRequest(id=it.id, urn=urn(it.inputs), properties=write(it.state), inputs=write(it.inputs))
        answer = self.ask("Read", request)
        return Resource(answer.id, read(answer.inputs), read(answer.properties))

    def delete(self, it: Resource) -> None:
        properties, inputs = write(it.state), write(it.inputs)
        self.ask("Delete", pb.DeleteRequest(id=it.id, urn=urn(it.inputs), properties=properties, old_inputs=inputs))


def urn(obj: Object, token: str = "") -> str:
    module = MODULES.get(obj["apiVersion"], obj["apiVersion"])
    return f"urn:pulumi:test::test::{token or f'kubernetes:{module}:' + obj['kind']}::thing"


@pytest.fixture(scope="module")
def plugin(cluster: ControlPlane) -> Iterator[Plugin]:
    started = Plugin(cluster.kubeconfig.read_text())
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


def annotated(inputs: Object, name: str, value: str) -> Object:
    inputs["metadata"]["annotations"] = {name: value}
    return inputs


def test_the_program_sends_everything_that_the_provider_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = run(monkeypatch, EVERYTHING).resources.values()
    objects = [each.inputs for each in resources if each.type.startswith("kubernetes:")]
    sent = {(each["apiVersion"], each["kind"]) for each in objects}
    assert sent == {(rule.kind.api_version, rule.kind.kind) for rule in RULES}
    annotations = {name for each in objects for name in each["metadata"].get("annotations", {})}
    assert {name for name in annotations if name.startswith("pulumi.com/")} == ANNOTATIONS.keys()
    (provider,) = (each for each in resources if each.type == "pulumi:providers:kubernetes")
    assert provider.inputs.keys() == set(SETTINGS)


@pytest.mark.parametrize(
    "token", ["kubernetes:apps/v1:Deployment", "kubernetes:core/v1:ConfigMapPatch", "kubernetes:helm.sh/v3:Release"]
)
def test_unsupported_resources_are_rejected(plugin: Plugin, token: str) -> None:
    with pytest.raises(FailedError, match=f"has no {token}: .* Add it to RULES in sandbox/plugins/kubernetes/kinds"):
        plugin.check({"apiVersion": "v1", "kind": "Pod"}, token)


@pytest.mark.parametrize(
    ("change", "path", "why"),
    [
        ({"kind": "Secret"}, "kind", "must be 'ConfigMap'"),
        ({"data": {"a": 1}}, "data.a", "must be string"),
        ({"date": {}}, "date", "not a property in the schema"),
        ({"metadata": {"generateName": "a", "namespace": "default"}}, "metadata.name", "is required"),
        ({"metadata": {"name": "a", "labels": {"a": 1}, "namespace": "default"}}, "metadata.labels.a", "must be"),
        ({"metadata": {"name": "a"}}, "metadata.namespace", "is required"),
        ({"metadata": {"annotations": {"pulumi.com/patchForce": "true"}}}, "metadata.annotations", "to ANNOTATIONS in"),
        ({"metadata": {"annotations": {WAIT_FOR: "jsonpath={.a[*]}"}}}, "metadata.annotations", "to ANNOTATIONS in"),
    ],
)
def test_check_reports_invalid_inputs(plugin: Plugin, change: Object, path: str, why: str) -> None:
    failures = plugin.check(config_map("default") | change, "kubernetes:core/v1:ConfigMap")[1]
    assert why in failures[path]


def test_unsupported_settings_and_functions_are_rejected(plugin: Plugin) -> None:
    settings = {"kubeconfig": "x", "enableServerSideApply": "true", "version": "4.34.2"}
    failures = plugin.ask("CheckConfig", pb.CheckRequest(news=write(settings))).failures
    found = {failure.property: failure.reason for failure in failures}
    assert found.keys() == {"clusterIdentifier", "enableServerSideApply"}
    assert "Add it to SETTINGS in sandbox/plugins/kubernetes/provider.py" in found["enableServerSideApply"]
    with pytest.raises(FailedError, match="not implemented"):
        plugin.ask("Invoke", pb.InvokeRequest(tok="kubernetes:yaml:decode"))


def test_preview_asks_the_cluster_and_changes_nothing(plugin: Plugin, api: Api, namespace: str) -> None:
    previewed = plugin.create(job("previewed", namespace, "true"), preview=True)
    assert previewed.id == ""
    assert previewed.state["spec"]["completionMode"] == "NonIndexed"
    assert "status" not in previewed.state
    assert api.list(JOB, namespace) == []
    wrong = job("previewed", namespace, "true")
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    with pytest.raises(FailedError, match="restartPolicy"):
        plugin.create(wrong, preview=True)


def test_preview_works_with_unknown_values_and_missing_namespaces(plugin: Plugin) -> None:
    assert plugin.create(config_map("missing", a="b"), preview=True).state["data"] == {"a": "b"}
    assert plugin.create(config_map("default", a=UNKNOWN), preview=True).state["data"] == {"a": UNKNOWN}


def test_an_existing_object_is_not_taken_over(plugin: Plugin, api: Api, namespace: str) -> None:
    """Also one that is being deleted."""
    inputs, path = config_map(namespace, a="b"), CONFIG_MAP.path(namespace, "settings")
    inputs["metadata"]["finalizers"] = ["test/keep"]
    made = plugin.create(inputs)
    assert made.id == f"{namespace}/settings"
    for _ in range(2):
        with pytest.raises(FailedError, match="already exists"):
            plugin.create(config_map(namespace, a="new"))
        found = api.get(CONFIG_MAP, namespace, "settings")
        assert (found["data"], found["metadata"]["uid"]) == ({"a": "b"}, made.state["metadata"]["uid"])
        api.request("DELETE", path)
    api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=STRATEGIC)


def test_secrets_stay_secret(plugin: Plugin, namespace: str) -> None:
    metadata = {"name": "key", "namespace": namespace}
    made = plugin.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": Secret({"a": "Yg=="})})
    assert made.state["data"] == made.inputs["data"] == Secret({"a": "Yg=="})
    assert plugin.read(made).inputs["data"] == Secret({"a": "Yg=="})


def test_create_waits_for_a_job_and_refresh_keeps_what_the_api_server_omits(
    plugin: Plugin, node: NodeProcess, namespace: str
) -> None:
    inputs = job("thing", namespace, "true")
    inputs["spec"]["template"]["spec"]["containers"][0] |= {"env": [{"name": "A", "value": ""}], "args": []}
    made = plugin.create(inputs)
    assert made.state["status"]["succeeded"] == 1
    after = plugin.read(made)
    assert after.inputs == made.inputs
    assert plugin.diff(after, after.inputs).changes == pb.DiffResponse.DIFF_NONE
    del after.inputs["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert plugin.diff(after, after.inputs).changes == pb.DiffResponse.DIFF_NONE


def test_failed_job_is_stored_and_shows_its_last_log_lines(plugin: Plugin, node: NodeProcess, namespace: str) -> None:
    inputs = job("broken", namespace, "echo no such record: 17; exit 3")
    with pytest.raises(FailedError) as caught:
        plugin.create(inputs)
    assert "no such record: 17" in caught.value.reasons
    assert "BackoffLimitExceeded" in caught.value.reasons
    stored = Resource(caught.value.failure.id, inputs, read(caught.value.failure.properties))
    assert stored.id == f"{namespace}/broken"
    assert stored.state["status"]["failed"] == 1
    with pytest.raises(FailedError) as again:
        plugin.read(stored)
    assert "no such record: 17" in again.value.reasons
    # The next `up` does not repeat the Job.
    assert plugin.diff(stored, inputs).changes == pb.DiffResponse.DIFF_NONE


def test_wait_ends_at_the_timeout(plugin: Plugin, namespace: str) -> None:
    with pytest.raises(FailedError, match="not ready after 1 s") as caught:
        plugin.create(job("long", namespace, "sleep 60"), timeout=1)
    state: Object = read(caught.value.failure.properties)
    assert state["metadata"]["name"] == "long"


def test_a_job_is_awaited_only_until_it_starts_or_not_at_all(plugin: Plugin, namespace: str) -> None:
    made = plugin.create(annotated(job("long", namespace, "sleep 60"), WAIT_FOR, STARTED))
    assert "startTime" in made.state["status"]
    with pytest.raises(FailedError, match="is not ready"):
        plugin.read(made)
    other = plugin.create(annotated(job("other", namespace, "sleep 60"), SKIP_AWAIT, "true"))
    other = plugin.update(other, other.inputs)
    assert plugin.read(other).id == f"{namespace}/other"
    plugin.delete(other)
    plugin.delete(other)  # a second deletion is not an error


JOB_SPEC = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
A_JOB = job("thing", "default", "true", **JOB_SPEC)
A_MAP = config_map("default", a="b")


@pytest.mark.parametrize(
    ("inputs", "path", "value", "replaced"),
    [
        (A_JOB, "spec.parallelism", 3, True),
        (A_JOB, "spec.template.spec.containers.0.image", "other", True),
        (A_JOB, "spec.template.metadata", {"labels": {"a": "b"}}, True),
        (A_JOB, "spec.backoffLimit", 4, False),
        (A_JOB, "metadata.labels", {"a": UNKNOWN}, False),
        (A_JOB, "metadata.name", "other", True),
        (A_JOB, "metadata.namespace", "other", True),
        (A_JOB, "spec", UNKNOWN, True),
        (A_JOB, "spec.template.spec.containers.0.image", UNKNOWN, True),
        (A_JOB, "metadata", UNKNOWN, True),
        (A_MAP, "data", {"a": "c"}, True),
        (A_MAP, "data", UNKNOWN, True),
        (A_MAP, "metadata.labels", {"a": "c"}, False),
        (volume("thing", "fs-1"), "spec.nfs.server", "fs-2", True),
        (volume("thing", "fs-1"), "spec.nfs.server", UNKNOWN, True),
        (volume("thing", "fs-1"), "spec.capacity", {"storage": "2Gi"}, False),
        (claim("thing", "default"), "spec.volumeName", "other", True),
        (claim("thing", "default"), "spec.resources.requests", {"storage": "2Gi"}, False),
    ],
)
def test_changes_that_replace(plugin: Plugin, inputs: Object, path: str, value: object, replaced: bool) -> None:
    it = previewed(plugin, inputs)
    answer = plugin.diff(it, changed(it.inputs, path, value))
    assert answer.changes == pb.DiffResponse.DIFF_SOME
    assert bool(answer.replaces) == replaced
    kinds = {pb.PropertyDiff.Kind.Name(entry.kind).endswith("_REPLACE") for entry in answer.detailedDiff.values()}
    assert kinds >= {replaced}
    assert answer.deleteBeforeReplace == (replaced and not path.startswith("metadata"))


def previewed(plugin: Plugin, inputs: Object) -> Resource:
    """The resource as the API server would create it."""
    it = plugin.create(inputs, preview=True)
    assert plugin.diff(it, it.inputs).changes == pb.DiffResponse.DIFF_NONE
    return it


def changed(inputs: Object, path: str, value: object) -> Object:
    changing = copy.deepcopy(inputs)
    *above, last = path.split(".")
    at: Any = changing
    for part in above:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return changing


def test_values_that_the_api_server_omits_are_not_differences(plugin: Plugin) -> None:
    inputs = job("thing", "default", "true")
    before = previewed(plugin, inputs)
    inputs["spec"]["template"]["spec"]["containers"][0] |= {"args": [], "tty": False, "workingDir": ""}
    previewed(plugin, inputs)
    assert plugin.diff(before, inputs).changes == pb.DiffResponse.DIFF_NONE


def test_explicit_zero_is_a_difference_if_the_cluster_has_a_value(plugin: Plugin) -> None:
    it = previewed(plugin, job("thing", "default", "true"))
    it.state["spec"]["suspend"] = True
    answer = plugin.diff(it, changed(it.inputs, "spec.suspend", False))
    assert answer.changes == pb.DiffResponse.DIFF_SOME


def test_update_in_place_and_its_preview(plugin: Plugin, api: Api, namespace: str) -> None:
    made = plugin.create(annotated(job("thing", namespace, "sleep 60"), SKIP_AWAIT, "true"))
    inputs = changed(made.inputs, "spec.backoffLimit", 4)
    assert plugin.update(made, inputs, preview=True).state["spec"]["backoffLimit"] == 4
    assert api.get(JOB, namespace, "thing")["spec"]["backoffLimit"] == 0
    after = plugin.update(made, inputs)
    assert after.state["spec"]["backoffLimit"] == 4
    assert after.state["metadata"]["uid"] == made.state["metadata"]["uid"]
    with pytest.raises(FailedError, match="immutable"):
        plugin.update(after, changed(inputs, "spec.completionMode", "Indexed"), preview=True)


def test_a_change_by_somebody_else_is_detected_and_not_overwritten(plugin: Plugin, api: Api, namespace: str) -> None:
    made = plugin.create(config_map(namespace, a="b"))
    path = CONFIG_MAP.path(namespace, "settings")
    theirs = {"data": {"a": "theirs"}, "metadata": {"annotations": {"extra": "theirs"}}}
    api.request("PATCH", path, theirs, {"fieldManager": "kubectl-edit"}, STRATEGIC)
    after = plugin.read(made)
    assert after.inputs == changed(made.inputs, "data.a", "theirs")
    assert list(plugin.diff(after, made.inputs).detailedDiff) == ["data.a"]
    with pytest.raises(FailedError, match="conflict with"):
        plugin.update(after, made.inputs)
    api.request("DELETE", path)
    assert plugin.read(made).id == ""


def test_an_object_whose_create_was_interrupted_can_be_adopted(plugin: Plugin, api: Api, namespace: str) -> None:
    made = plugin.create(annotated(job("interrupted", namespace, "sleep 60"), SKIP_AWAIT, "true"))
    # The engine has lost what the create returned: it knows the inputs alone.
    adopted = plugin.read(Resource(made.id, made.inputs, made.inputs))
    assert plugin.diff(adopted, made.inputs).changes == pb.DiffResponse.DIFF_NONE
    plugin.update(adopted, changed(made.inputs, "metadata.labels", {"a": "b"}))
    live = api.get(JOB, namespace, "interrupted")["metadata"]
    assert (live["uid"], live["labels"]["a"]) == (made.state["metadata"]["uid"], "b")


def test_delete_waits_until_the_pods_are_gone(plugin: Plugin, api: Api, node: NodeProcess, namespace: str) -> None:
    made = plugin.create(annotated(job("long", namespace, "sleep 60"), WAIT_FOR, STARTED))
    eventually(lambda: api.get(JOB, namespace, "long")["status"].get("ready"))
    plugin.delete(made)
    assert api.list(JOB, namespace) == api.list(POD, namespace) == []


def test_another_cluster_replaces_the_provider(plugin: Plugin) -> None:
    for kubeconfig, cluster, replaces in (("b", "x", []), ("a", "y", ["clusterIdentifier"])):
        olds, news = {"kubeconfig": "a", "clusterIdentifier": "x"}, {"kubeconfig": kubeconfig}
        news["clusterIdentifier"] = cluster
        answer = plugin.ask("DiffConfig", pb.DiffRequest(olds=write(olds), news=write(news)))
        assert answer.changes == pb.DiffResponse.DIFF_SOME
        assert list(answer.replaces) == replaces


def test_preview_works_without_the_cluster_and_create_names_it() -> None:
    cluster = [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}]
    context = [{"name": "a", "context": {"cluster": "a"}}]
    own = Plugin(json.dumps({"clusters": cluster, "contexts": context, "current-context": "a", "users": []}))
    try:
        inputs, failures = own.check(config_map("default", a="b"))
        assert failures == {}
        assert own.create(inputs, preview=True).state["data"] == {"a": "b"}
        with pytest.raises(FailedError, match=r"https://127\.0\.0\.1:1 cannot be reached"):
            own.create(inputs)
    finally:
        own.close()


@pytest.mark.parametrize("ending", ["Cancel", signal.SIGINT, signal.SIGTERM])
def test_the_engine_can_end_a_wait(
    cluster: ControlPlane, api: Api, namespace: str, ending: str | signal.Signals
) -> None:
    own = Plugin(str(cluster.kubeconfig))
    with ThreadPoolExecutor() as pool:
        creating = pool.submit(own.create, job("long", namespace, "sleep 60"))
        eventually(lambda: api.find(JOB, namespace, "long"))
        try:
            if isinstance(ending, signal.Signals):
                own.process.send_signal(ending)
                assert own.process.wait(30) == 0
                assert creating.exception(30) is not None
            else:
                own.ask(ending, empty_pb2.Empty())
                assert "was cancelled" in str(creating.exception(30))
        finally:
            own.process.kill()


def test_the_provider_ends_with_the_engine() -> None:
    start = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'sandbox.plugins.kubernetes']"
    start += ", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL); p.stdout.readline(); print(p.pid)"
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    proc = Path(f"/proc/{int(done.stdout)}/stat")
    eventually(lambda: not proc.exists() or proc.read_text().split()[2] == "Z")
