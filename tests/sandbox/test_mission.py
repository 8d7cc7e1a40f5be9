"""The whole program with the real engine: create everything, train, export, change settings, destroy.

Each test can run alone. The first one that needs the stack creates it. The tests that change it come last.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sandbox.engine.pulumi_cli import PulumiCli
from tests.sandbox import listening
from tests.sandbox.checkout import JOB, Checkout, changes, eventually
from tests.sandbox.inventory import added, inventory
from tools.kubernetes_client import NODE, PERSISTENT_VOLUME, POD, parse_time

PROCESSES = ("aws", "workers-local", "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
ALL_JOBS = ("paddle-data", "paddle-cluster-job", "paddle-export")
# The AWS resources of the `local` stack: two zones, no NAT gateway, one cluster.
CREATED = {
    "vpcs": 1,
    "subnets": 2,
    "route tables": 2,  # the main one of the VPC, which AWS creates itself, and the one of the program
    "gateways": 1,
    "endpoints": 1,
    "launch templates": 1,
    "clusters": 1,
    "node groups": 1,
    "file systems": 1,
    "mount targets": 2,
    "keys": 1,
    "aliases": 1,
    "roles": 3,
    "identity providers": 1,
    "buckets": 1,
    "zones": 1,
    "records": 4,  # SOA, NS, api and efs
}


@dataclass(frozen=True)
class FirstUp:
    """What the first `up` printed and created."""

    output: str
    created: dict[str, int]


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = Checkout.make(tmp_path_factory.mktemp("mission"))
    yield checkout
    checkout.run("down")


@pytest.fixture(scope="module")
def empty(checkout: Checkout) -> dict[str, list[str]]:
    """The resources of the account before the first `up`. An invalid setting stops the program after the start."""
    # The sandbox reads the number of workers itself, before the program does.
    checkout.set(trainers=0, workers={"count": "many"}, availabilityZones=3, pserver=4)
    refused = checkout.run("up")
    assert refused.returncode == 1
    for problem in ("trainers: 0", 'workers.count: "many"', "availabilityZones: 3", "pserver: 4"):
        assert problem in refused.stdout
    assert "Traceback" not in refused.stdout
    checkout.reset_settings()
    return inventory(checkout.client)


@pytest.fixture(scope="module")
def first_up(checkout: Checkout, empty: dict[str, list[str]]) -> FirstUp:
    output = checkout.up()
    return FirstUp(output, added(empty, inventory(checkout.client)))


@pytest.fixture
def stack(checkout: Checkout, first_up: FirstUp) -> None:
    """The stack is up, with any settings."""
    if not checkout.is_up:
        checkout.up()


@pytest.fixture
def default_stack(checkout: Checkout, first_up: FirstUp) -> None:
    """The stack is up with the settings of the first `up`."""
    if checkout.reset_settings() or not checkout.is_up:
        checkout.up()


def took_place(checkout: Checkout, job: str) -> tuple[float, float]:
    """When a Job started and when it was complete."""
    status = checkout.job(job)["status"]
    assert status.get("succeeded"), status
    return parse_time(status["startTime"]), parse_time(status["completionTime"])


@pytest.mark.usefixtures("default_stack")
def test_up_creates_every_resource_once(checkout: Checkout, first_up: FirstUp) -> None:
    assert {kind: first_up.created.get(kind) for kind in CREATED} == CREATED
    assert checkout.output("model") in first_up.output


@pytest.mark.usefixtures("default_stack")
def test_jobs_run_in_order_on_three_workers(checkout: Checkout) -> None:
    data, training, export = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job", "export"))
    assert data[1] <= training[0] <= training[1] <= export[0]
    trainers = checkout.api.list(POD, "default", labelSelector="job-name=paddle-cluster-job")
    assert sorted(pod["spec"]["nodeName"] for pod in trainers) == ["node-1", "node-2", "node-3"]
    volume = checkout.api.get(PERSISTENT_VOLUME, "", "efsvol")
    assert volume["spec"]["nfs"]["server"] == checkout.output("fileSystemName")


@pytest.mark.usefixtures("default_stack")
def test_each_worker_pulls_the_image_before_the_data_is_ready(checkout: Checkout) -> None:
    (pull,) = [job for job in checkout.api.list(JOB, "default") if "image-pull" in job["metadata"]["name"]]
    assert parse_time(pull["metadata"]["creationTimestamp"]) < took_place(checkout, "paddle-data")[1]
    selector = f"job-name={pull['metadata']['name']}"

    def workers() -> list[str]:
        return sorted(
            pod["spec"].get("nodeName", "") for pod in checkout.api.list(POD, "default", labelSelector=selector)
        )

    eventually(lambda: workers() == ["node-1", "node-2", "node-3"], "not one pod on each worker")


@pytest.mark.usefixtures("default_stack")
def test_the_bucket_contains_a_model_whose_loss_went_down(checkout: Checkout) -> None:
    bucket, prefix = re.fullmatch(r"s3://([^/]+)/(.+)", checkout.output("model")).groups()  # type: ignore[union-attr]
    s3 = checkout.client("s3")
    newest = s3.get_object(Bucket=bucket, Key=f"{prefix}newest-checkpoint")["Body"].read().decode().strip()
    assert newest == f"s3://{bucket}/{prefix}pass-00001/"
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}pass-00001/")["Contents"]
    assert {Path(each["Key"]).name for each in listed} >= {"model.pdparams", "done"}
    log = s3.get_object(Bucket=bucket, Key="paddle-cluster-job/output/node_0/train.log")["Body"].read().decode()
    losses = [float(loss) for loss in re.findall(r"loss[=: ]+([0-9.]+)", log)]
    assert losses[-1] < losses[0]
    page = s3.get_object(Bucket=bucket, Key="paddle-cluster-job/output/report.html")["Body"].read().decode()
    assert all(
        words in page for words in ("Finished.", "Checkpoint 2 of 2", "accuracy by checkpoint", "records per second")
    )


@pytest.mark.usefixtures("default_stack")
def test_the_summary_shows_the_numbers_of_the_model(first_up: FirstUp) -> None:
    assert re.search(r"^  loss: 0\.\d+$", first_up.output, re.MULTILINE), first_up.output
    assert re.search(r"^  accuracy: [01]\.\d+$", first_up.output, re.MULTILINE), first_up.output


@pytest.mark.usefixtures("default_stack")
def test_the_summary_shows_the_outputs_and_the_changes_of_the_engine(checkout: Checkout) -> None:
    files = PulumiCli(checkout.sandbox, "local", Path(), Path())
    printed = checkout.run("pulumi", "stack", "output", "--json").stdout
    assert files.stack_outputs() == json.loads(printed)
    history = json.loads(checkout.run("pulumi", "stack", "history", "--json", "--page-size", "1").stdout)
    assert files.last_changes() == history[0]["resourceChanges"]


@pytest.mark.usefixtures("default_stack")
def test_the_commands_of_the_summary_work(checkout: Checkout, first_up: FirstUp) -> None:
    commands = re.findall(r"^    (.* -m sandbox run .*)$", first_up.output, re.MULTILINE)
    started = {command.rpartition(" -m sandbox run ")[2].partition(" ")[0] for command in commands}
    assert (len(commands), started) == (3, {"kubectl", "sh"})
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=checkout.project, env=checkout.environment, capture_output=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert (checkout.project / "model/model.pdparams").stat().st_size > 0


@pytest.mark.usefixtures("stack")
def test_config_set_changes_the_stack_file(checkout: Checkout) -> None:
    file = checkout.project / "Pulumi.local.yaml"
    before = file.read_text()
    try:
        assert checkout.run("pulumi", "config", "set", "workers.count", "4").returncode == 0
        changed = yaml.safe_load(file.read_text())["config"]
        assert changed == {**yaml.safe_load(before)["config"], "paddle-on-aws:workers.count": "4"}
        assert before.splitlines()[0] in file.read_text(), "the comments are lost"
        assert checkout.run("pulumi", "config", "get", "workers.count").stdout.strip() == "4"
        # Pulumi adds the default of 3 to the map `workers`.
        assert re.search(r"desiredSize *: 3 => 4", checkout.run("pulumi", "preview", "--diff").stdout)
    finally:
        file.write_text(before)


@pytest.mark.usefixtures("default_stack")
def test_a_second_up_changes_nothing_and_restarts_nothing(checkout: Checkout) -> None:
    before = {name: checkout.pid(name) for name in PROCESSES}
    assert "nothing changed" in checkout.up()
    assert {name: checkout.pid(name) for name in PROCESSES} == before


@pytest.mark.usefixtures("default_stack")
def test_a_refresh_finds_no_changes_and_leads_to_none(checkout: Checkout) -> None:
    for command in (["refresh", "--yes", "--skip-preview", "--expect-no-changes"], ["preview", "--expect-no-changes"]):
        done = checkout.run("pulumi", *command)
        assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("default_stack")
def test_status_lists_the_processes(checkout: Checkout) -> None:
    said = checkout.run("status").stdout
    for name in PROCESSES:
        assert re.search(rf"^{name} +(-|local) +{checkout.pid(name)} ", said, re.MULTILINE), said


@pytest.mark.usefixtures("default_stack")
def test_all_processes_listen_only_on_the_loopback_interface(checkout: Checkout) -> None:
    addresses = listening.by(checkout.processes())
    assert addresses
    assert listening.beyond_loopback(addresses) == []


@pytest.mark.usefixtures("default_stack")
def test_up_with_refresh_repairs_changes_made_outside_of_pulumi(checkout: Checkout) -> None:
    ec2 = checkout.client("ec2")
    rule = next(id_ for urn, id_ in checkout.ids("aws:vpc/securityGroupIngressRule").items() if "efs" in urn)
    (group,) = (
        each["GroupId"]
        for each in ec2.describe_security_groups()["SecurityGroups"]
        if each["GroupName"] == "paddle-efs"
    )
    ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rule])
    checkout.api.request("DELETE", JOB.path("default", "paddle-export"), {"propagationPolicy": "Background"})

    seen = checkout.run("pulumi", "preview", "--refresh", "--expect-no-changes")
    assert seen.returncode != 0, "the preview did not show the change"

    done = checkout.run("pulumi", "up", "--refresh", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    assert [each["FromPort"] for each in rules if not each["IsEgress"]] == [2049]
    took_place(checkout, "paddle-export")


@pytest.mark.usefixtures("default_stack")
def test_another_number_of_trainers_repeats_the_jobs_and_keeps_the_aws_resources(checkout: Checkout) -> None:
    aws, jobs = checkout.ids("aws:"), {name: checkout.job(name)["metadata"]["uid"] for name in ALL_JOBS}
    checkout.set(trainers=2)
    checkout.up()
    assert checkout.ids("aws:") == aws
    assert all(checkout.job(name)["metadata"]["uid"] != uid for name, uid in jobs.items())
    data, training = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job"))
    assert data[1] <= training[0]
    assert checkout.job("paddle-cluster-job")["spec"]["completions"] == 2


@pytest.mark.usefixtures("stack")
def test_one_more_worker_updates_the_node_group_in_place(checkout: Checkout) -> None:
    eks = checkout.client("eks")

    def ids() -> dict[str, str]:
        # The fourth worker needs the image too.
        return {urn: id_ for urn, id_ in checkout.ids("").items() if "image-pull" not in urn}

    before = ids()
    checkout.set(workers={"count": 4})
    said = checkout.up()
    assert ids() == before
    assert changes(said) == {"updated": 1, "replaced": 2}
    (group,) = eks.list_nodegroups(clusterName="paddle-cluster")["nodegroups"]
    sizes = eks.describe_nodegroup(clusterName="paddle-cluster", nodegroupName=group)["nodegroup"]["scalingConfig"]
    assert sizes["desiredSize"] == 4
    assert len(checkout.api.list(NODE)) == 4


@pytest.mark.usefixtures("stack")
def test_destroy_deletes_everything(checkout: Checkout, empty: dict[str, list[str]]) -> None:
    done = checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout
    assert inventory(checkout.client) == empty
    for kind in (POD, JOB, PERSISTENT_VOLUME):
        assert checkout.api.list(kind) == []


@pytest.mark.usefixtures("empty")
def test_down_stops_all_processes(checkout: Checkout) -> None:
    ports = listening.by(checkout.processes())
    assert ports
    done = checkout.run("down")
    assert done.returncode == 0, done.stdout
    assert checkout.processes() == {}
    assert str(checkout.sandbox) not in Path("/proc/self/mounts").read_text()
    assert not checkout.sandbox.exists()
    assert ports.isdisjoint(listening.everybody())
