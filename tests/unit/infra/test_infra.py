"""The AWS resources for given settings, and the functions that build them."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.access import has_entry
from infra.kubeconfig import kubeconfig
from infra.pause import needs_workers
from infra.workers import ami_type, group_sizes
from settings.aws_facts import Architecture, InstanceType
from settings.credentials import CliCredentials, cli_credentials, not_for_cli
from settings.schema import read
from settings.subnets import LARGEST, MAX_ZONES, SMALLEST, cidr_plan
from tests.unit.conftest import RunStack
from tests.unit.program import SUBNETS, Aws, Graph


@pytest.mark.parametrize("prefix", [LARGEST, 19, SMALLEST])
def test_subnets_are_in_the_vpc_and_do_not_overlap(prefix: int) -> None:
    vpc = ipaddress.IPv4Network(f"10.0.0.0/{prefix}")
    plan = cidr_plan(str(vpc), MAX_ZONES)
    networks = [ipaddress.IPv4Network(cidr) for cidr in (*plan.workers, *plan.public)]
    assert len(networks) == 2 * MAX_ZONES
    assert all(network.subnet_of(vpc) and network.prefixlen <= 28 for network in networks)
    assert not any(a.overlaps(b) for i, a in enumerate(networks) for b in networks[:i])


def test_adding_a_zone_changes_no_subnet() -> None:
    two, three = cidr_plan("10.0.0.0/16", 2), cidr_plan("10.0.0.0/16", 3)
    assert two.workers == ("10.0.0.0/19", "10.0.32.0/19")
    assert (three.workers[:2], three.public[:2]) == (two.workers, two.public)


@pytest.mark.parametrize("driver", ["nfs", "efsCsi"])
def test_a_mount_target_in_every_worker_subnet(program: RunStack, driver: str) -> None:
    zones = ["us-west-2c", "us-west-2a", "us-west-2b"]
    graph = program({"storage": {"driver": driver}, "natGateways": "single", "availabilityZones": zones})
    assert [graph.named(f"subnet-{i}").inputs["availabilityZone"] for i in range(3)] == zones
    mounts = graph.all("aws:efs/mountTarget:MountTarget")
    assert {m.inputs["subnetId"] for m in mounts} == {f"subnet-{i}-id" for i in range(3)}
    assert all(m.inputs["securityGroups"] == ["efs-group-id"] for m in mounts)


def test_a_paused_stack_has_no_workers_and_creates_nothing_that_needs_them(program: RunStack) -> None:
    changes = {"workers": {"count": 0}, "storage": {"driver": "efsCsi"}}
    paused, running = program(changes, aws=Aws(subnets=SUBNETS)), program({"storage": {"driver": "efsCsi"}})
    pulls_image = {urn for urn in running.resources if "image-pull" in urn}
    assert set(paused.resources) == set(running.resources) - pulls_image
    assert paused.named("workers").inputs["scalingConfig"] == {"desiredSize": 0, "minSize": 0, "maxSize": 1}
    jobs = {job.name for job in paused.all("kubernetes:batch/v1:Job")}
    assert not [r.name for r in running.resources.values() if list(r.options.hooks.before_create)]

    def hooked(kind: str) -> set[str]:
        return {r.name for r in paused.resources.values() if list(getattr(r.options.hooks, kind))}

    # The cluster and the key have hooks of their own.
    assert hooked("before_update") - {"eks", "encryption"} == jobs
    assert hooked("before_create") == jobs | {"coredns", "efs-csi-driver"}
    assert hooked("before_delete") == set(), "destroy would have to run the program"
    # Their new versions would not become active without nodes.
    waiting = {r.name for r in paused.all("aws:eks/addon:Addon") if r.options.ignoreChanges == ["addonVersion"]}
    assert waiting == {"coredns", "efs-csi-driver"}


@pytest.mark.parametrize(
    ("conditions", "rejected"),
    [
        ([], True),
        ([{"type": "Complete", "status": "True"}], True),
        ([{"type": "Failed", "status": "False"}], True),
        ([{"type": "Failed", "status": "True"}], False),
    ],
)
def test_only_a_failed_job_needs_no_workers(conditions: list[dict[str, str]], rejected: bool) -> None:
    job = {"status": {"conditions": conditions}}
    args = pulumi.ResourceHookArgs("urn", "id", "paddle-data", "kubernetes:batch/v1:Job", old_outputs=job)
    message = (
        "workers.count: 0 pauses the stack, and paddle-data needs workers, because it is new, has changed or has not "
        "finished. Write at least as many workers as trainers. Write 0 after the training to pause the stack."
    )
    assert str(needs_workers(args) or "") == (message if rejected else "")


def test_large_clusters_have_several_node_groups() -> None:
    assert [group_sizes(count) for count in (0, 1, 450, 451, 1000)] == [[0], [1], [450], [226, 225], [334, 333, 333]]


def test_a_running_cluster_with_self_managed_add_ons_is_not_replaced(dev: Graph) -> None:
    assert "bootstrapSelfManagedAddons" in dev.named("eks").options.ignoreChanges


def test_ami_type() -> None:
    kinds: list[tuple[Architecture, int]] = [("x86_64", 0), ("x86_64", 8), ("arm64", 0), ("arm64", 1)]
    types = [ami_type(InstanceType(architecture, gpus, vcpus=2, memory_mib=8192)) for architecture, gpus in kinds]
    assert types == [
        f"AL2023_{kind}" for kind in ("x86_64_STANDARD", "x86_64_NVIDIA", "ARM_64_STANDARD", "ARM_64_NVIDIA")
    ]


def test_the_kubeconfig_gets_tokens_from_the_aws_cli() -> None:
    config = yaml.safe_load(kubeconfig("mine", "https://x", "Q0E=", "eu-west-1", CliCredentials()))
    assert config["clusters"][0]["cluster"] == {"server": "https://x", "certificate-authority-data": "Q0E="}
    user = config["users"][0]["user"]["exec"]
    assert (user["apiVersion"], user["command"]) == ("client.authentication.k8s.io/v1beta1", "aws")
    assert user["interactiveMode"] == "Never", "the engine cannot answer questions"
    assert " ".join(user["args"]) == "--region eu-west-1 eks get-token --cluster-name mine --output json"
    assert config["current-context"] == config["contexts"][0]["name"] == "mine"


def test_kubectl_uses_the_credentials_of_the_stack(program: RunStack) -> None:
    role = {"roleArn": "arn:aws:iam::123456789012:role/lab", "sessionName": "up"}
    options = {"aws:profile": "lab", "aws:assumeRoles": [role], "aws:sharedConfigFiles": ["/etc/aws.ini"]}
    graph = program(options)
    (user,) = yaml.safe_load(graph.named("kubernetes").inputs["kubeconfig"])["users"]
    assert user["user"]["exec"]["args"] == [
        *("--profile", "lab", "--region", "us-west-2", "eks", "get-token", "--cluster-name", "paddle-cluster"),
        *("--output", "json", "--role-arn", role["roleArn"], "--session-name", "up"),
    ]
    assert user["user"]["exec"]["env"] == [{"name": "AWS_CONFIG_FILE", "value": "/etc/aws.ini"}]
    assert graph.outputs["nextSteps"]["useCluster"] == (
        "AWS_CONFIG_FILE=/etc/aws.ini aws --profile lab eks update-kubeconfig --region us-west-2 --name paddle-cluster "
        f"--role-arn {role['roleArn']}"
    )


@pytest.mark.parametrize(
    ("aws", "expected"),
    [
        ({"profile": "lab", "assumeRoles": [{"roleArn": "r"}]}, []),
        ({"accessKey": "AKIA", "secretKey": "x"}, ["accessKey", "secretKey"]),
        ({"assumeRoles": [{"roleArn": "a"}, {"roleArn": "b"}]}, ["assumeRoles"]),
        ({"assumeRoles": [{"roleArn": "a", "externalId": "x"}]}, ["assumeRoles"]),
        ({"sharedConfigFiles": ["a", "b"]}, ["sharedConfigFiles"]),
        ({"assumeRoleWithWebIdentity": {"roleArn": "a"}}, ["assumeRoleWithWebIdentity"]),
    ],
)
def test_credentials_that_kubectl_cannot_use(aws: dict[str, Any], expected: list[str]) -> None:
    assert list(not_for_cli(aws)) == expected
    assert cli_credentials(aws)


def test_static_keys_need_a_kubeconfig_which_replaces_the_one_of_eks(program: RunStack, tmp_path: Path) -> None:
    keys = {"aws:accessKey": "AKIA", "aws:secretKey": "x"}
    with pytest.raises(pulumi.RunError, match=r'aws:accessKey: "\(secret\)" is not passed to `aws eks get-token`'):
        program(keys)
    text = yaml.safe_dump({"clusters": [{"name": "mine"}], "current-context": "mine"})
    (tmp_path / "config").write_text(text)
    graph = program({**keys, "kubeconfig": str(tmp_path / "config")})
    assert graph.named("kubernetes").inputs["kubeconfig"] == text
    assert graph.secret_outputs["kubeconfig"] == text


def test_control_plane_logs_stay_after_destroy(program: RunStack) -> None:
    graph = program({"controlPlaneLogs": ["audit"]})
    logs = graph.named("cluster-logs")
    assert logs.options.retainOnDelete
    assert graph.leads(graph.named("eks"), logs)


def test_a_foreign_access_entry_is_a_problem_of_the_setting_that_names_it() -> None:
    settings, _ = read({"admins": ["arn:aws:iam::123456789012:role/a"]})
    named = [has_entry(f"arn:aws:iam::123456789012:role/{name}", settings).key for name in "ab"]
    assert named == ["admins", "deployer"]


@pytest.mark.parametrize(("existing", "refused"), [("cluster", True), ("cluster-2", False)])
def test_a_log_group_with_the_same_name_is_refused_and_can_be_imported(
    program: RunStack, existing: str, refused: bool
) -> None:
    aws = Aws(log_groups=[f"/aws/eks/paddle-cluster/{existing}"])
    group = program({"controlPlaneLogs": ["audit"]}, aws=aws).named("cluster-logs")
    assert bool(list(group.options.hooks.before_create)) is refused
    # `pulumi import` creates it without a parent.
    (alias,) = group.options.aliases
    assert alias.spec.noParent


def test_workers_that_get_or_lose_nat_are_replaced(program: RunStack) -> None:
    """A running worker keeps its public address, or its lack of one."""

    def trigger(nat: str) -> str:
        return str(program({"natGateways": nat}).named("workers").options.replacement_trigger.string_value)

    assert [trigger(nat) for nat in ("none", "single", "perZone")] == ["public", "private", "private"]


def test_the_provider_gets_the_aws_settings_of_the_stack(program: RunStack) -> None:
    options = {
        "aws:profile": "lab",
        "aws:skipRequestingAccountId": True,
        "aws:endpoints": [{"s3": "http://127.0.0.1:1"}],
    }
    inputs = program(options).named("aws").inputs
    decoded: dict[str, Any] = {key: inputs[key] for key in ("profile", "region")}
    assert decoded == {"profile": "lab", "region": "us-west-2"}
    assert json.loads(inputs["skipRequestingAccountId"]) is True
    assert json.loads(inputs["endpoints"]) == [{"s3": "http://127.0.0.1:1"}]
