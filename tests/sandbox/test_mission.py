"""The whole program with the real engine: create everything, train, export, change settings, destroy."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sandbox.engine.pulumi_cli import PulumiCli
from tests.sandbox import listening
from tests.sandbox.checkout import JOB, Checkout, eventually
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


Inventory = dict[str, list[str]]


@pytest.fixture
def checkouts(cached: None, tmp_path: Path) -> Iterator[list[Checkout]]:
    made = [Checkout.make(tmp_path / name) for name in ("mission", "other")]
    yield made
    for each in made:
        each.run("down")


def test_mission(checkouts: list[Checkout]) -> None:
    checkout, other = checkouts
    empty = invalid_settings_are_refused_before_the_first_resource(checkout)
    output = up_creates_every_resource_once(checkout, empty)
    jobs_run_in_order_on_three_workers(checkout)
    each_worker_pulls_the_image_before_the_data_is_ready(checkout)
    the_bucket_contains_a_model_whose_loss_went_down(checkout)
    the_summary_shows_the_numbers_of_the_model(output)
    the_summary_shows_the_outputs_and_the_changes_of_the_engine(checkout)
    the_commands_of_the_summary_work(checkout, output)
    status_lists_the_processes(checkout)
    all_processes_listen_only_on_the_loopback_interface(checkout)
    config_set_changes_the_stack_file(checkout)
    a_refresh_and_a_second_up_change_nothing_and_restart_nothing(checkout)
    up_with_refresh_repairs_changes_made_outside_of_pulumi(checkout)
    other_trainers_and_workers_repeat_the_jobs_and_keep_the_aws_resources(checkout)
    destroy_deletes_everything(checkout, empty)
    down_stops_all_processes_of_this_checkout(checkout, other)


def invalid_settings_are_refused_before_the_first_resource(checkout: Checkout) -> Inventory:
    """The resources of the empty account. The sandbox reads the number of workers itself, before the program does."""
    file = checkout.project / "Pulumi.local.yaml"
    settings = file.read_text()
    checkout.set(trainers=0, workers={"count": "many"}, availabilityZones=3, pserver=4)
    refused = checkout.refused("up")
    for problem in ("trainers: 0", 'workers.count: "many"', "availabilityZones: 3", "pserver: 4"):
        assert problem in refused
    file.write_text(settings)
    return inventory(checkout.client)


def up_creates_every_resource_once(checkout: Checkout, empty: Inventory) -> str:
    output = checkout.up()
    created = added(empty, inventory(checkout.client))
    assert {kind: created.get(kind) for kind in CREATED} == CREATED
    assert checkout.output("model") in output
    return output


def took_place(checkout: Checkout, job: str) -> tuple[float, float]:
    """When a Job started and when it was complete."""
    status = checkout.job(job)["status"]
    assert status.get("succeeded"), status
    return parse_time(status["startTime"]), parse_time(status["completionTime"])


def jobs_run_in_order_on_three_workers(checkout: Checkout) -> None:
    data, training, export = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job", "export"))
    assert data[1] <= training[0] <= training[1] <= export[0]
    trainers = checkout.api.list(POD, "default", labelSelector="job-name=paddle-cluster-job")
    assert sorted(pod["spec"]["nodeName"] for pod in trainers) == ["node-1", "node-2", "node-3"]
    volume = checkout.api.get(PERSISTENT_VOLUME, "", "efsvol")
    assert volume["spec"]["nfs"]["server"] == checkout.output("fileSystemName")


def each_worker_pulls_the_image_before_the_data_is_ready(checkout: Checkout) -> None:
    (pull,) = [job for job in checkout.api.list(JOB, "default") if "image-pull" in job["metadata"]["name"]]
    assert parse_time(pull["metadata"]["creationTimestamp"]) < took_place(checkout, "paddle-data")[1]
    selector = f"job-name={pull['metadata']['name']}"

    def workers() -> list[str]:
        return sorted(
            pod["spec"].get("nodeName", "") for pod in checkout.api.list(POD, "default", labelSelector=selector)
        )

    eventually(lambda: workers() == ["node-1", "node-2", "node-3"], "not one pod on each worker")


def the_bucket_contains_a_model_whose_loss_went_down(checkout: Checkout) -> None:
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


def the_summary_shows_the_numbers_of_the_model(output: str) -> None:
    assert re.search(r"^  loss: 0\.\d+$", output, re.MULTILINE), output
    assert re.search(r"^  accuracy: [01]\.\d+$", output, re.MULTILINE), output


def the_summary_shows_the_outputs_and_the_changes_of_the_engine(checkout: Checkout) -> None:
    files = PulumiCli(checkout.sandbox, "local", Path(), Path())
    printed = checkout.run("pulumi", "stack", "output", "--json").stdout
    assert files.stack_outputs() == json.loads(printed)
    history = json.loads(checkout.run("pulumi", "stack", "history", "--json", "--page-size", "1").stdout)
    assert files.last_changes() == history[0]["resourceChanges"]


def the_commands_of_the_summary_work(checkout: Checkout, output: str) -> None:
    commands = re.findall(r"^    (.* -m sandbox run .*)$", output, re.MULTILINE)
    started = {command.rpartition(" -m sandbox run ")[2].partition(" ")[0] for command in commands}
    assert (len(commands), started) == (3, {"kubectl", "sh"})
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=checkout.project, env=checkout.environment, capture_output=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert (checkout.project / "model/model.pdparams").stat().st_size > 0


def config_set_changes_the_stack_file(checkout: Checkout) -> None:
    file = checkout.project / "Pulumi.local.yaml"
    before = file.read_text()
    checkout.succeed("pulumi", "config", "set", "workers.count", "4")
    changed = yaml.safe_load(file.read_text())["config"]
    assert changed == {**yaml.safe_load(before)["config"], "paddle-on-aws:workers.count": "4"}
    assert before.splitlines()[0] in file.read_text(), "the comments are lost"
    assert checkout.run("pulumi", "config", "get", "workers.count").stdout.strip() == "4"
    # Pulumi adds the default of 3 to the map `workers`.
    assert re.search(r"desiredSize *: 3 => 4", checkout.run("pulumi", "preview", "--diff").stdout)
    file.write_text(before)


def status_lists_the_processes(checkout: Checkout) -> None:
    said = checkout.run("status").stdout
    for name in PROCESSES:
        assert re.search(rf"^{name} +(-|local) +{checkout.pid(name)} ", said, re.MULTILINE), said


def all_processes_listen_only_on_the_loopback_interface(checkout: Checkout) -> None:
    addresses = listening.by(checkout.processes())
    assert addresses
    assert listening.beyond_loopback(addresses) == []


def a_refresh_and_a_second_up_change_nothing_and_restart_nothing(checkout: Checkout) -> None:
    before = {name: checkout.pid(name) for name in PROCESSES}
    checkout.succeed("pulumi", "refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert "nothing changed" in checkout.up()
    assert {name: checkout.pid(name) for name in PROCESSES} == before


def up_with_refresh_repairs_changes_made_outside_of_pulumi(checkout: Checkout) -> None:
    ec2 = checkout.client("ec2")
    rule = next(id_ for urn, id_ in checkout.ids("aws:vpc/securityGroupIngressRule").items() if "efs" in urn)
    (group,) = (
        each["GroupId"]
        for each in ec2.describe_security_groups()["SecurityGroups"]
        if each["GroupName"] == "paddle-efs"
    )
    ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rule])
    checkout.api.request("DELETE", JOB.path("default", "paddle-export"), {"propagationPolicy": "Background"})

    checkout.succeed("pulumi", "up", "--refresh", "--yes", "--skip-preview")
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    assert [each["FromPort"] for each in rules if not each["IsEgress"]] == [2049]
    took_place(checkout, "paddle-export")


def other_trainers_and_workers_repeat_the_jobs_and_keep_the_aws_resources(checkout: Checkout) -> None:
    aws, jobs = checkout.ids("aws:"), {name: checkout.job(name)["metadata"]["uid"] for name in ALL_JOBS}
    checkout.set(trainers=2, workers={"count": 4})
    checkout.up()
    assert checkout.ids("aws:") == aws
    assert all(checkout.job(name)["metadata"]["uid"] != uid for name, uid in jobs.items())
    data, training = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job"))
    assert data[1] <= training[0]
    assert checkout.job("paddle-cluster-job")["spec"]["completions"] == 2
    assert len(checkout.api.list(NODE)) == 4


def destroy_deletes_everything(checkout: Checkout, empty: Inventory) -> None:
    checkout.succeed("pulumi", "destroy", "--yes", "--skip-preview")
    assert inventory(checkout.client) == empty
    for kind in (POD, JOB, PERSISTENT_VOLUME):
        assert checkout.api.list(kind) == []


def down_stops_all_processes_of_this_checkout(checkout: Checkout, other: Checkout) -> None:
    other.set(trainers=0)
    other.refused("up")
    ports, theirs = listening.by(checkout.processes()), other.processes()
    assert ports
    assert theirs
    checkout.succeed("down")
    assert checkout.processes() == {}
    assert str(checkout.sandbox) not in Path("/proc/self/mounts").read_text()
    assert not checkout.sandbox.exists()
    assert ports.isdisjoint(listening.everybody())
    assert other.processes() == theirs
