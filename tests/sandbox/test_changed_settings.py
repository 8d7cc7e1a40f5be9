"""Each setting is changed once on a running stack: `up` succeeds, the change has its effect, the next preview is empty.

The effect of a change must not be one that another change of its group has too. The pods are simulated.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from settings.schema import declared
from tests.sandbox.checkout import JOB, WITHOUT_MOUNT_NAMESPACES, Checkout
from tests.sandbox.inventory import ACCOUNT, inventory
from tools.kubernetes_client import PERSISTENT_VOLUME, Kind, Object

ADMIN, DEPLOYER = "arn:aws:iam::123456789012:role/admin", "arn:aws:iam::123456789012:role/ci"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
SHA256 = "0" * 64
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True)
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets", True)
# The sandbox runs as this user. It must stay an administrator of the cluster.
USER = "arn:aws:iam::123456789012:user/deployer"
BOUNDARY = "arn:aws:iam::123456789012:policy/limit"
CIDRS, PLUGIN = ["8.8.8.8/32"], "lab/gpus:1"
LAB_DATA = '{"kind": "https", "addresses": ["https://lab/data"]}'
# What EKS cannot change, so these changes are refused before the first resource.
REFUSED: Mapping[str, object] = {"vpcCidr": "10.7.0.0/16", "availabilityZones": ["us-west-2b", "us-west-2c"]}
# AWS cannot change the key of a running stack: test_lifecycle.py.
ELSEWHERE = {"kmsKeyArn"}
# Where a later change needs another value than the default first.
START: Mapping[str, object] = {"kubernetesVersion": "1.34"}

# What would make a later change invalid or invisible: messages need the export, and with them `up` does not wait.
RESET: Mapping[str, Mapping[str, object]] = {"other Jobs": {"notify.email": "", "notify.monthlyBudget": 0}}

# The copy of the stack file that the engine reads.
COPY = "stacks/local/Pulumi.local.yaml"


def cluster(stack: Checkout) -> dict[str, Any]:
    eks = stack.client("eks")
    (name,) = eks.list_clusters()["clusters"]
    found: dict[str, Any] = eks.describe_cluster(name=name)["cluster"]
    return found


def workers(stack: Checkout) -> dict[str, Any]:
    eks, name = stack.client("eks"), cluster(stack)["name"]
    (group,) = eks.list_nodegroups(clusterName=name)["nodegroups"]
    found: dict[str, Any] = eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]
    return found


def template(stack: Checkout) -> dict[str, Any]:
    """What the workers are started with."""
    used = workers(stack)["launchTemplate"]
    versions = stack.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=used["id"], Versions=[used["version"]]
    )
    found: dict[str, Any] = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return found


def administrators(stack: Checkout) -> list[str]:
    found: list[str] = stack.client("eks").list_access_entries(clusterName=cluster(stack)["name"])["accessEntries"]
    return found


def boundaries(stack: Checkout) -> set[str]:
    """The permissions boundaries of the roles of the stack."""
    iam = stack.client("iam")
    roles = [iam.get_role(RoleName=name)["Role"] for name in stack.ids("aws:iam/role:").values()]
    return {role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", "none") for role in roles}


def kubeconfig(stack: Checkout) -> str:
    """The name of the context that the Kubernetes provider uses."""
    written = run(stack, "pulumi", "stack", "output", "kubeconfig", "--show-secrets")
    return str(yaml.safe_load(written)["current-context"])


def subscriptions(stack: Checkout) -> Any:
    return stack.client("sns").list_subscriptions()


def budgets(stack: Checkout) -> Any:
    return stack.client("budgets").describe_budgets(AccountId=ACCOUNT)


def nat_gateways(stack: Checkout) -> int:
    listed = stack.client("ec2").describe_nat_gateways()["NatGateways"]
    return len([gateway for gateway in listed if gateway["State"] != "deleted"])


def logs(stack: Checkout) -> list[str]:
    return [
        kind for setup in cluster(stack)["logging"]["clusterLogging"] if setup["enabled"] for kind in setup["types"]
    ]


def record_names(stack: Checkout) -> set[str]:
    listed = stack.client("route53").list_resource_record_sets(HostedZoneId=stack.output("zoneId"))
    return {each["Name"] for each in listed["ResourceRecordSets"] if each["Type"] == "CNAME"}


def job(kind: str) -> Callable[[Checkout], Object]:
    """The data, training or export Job, in the namespace and with the name that it has now."""
    names = {"data": "paddle-data", "export": "paddle-export"}

    def find(stack: Checkout) -> Object:
        jobs = {each["metadata"]["name"]: each for each in stack.api.list(JOB)}
        others = (*names.values(), "paddle-image-pull")
        (training,) = [name for name in jobs if not name.startswith(others)]
        return jobs[names.get(kind, training)]

    return find


def environment(kind: str, name: str) -> Callable[[Checkout], str]:
    def read(stack: Checkout) -> str:
        return next(str(each["value"]) for each in container(kind)(stack)["env"] if each["name"] == name)

    return read


def at(path: str, read: Callable[[Checkout], Any]) -> Callable[[Checkout], Any]:
    """A value below what `read` finds: names and positions with dots, and * for each entry of a list."""

    def follow(found: Any, steps: list[str]) -> Any:
        if not steps:
            return found
        step, *rest = steps
        if isinstance(found, list):
            return [follow(each, rest) for each in found] if step == "*" else follow(found[int(step)], rest)
        return follow(found[step], rest)

    return lambda stack: follow(read(stack), path.split("."))


def listed(kind: Kind) -> Callable[[Checkout], list[Object]]:
    return lambda stack: stack.api.list(kind)


def container(kind: str) -> Callable[[Checkout], Any]:
    return at("spec.template.spec.containers.0", job(kind))


def code(stack: Checkout) -> list[str]:
    """The scripts of the data Job that are training code."""
    volumes = at("spec.template.spec.volumes", job("data"))(stack)
    (volume,) = [each for each in volumes if "configMap" in each]
    return [item["path"] for item in volume["configMap"]["items"] if "/" in item["path"]]


def shared_memory(stack: Checkout) -> str:
    volumes = at("spec.template.spec.volumes", job("training"))(stack)
    return next(str(each["emptyDir"]["sizeLimit"]) for each in volumes if "emptyDir" in each)


def protected(stack: Checkout) -> set[str]:
    return {each["urn"].rpartition("::")[2] for each in stack.resources() if each.get("protect")}


@dataclass(frozen=True)
class Change:
    """A new value, and what is different in AWS or Kubernetes afterwards."""

    key: str
    value: object
    effect: Callable[[Checkout], object]
    expected: object


GROUPS: Mapping[str, list[Change]] = {
    "in place": [
        Change("kubernetesVersion", "1.35", lambda s: cluster(s)["version"], "1.35"),
        Change("controlPlaneLogs", ["audit"], logs, ["audit"]),
        Change("apiAccessCidrs", CIDRS, at("resourcesVpcConfig.publicAccessCidrs", cluster), CIDRS),
        Change("sshPublicKey", SSH_KEY, lambda s: "KeyName" in template(s), True),
        Change("workers.count", 4, at("scalingConfig.desiredSize", workers), 4),
        Change("tags", {"team": "nlp"}, lambda s: cluster(s)["tags"].get("team"), "nlp"),
        Change("admins", [ADMIN, USER], lambda s: ADMIN in administrators(s), True),
        Change("deployer", DEPLOYER, lambda s: DEPLOYER in administrators(s), True),
        Change("permissionsBoundary", BOUNDARY, boundaries, {BOUNDARY}),
        Change("notify.email", "lab@example.com", at("Subscriptions.*.Endpoint", subscriptions), ["lab@example.com"]),
        Change("notify.monthlyBudget", 50, at("Budgets.0.BudgetLimit.Amount", budgets), "50.0"),
        Change("zoneName", "lab", record_names, {"api.lab.", "efs.lab."}),
    ],
    "new workers": [
        Change("natGateways", "single", nat_gateways, 1),
        Change("workers.zones", "all", lambda s: len(workers(s)["subnets"]), 2),
        Change("workers.capacity", "spot", lambda s: workers(s)["capacityType"], "SPOT"),
        Change("workers.instanceTypes", ["g5.xlarge"], lambda s: workers(s)["instanceTypes"], ["g5.xlarge"]),
        Change("workers.diskGiB", 120, at("BlockDeviceMappings.0.Ebs.VolumeSize", template), 120),
    ],
    "another cluster": [Change("clusterName", "lab", lambda s: cluster(s)["name"], "lab")],
    "other Jobs": [
        Change("trainers", 2, at("spec.completions", job("training")), 2),
        Change("job.name", "lab-job", at("metadata.name", job("training")), "lab-job"),
        Change("job.namespace", "lab", at("metadata.namespace", job("training")), "lab"),
        Change("job.image", "lab/train:1", at("image", container("training")), "lab/train:1"),
        Change("job.command", ["run"], at("command", container("training")), ["run"]),
        Change("job.code", "lab", code, ["model/train.py", "model/words.py"]),
        Change("job.configDir", "model", environment("training", "TRAIN_CONFIG_DIR"), "model"),
        Change("job.passes", 4, environment("training", "PASSES"), "4"),
        Change("job.attempts", 7, at("spec.backoffLimit", job("training")), 6),
        Change("job.peerTimeoutMinutes", 2, environment("training", "PEER_TIMEOUT_SECONDS"), "120"),
        Change("job.stallMinutes", 3, environment("training", "STALL_SECONDS"), "180"),
        Change("job.timeoutMinutes", 100, at("spec.activeDeadlineSeconds", job("training")), 6000),
        Change("job.sharedMemoryGiB", 5, shared_memory, "5Gi"),
        Change("data.image", "lab/data:1", at("image", container("data")), "lab/data:1"),
        Change("data.command", ["split"], at("command", container("data")), ["split"]),
        Change("data.source", "https://lab/data", environment("data", "DATA_SOURCE"), LAB_DATA),
        Change("data.sha256", SHA256, environment("data", "DATA_SHA256"), SHA256),
        Change("data.records", 300, environment("data", "DATA_RECORDS"), "300"),
        Change("data.timeoutMinutes", 20, at("spec.activeDeadlineSeconds", job("data")), 1200),
        Change("pserver.port", 7000, environment("training", "CONF_PADDLE_PORT"), "7000"),
        Change("pserver.ports", 3, environment("training", "CONF_PADDLE_PORTS_NUM"), "3"),
        Change("pserver.sparsePorts", 1, environment("training", "CONF_PADDLE_PORTS_NUM_SPARSE"), "1"),
        Change("export.image", "lab/copy:1", at("image", container("export")), "lab/copy:1"),
        Change("storage.driver", "efsCsi", at("*.spec.csi.driver", listed(PERSISTENT_VOLUME)), ["efs.csi.aws.com"]),
        Change("storage.sizeGiB", 200, at("*.spec.capacity.storage", listed(PERSISTENT_VOLUME)), ["200Gi"]),
        Change("storage.claimGiB", 60, at("*.spec.resources.requests.storage", listed(CLAIM)), ["60Gi"]),
    ],
    "no waiting, protected data": [
        # The simulated nodes have no GPUs, so `up` must not wait for the pods.
        Change(
            "job.wait", False, lambda s: "pulumi.com/waitFor" in job("training")(s)["metadata"]["annotations"], True
        ),
        Change(
            "job.gpusPerTrainer", 1, lambda s: container("training")(s)["resources"]["limits"]["nvidia.com/gpu"], "1"
        ),
        Change(
            "job.gpuPluginImage", PLUGIN, at("*.spec.template.spec.containers.0.image", listed(DAEMON_SET)), [PLUGIN]
        ),
        Change("export.enabled", False, lambda s: "paddle-export" in str(at("*.metadata.name", listed(JOB))(s)), False),
        Change("retainData", True, protected, {"key", "paddle-local", "efs"}),
    ],
}
# `python -m sandbox` sets these itself, so the test changes them in a copy of the stack file.
SET_BY_THE_SANDBOX = [
    Change("pserver.nic", "eth1", environment("training", "CONF_PADDLE_NIC"), "eth1"),
    Change("kubeconfig", "lab.yaml", kubeconfig, "lab"),
]


@pytest.fixture
def stack(cached: None, tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path)
    shutil.copytree(made.project / "workloads/in_pod/quick_start", made.project / "lab")
    (made.project / "lab/words.py").touch()
    yield made
    run(made, "down")


def run(stack: Checkout, *arguments: str) -> str:
    return stack.succeed(*arguments, under=WITHOUT_MOUNT_NAMESPACES)


def write(stack: Checkout, settings: Mapping[str, object], file: Path | None = None) -> None:
    """Add settings to the stack file. A key with a dot is a path."""
    file = file or stack.project / "Pulumi.local.yaml"
    written = yaml.safe_load(file.read_text())
    for key, value in settings.items():
        group, dot, name = key.partition(".")
        below = written["config"].setdefault(f"paddle-on-aws:{group}", {}) if dot else written["config"]
        below[name if dot else f"paddle-on-aws:{key}"] = value
    file.write_text(yaml.safe_dump(written))


def data_of(stack: Checkout) -> dict[str, str]:
    """The resources that hold data."""
    return {**stack.ids("aws:efs/fileSystem:"), **stack.ids("aws:s3/bucket:"), **stack.ids("aws:kms/key:")}


def test_the_table_has_every_setting() -> None:
    listed = [change.key for changes in (*GROUPS.values(), SET_BY_THE_SANDBOX) for change in changes]
    assert len(listed) == len(set(listed))
    assert {*listed, *REFUSED, *ELSEWHERE} == set(declared())


def test_each_changed_setting_takes_effect(stack: Checkout) -> None:
    empty = start_without_resources(stack)
    without_mount_namespaces_pods_are_simulated_and_the_output_says_so(stack)
    for key in REFUSED:
        a_change_that_eks_cannot_make_is_refused_before_the_first_resource(stack, key)
    for name in GROUPS:
        changed_settings_take_effect(stack, name)
        # A setting keeps its value in the next groups, except these. So one more preview at the end shows the others.
        if name in ("in place", "no waiting, protected data"):
            run(stack, "pulumi", "preview", "--expect-no-changes")
    settings_of_the_sandbox_itself_take_effect(stack)
    destroy_leaves_only_the_logs(stack, empty)


def start_without_resources(stack: Checkout) -> dict[str, list[str]]:
    """An invalid setting stops the program after the emulated AWS has started. The inventory of the empty account."""
    write(stack, {**START, "trainers": 0})
    assert "trainers: 0" in stack.refused("up", under=WITHOUT_MOUNT_NAMESPACES)
    empty = inventory(stack.client)
    iam = stack.client("iam")
    for role in ("admin", "ci"):
        iam.create_role(RoleName=role, AssumeRolePolicyDocument='{"Version":"2012-10-17"}')
    iam.create_user(UserName="deployer")
    anything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.create_policy(PolicyName="limit", PolicyDocument=json.dumps(anything))
    return empty


def without_mount_namespaces_pods_are_simulated_and_the_output_says_so(stack: Checkout) -> None:
    write(stack, {"trainers": 3})
    shown = run(stack, "up")
    assert "this machine does not isolate them" in shown
    assert "Pods were simulated: nothing was trained" in shown
    assert stack.job("paddle-cluster-job")["status"]["succeeded"] == 3
    assert stack.client("s3").list_objects_v2(Bucket=stack.output("bucket"))["KeyCount"] == 0


def a_change_that_eks_cannot_make_is_refused_before_the_first_resource(stack: Checkout, key: str) -> None:
    file = stack.project / "Pulumi.local.yaml"
    settings, before = file.read_text(), inventory(stack.client)
    write(stack, {key: REFUSED[key]})
    # `python -m sandbox up` would skip the preview.
    refused = stack.refused("pulumi", "up", "--yes", under=WITHOUT_MOUNT_NAMESPACES)
    file.write_text(settings)
    assert f"{key}: " in refused
    assert "EKS cannot change them. Write the former value" in refused
    assert inventory(stack.client) == before


def changed_settings_take_effect(stack: Checkout, group: str) -> None:
    changes, data = GROUPS[group], data_of(stack)
    already = [change.key for change in changes if _holds(change, stack)]
    assert already == [], "these effects do not show the change"
    write(stack, {**RESET.get(group, {}), **{change.key: change.value for change in changes}})
    run(stack, "up")
    assert {change.key: change.effect(stack) for change in changes} == {c.key: c.expected for c in changes}
    assert data_of(stack) == data, "the data is lost"


def _holds(change: Change, stack: Checkout) -> bool:
    try:
        return change.effect(stack) == change.expected
    except (LookupError, StopIteration, ValueError):
        return False


def settings_of_the_sandbox_itself_take_effect(stack: Checkout) -> None:
    context = yaml.safe_load((stack.sandbox / "stacks/local/kubernetes/kubeconfig").read_text())
    context["contexts"][0]["name"] = context["current-context"] = "lab"
    (stack.project / "lab.yaml").write_text(yaml.safe_dump(context))
    assert [change.key for change in SET_BY_THE_SANDBOX if _holds(change, stack)] == []
    changes = {change.key: change.value for change in SET_BY_THE_SANDBOX}
    file = stack.project / "changed.yaml"
    shutil.copy(stack.sandbox / COPY, file)
    write(stack, {**changes, "retainData": False}, file)
    for command in (("up", "--yes", "--skip-preview"), ("preview", "--expect-no-changes")):
        done = stack.engine(file, *command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [change.key for change in SET_BY_THE_SANDBOX if not _holds(change, stack)] == []


def destroy_leaves_only_the_logs(stack: Checkout, empty: dict[str, list[str]]) -> None:
    write(stack, {"retainData": False})
    if protected(stack):
        run(stack, "up")
    run(stack, "pulumi", "destroy", "--yes", "--skip-preview")
    left = {kind: sorted(set(ids) - set(empty[kind])) for kind, ids in inventory(stack.client).items()}
    assert {kind: ids for kind, ids in left.items() if ids} == {
        "log groups": ["/aws/eks/lab/cluster", "/aws/eks/paddle-cluster/cluster"],
        "policies": [BOUNDARY],
        "roles": ["admin", "ci"],
    }
