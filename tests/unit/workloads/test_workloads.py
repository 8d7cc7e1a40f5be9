"""The Jobs for given settings, and the functions that build them."""

import dataclasses
import json
import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from settings.schema import read
from tests.unit.conftest import RunStack
from tests.unit.program import EVERYTHING, SUBNETS, Aws, Graph, run
from workloads.in_pod.contract import DataSource
from workloads.job import Mount
from workloads.next_steps import next_steps
from workloads.scripts import IN_POD, digest, key_of
from workloads.training_job import TrainingJobArgs, training_job_spec

JOB = "kubernetes:batch/v1:Job"
JOBS = ("paddle-data", "paddle-cluster-job", "paddle-export")
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"


def spec_of(graph: Graph, name: str) -> dict[str, Any]:
    return dict(graph.one(JOB, name).inputs["spec"])


def container_of(graph: Graph, name: str) -> dict[str, Any]:
    return dict(spec_of(graph, name)["template"]["spec"]["containers"][0])


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_every_container_is_restricted(program: RunStack, stack: str) -> None:
    graph = program({"data": {"source": "s3://bucket/key"}}, stack=stack)
    seen = 0
    # The image of the user may write anywhere.
    writable = {"trainer"}
    for job in graph.all(JOB):
        pod, folders = job.inputs["spec"]["template"]["spec"], set[str]()
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            seen += 1
            restricted: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            if container["name"] not in writable:
                restricted["readOnlyRootFilesystem"] = True
                (folder,) = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"]
                assert {"name": folder, "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
                assert env_of(container)["HOME"] == "/tmp"
                assert folder not in folders, "two containers of a pod share their files"
                folders.add(folder)
            assert container["securityContext"] == restricted, f"{job.urn}: {container['name']}"
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert set(container["resources"]["limits"]) == {"memory"}
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert seen == 6


def test_the_names_in_a_component_come_from_the_component(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack may later have several trainings. A training Job has its name from the settings."""
    graph = run(monkeypatch, EVERYTHING)
    parents = {r.urn: r for r in graph.resources.values() if r.type.startswith("paddle:workloads:")}
    children = [r for r in graph.resources.values() if r.parent in parents]
    assert len(children) > 20
    assert [r.urn for r in children if not r.name.startswith((parents[r.parent].name, "paddle-cluster-job"))] == []


def test_the_components_have_their_names_of_earlier_versions_as_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = run(monkeypatch, EVERYTHING)
    top = [r for r in graph.resources.values() if r.type.startswith("paddle:w") and r.parent not in graph.resources]
    assert {r.name: [alias.spec.name for alias in r.options.aliases] for r in top} == {
        "namespace": [],
        "nvidia-device-plugin": ["gpu-plugin"],
        "paddle-image-pull": ["image-pull"],
        "efsvol": ["volume"],
        "paddle-data": ["data"],
        "paddle-trainer": ["training"],
        "paddle-export": ["export"],
    }


def tokens_of(graph: Graph, job: str) -> dict[str, list[tuple[str, str]]]:
    """For each container of a Job, the folder and the audience of every token of the service account."""
    pod = spec_of(graph, job)["template"]["spec"]
    audiences = {
        volume["name"]: source["serviceAccountToken"].get("audience", "the API server")
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    }
    return {
        container["name"]: [
            (m["mountPath"], audiences[m["name"]]) for m in container["volumeMounts"] if m["name"] in audiences
        ]
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    }


def test_only_the_container_that_needs_a_token_gets_it(program: RunStack) -> None:
    graph = program({"data": {"source": "s3://bucket/reviews/"}})
    aws = ("/var/run/secrets/eks.amazonaws.com/serviceaccount", "sts.amazonaws.com")
    api = ("/var/run/secrets/kubernetes.io/serviceaccount", "the API server")
    assert tokens_of(graph, "paddle-data") == {"fetch": [aws], "paddle-data": []}
    assert tokens_of(graph, "paddle-export") == {"await-training": [api], "export": [aws]}
    accounts = graph.all("kubernetes:core/v1:ServiceAccount")
    # EKS would give the role of an annotated account to every container.
    assert not any("annotations" in account.inputs["metadata"] for account in accounts)
    used = {job.name: job.inputs["spec"]["template"]["spec"]["serviceAccountName"] for job in graph.all(JOB)}
    assert used == {
        "paddle-data": "paddle-data",
        "paddle-cluster-job": "paddle-trainer",
        "paddle-export": "paddle-export",
        "paddle-image-pull": "paddle-image-pull",
    }


DNS = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}


def test_pods_reach_dns_https_and_only_trainers_reach_each_other(program: RunStack) -> None:
    graph = program({"data": {"source": ["https://host:8443/a", "https://host/b"]}})
    policies = {r.inputs["metadata"]["name"]: r.inputs["spec"] for r in graph.all(NETWORK_POLICY)}
    assert set(policies) == {job.inputs["metadata"]["name"] for job in graph.all(JOB)}
    for name, spec in policies.items():
        pods = {"matchLabels": {"batch.kubernetes.io/job-name": name}}
        if name.startswith("paddle-image-pull-"):
            assert spec == {"podSelector": pods, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []}
            continue
        trainers = [{"podSelector": pods}] if name == "paddle-cluster-job" else []
        ports = [443, 8443] if name == "paddle-data" else [443]
        assert spec["podSelector"] == pods
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec.get("ingress", []) == ([{"from": trainers}] if trainers else [])
        https = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
        assert spec["egress"] == [DNS, https, *([{"to": trainers}] if trainers else [])]


def test_no_pod_starts_before_its_network_policy(dev: Graph) -> None:
    for job in dev.all(JOB):
        name = job.inputs["metadata"]["name"]
        (policy,) = [p for p in dev.all(NETWORK_POLICY) if p.inputs["metadata"]["name"] == name]
        assert dev.leads(job, policy)


def test_the_image_is_pulled_on_each_worker_and_nobody_waits_for_it(dev: Graph) -> None:
    pull = dev.one(JOB, "paddle-image-pull")
    (spread,) = pull.inputs["spec"]["template"]["spec"]["topologySpreadConstraints"]
    ours = {"batch.kubernetes.io/job-name": pull.inputs["metadata"]["name"]}
    assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
    assert (spread["whenUnsatisfiable"], spread["labelSelector"]) == ("DoNotSchedule", {"matchLabels": ours})
    for job in dev.all(JOB):
        assert job is pull or not (dev.leads(job, pull) or dev.leads(pull, job))


def test_another_image_or_number_of_workers_gives_another_pull(program: RunStack) -> None:
    """With skipAwait, nothing waits until the old Job is deleted, so the new one needs another name."""

    def name(**changes: Any) -> str:
        return str(program(changes).one(JOB, "paddle-image-pull").inputs["metadata"]["name"])

    same = {name(), name(trainers=2), name(job={"passes": 9}), name(data={"records": 7})}
    assert len({*same, name(job={"image": "lab/train:1"}), name(workers={"count": 4})}) == 3


@pytest.mark.parametrize(
    ("workers", "data_image", "pulled"),
    [(2, "", True), (1, "", False), (1, "lab/split:1", True), (0, "", False), (0, "lab/split:1", False)],
)
def test_the_image_is_pulled_early_only_if_a_worker_would_not_have_it(
    program: RunStack, workers: int, data_image: str, pulled: bool
) -> None:
    changes = {"trainers": 1, "workers": {"count": workers}, "data": {"image": data_image}}
    graph = program(changes, aws=Aws(subnets=SUBNETS))
    assert ("paddle-image-pull" in {job.name for job in graph.all(JOB)}) is pulled


def test_a_job_times_out_before_up_does(program: RunStack) -> None:
    graph = program({"job": {"timeoutMinutes": 60}, "data": {"timeoutMinutes": 5}})
    timeouts = {name: graph.one(JOB, name).options.customTimeouts.create for name in JOBS}
    assert timeouts == {"paddle-data": "15m", "paddle-cluster-job": "70m", "paddle-export": "100m"}


def test_without_export_the_model_stays_on_the_volume(program: RunStack) -> None:
    graph = program({"export": {"enabled": False}})
    assert "paddle-export" not in {job.name for job in graph.all(JOB)}
    assert graph.outputs["model"] == "efs-id:/paddle-cluster-job/output/"
    steps = {"useCluster", "followTraining", "lookIntoVolume", "shellOnWorker", "deleteStackAndData"}
    assert set(graph.outputs["nextSteps"]) == steps
    paused = program({"export": {"enabled": False}, "workers": {"count": 0}}, aws=Aws(subnets=SUBNETS))
    assert set(paused.outputs["nextSteps"]) == {"useCluster", "followTraining", "deleteStackAndData"}


@pytest.mark.parametrize(
    ("setting", "addresses", "is_one_file", "ports", "bucket", "shown"),
    [
        ("synthetic", (), True, (443,), "", "synthetic"),
        ("s3://bucket/key", ("s3://bucket/key",), True, (443,), "bucket", "s3://bucket/key"),
        ("s3://bucket/\u00e9/", ("s3://bucket/\u00e9/",), False, (443,), "bucket", "s3://bucket/\u00e9/"),
        ("https://h:8443/a", ("https://h:8443/a",), True, (443, 8443), "", "https://h:8443/a"),
        (["https://h/b", "https://h/a"], ("https://h/b", "https://h/a"), False, (443,), "", "https://h/b https://h/a"),
    ],
)
def test_the_data_source_reaches_the_data_job(
    program: RunStack, setting: Any, addresses: Any, is_one_file: bool, ports: Any, bucket: str, shown: str
) -> None:
    text = env_of(container_of(program({"data": {"source": setting}}), "paddle-data"))["DATA_SOURCE"]
    source = DataSource.from_json(text)
    assert source == DataSource.parse(tuple(setting) if isinstance(setting, list) else setting)
    assert source.addresses == addresses
    assert (source.is_one_file, source.ports, source.bucket, source.shown) == (is_one_file, ports, bucket, shown)


def test_the_name_of_a_config_map_changes_with_its_scripts(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> dict[str, str]:
        return {r.name: r.inputs["metadata"]["name"] for r in program().all("kubernetes:core/v1:ConfigMap")}

    before = names()
    monkeypatch.setattr(
        "workloads.scripts.digest", lambda data: digest(data) if "launch.py" in data else digest({**data, "x": ""})
    )
    after = names()
    assert {name for name in before if before[name] != after[name]} == {"paddle-data-scripts", "paddle-export-scripts"}
    assert digest({"a": "1"}) != digest({"a": "2"})


def test_pods_find_every_script_at_its_path(dev: Graph) -> None:
    maps = {r.inputs["metadata"]["name"]: r for r in dev.all("kubernetes:core/v1:ConfigMap")}
    ours = {path.stem for path in IN_POD.glob("*.py")}
    for job in JOBS:
        pod = spec_of(dev, job)["template"]["spec"]
        (shipped,) = [volume["configMap"] for volume in pod["volumes"] if volume["name"] == "scripts"]
        texts = maps[shipped["name"]].inputs["data"]
        assert {item["key"] for item in shipped["items"]} == set(texts)
        assert maps[shipped["name"]].inputs["immutable"] is True
        paths = {item["path"] for item in shipped["items"]}
        started = re.findall(r"/paddle-job/([\w./]+)", str([*pod["containers"], *pod.get("initContainers", [])]))
        imported = re.findall(r"^(?:from|import) (\w+)", "\n".join(texts.values()), re.MULTILINE)
        assert started
        assert {*started, *(f"{name}.py" for name in ours & set(imported))} <= paths


@pytest.mark.parametrize(("path", "key"), [("train.py", "train.py"), ("lib/my file.py", "-my_file.py")])
def test_config_map_keys_contain_only_allowed_characters(path: str, key: str) -> None:
    assert key_of(path).endswith(key)
    assert key_of("a/b.py") != key_of("c/b.py")


def test_a_namespace_is_created_unless_it_is_the_default(program: RunStack, dev: Graph) -> None:
    assert not dev.all("kubernetes:core/v1:Namespace")
    graph = program({"job": {"namespace": "training"}})
    made = graph.one("kubernetes:core/v1:Namespace")
    assert made.inputs["metadata"]["name"] == "training"
    objects = [r for r in graph.resources.values() if r.type.startswith("kubernetes:")]
    assert {r.inputs["metadata"].get("namespace") for r in objects} == {"training", None}
    assert [r.urn for r in objects if "namespace" in r.inputs["metadata"] and not graph.leads(r, made)] == []


@pytest.mark.parametrize(
    ("changes", "trigger"),
    [
        ({}, "default 50"),
        ({"job": {"namespace": "training"}}, "training 50"),
        # A bound claim cannot be resized, and its volume cannot be bound to another claim.
        ({"storage": {"claimGiB": 60}}, "default 60"),
    ],
)
def test_a_claim_of_another_namespace_or_size_gets_a_new_volume(
    program: RunStack, changes: dict[str, Any], trigger: str
) -> None:
    assert program(changes).named("efsvol").options.replacement_trigger.string_value == trigger


def test_a_spec_can_be_built_without_pulumi() -> None:
    settings, _ = read({})
    volume = SimpleNamespace(mount=lambda folder: Mount({"name": "efs"}, folder))
    facts, data = SimpleNamespace(pod_memory_mib=4096), SimpleNamespace(name="paddle-data")
    args = TrainingJobArgs(settings, facts, None, volume, data)  # type: ignore[arg-type]
    spec = training_job_spec(args, "account", Mount({"name": "scripts"}, "/scripts"))
    assert json.loads(json.dumps(spec))["template"]["metadata"]["annotations"] == {"paddle-on-aws/after": "paddle-data"}


def test_the_volume_can_be_read_in_a_pod_with_its_claim(program: RunStack) -> None:
    graph = program({"job": {"namespace": "training"}, "export": {"image": "mirror/cli:1"}})
    *words, overrides = shlex.split(graph.outputs["nextSteps"]["lookIntoVolume"])
    assert words == [
        *("kubectl", "--namespace", "training", "run", "look-into-volume", "--rm", "--stdin", "--tty"),
        *("--restart=Never", "--image=mirror/cli:1"),
    ]
    spec = json.loads(overrides.removeprefix("--overrides="))["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {
        "claimName": graph.named("efsvol-claim").inputs["metadata"]["name"]
    }
    # kubectl looks for the container with the name of the pod.
    assert [each["name"] for each in spec["containers"]] == ["look-into-volume"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "--query 'Reservations[0].Instances[0].InstanceId')\""),
        ({"sshPublicKey": "ssh-ed25519 x"}, "--query 'Reservations[0].Instances[0].PublicDnsName')\""),
        ({"sshPublicKey": "ssh-ed25519 x", "natGateways": "single"}, "PrivateDnsName"),
    ],
)
def test_a_shell_on_a_worker_uses_the_key_or_session_manager(given: dict[str, str], expected: str) -> None:
    settings, _ = read({**given, "export": {"enabled": False}})
    settings = dataclasses.replace(settings, aws={"region": "us-west-2", "profile": "lab"})
    command = str(next_steps(settings, "")["shellOnWorker"])
    session = "aws --profile lab ssm start-session --region us-west-2 --target"
    assert command.startswith("ssh ec2-user@" if given else session)
    assert "aws --profile lab ec2 describe-instances --region us-west-2" in command
    assert "Name=tag:Name,Values=paddle-cluster-worker" in command
    assert expected in command


def test_next_steps_can_be_pasted() -> None:
    settings, _ = read({"trainers": "2", "export": {"enabled": False}})
    assert next_steps(settings, "")["followTraining"] == (
        "kubectl --namespace default logs --follow --prefix --selector job-name=paddle-cluster-job --max-log-requests 2"
    )
