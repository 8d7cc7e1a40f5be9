"""The mission on the real engine, from nothing to nothing; each test goes on where the last one ended."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cluster.api import NODE, PERSISTENT_VOLUME, POD, parse_time
from tests.sandbox import listening
from tests.sandbox.checkout import JOB, Checkout, changes
from tests.sandbox.inventory import added, inventory

# What the `local` stack makes of AWS: two zones, no NAT, one cluster.
MADE = {
    "vpcs": 1,
    "subnets": 2,
    "route tables": 2,  # the VPC's main one, which AWS makes by itself, and ours
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
    "log groups": 1,
    "buckets": 1,
    "zones": 1,
    "records": 4,  # SOA, NS, api and efs
}


@pytest.fixture(scope="module")
def checkout(cached: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path_factory.mktemp("mission"))
    yield made
    made.run("down")


@pytest.fixture(scope="module")
def empty(checkout: Checkout) -> dict[str, list[str]]:
    """What AWS holds before anything was made: a refused setting stops the program after all was started."""
    checkout.set(trainers=0)
    refused = checkout.run("up")
    assert refused.returncode == 1
    assert "trainers: 0" in refused.stdout
    checkout.set(trainers=3)
    return inventory(checkout.client)


def took_place(checkout: Checkout, job: str) -> tuple[float, float]:
    """When a Job began and when it was complete."""
    status = checkout.job(job)["status"]
    assert status.get("succeeded"), status
    return parse_time(status["startTime"]), parse_time(status["completionTime"])


def test_up_makes_everything_once(checkout: Checkout, empty: dict[str, list[str]]) -> None:
    said = checkout.up()
    made = added(empty, inventory(checkout.client))
    assert {kind: made.get(kind) for kind in MADE} == MADE
    assert "look around" in said
    assert checkout.output("model") in said


def test_workers_can_be_reached_by_whom_they_must(checkout: Checkout) -> None:
    ec2 = checkout.client("ec2")
    (vpc,) = checkout.ids("aws:ec2/vpc:").values()
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    ours = [group for group in groups if not group["GroupName"].startswith(("default", "eks-cluster-sg-"))]
    names = {group["GroupId"]: group["GroupName"] for group in ours}
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": list(names)}])
    found = {
        (
            names[rule["GroupId"]],
            "out" if rule["IsEgress"] else "in",
            rule["IpProtocol"],
            rule.get("FromPort", -1),
            names.get(rule.get("ReferencedGroupInfo", {}).get("GroupId"), rule.get("CidrIpv4")),
        )
        for rule in rules["SecurityGroupRules"]
    }
    workers, control_plane = "paddle-cluster-sg-worker", "paddle-cluster-sg-control-plane"
    assert found == {
        ("paddle-efs", "in", "tcp", 2049, workers),
        (workers, "in", "-1", -1, workers),
        (workers, "in", "tcp", 443, control_plane),
        (workers, "in", "tcp", 10250, control_plane),
        (workers, "out", "-1", -1, "0.0.0.0/0"),
        (control_plane, "in", "tcp", 443, workers),
        (control_plane, "out", "tcp", 443, workers),
        (control_plane, "out", "tcp", 10250, workers),
    }


def test_data_at_rest_is_encrypted_with_the_key(checkout: Checkout) -> None:
    key = checkout.output("keyArn")
    rules = checkout.client("s3").get_bucket_encryption(Bucket=checkout.output("bucket"))
    (rule,) = rules["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    (file_system,) = checkout.client("efs").describe_file_systems()["FileSystems"]
    assert (file_system["Encrypted"], file_system["KmsKeyId"]) == (True, key)


def test_the_zone_answers(checkout: Checkout) -> None:
    answer = checkout.client("route53").list_resource_record_sets(HostedZoneId=checkout.output("zoneId"))
    records = {each["Name"]: each["ResourceRecords"][0]["Value"] for each in answer["ResourceRecordSets"]}
    assert records["api.paddle."] == checkout.output("clusterEndpoint").removeprefix("https://")
    assert records["efs.paddle."] == checkout.output("fileSystemName")


def test_jobs_ran_in_order_on_three_workers(checkout: Checkout) -> None:
    data, training, export = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job", "export"))
    assert data[1] <= training[0] <= training[1] <= export[0]
    trainers = checkout.api.list(POD, "default", labelSelector="job-name=paddle-cluster-job")
    assert sorted(pod["spec"]["nodeName"] for pod in trainers) == ["node-1", "node-2", "node-3"]
    volume = checkout.api.get(PERSISTENT_VOLUME, "", "efsvol")
    assert volume["spec"]["nfs"]["server"] == checkout.output("fileSystemName")


def test_the_model_is_in_the_bucket_and_has_learnt(checkout: Checkout) -> None:
    bucket, prefix = re.fullmatch(r"s3://([^/]+)/(.+)", checkout.output("model")).groups()  # type: ignore[union-attr]
    s3 = checkout.client("s3")
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    assert {Path(each["Key"]).name for each in listed} >= {"model.pdparams", "done"}
    log = s3.get_object(Bucket=bucket, Key="paddle-cluster-job/output/node_0/train.log")["Body"].read().decode()
    losses = [float(loss) for loss in re.findall(r"loss[=: ]+([0-9.]+)", log)]
    assert losses[-1] < losses[0]


def test_again_changes_nothing_and_says_so(checkout: Checkout) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = checkout.up()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "nothing changed" in said
    # 15 s on a free machine of 2 cores; other tests may share this one, so what counts is its own work.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20


def test_preview_sees_no_change_before_and_after_refresh(checkout: Checkout) -> None:
    for command in (["preview", "--expect-no-changes"], ["refresh", "--yes", "--skip-preview", "--expect-no-changes"]):
        done = checkout.run("pulumi", *command)
        assert done.returncode == 0, done.stdout
    done = checkout.run("pulumi", "preview", "--expect-no-changes")
    assert done.returncode == 0, done.stdout


def test_status_names_what_runs(checkout: Checkout) -> None:
    said = checkout.run("status").stdout
    for part in ("aws", "workers-local", "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"):
        assert re.search(rf"^{part} +(-|local) +{checkout.pid(part)} ", said, re.MULTILINE), said


def test_everything_listens_on_the_loopback_alone(checkout: Checkout) -> None:
    addresses = listening.by(checkout.processes())
    assert addresses
    assert listening.beyond_loopback(addresses) == []


def test_what_was_changed_behind_its_back_is_put_right(checkout: Checkout) -> None:
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
    assert seen.returncode != 0, "the drift was not seen"

    done = checkout.run("pulumi", "up", "--refresh", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    assert [each["FromPort"] for each in rules if not each["IsEgress"]] == [2049]
    took_place(checkout, "paddle-export")


def test_fewer_trainers_split_the_data_anew_and_leave_aws_alone(checkout: Checkout) -> None:
    aws, jobs = checkout.ids("aws:"), {name: checkout.job(name)["metadata"]["uid"] for name in ALL_JOBS}
    checkout.set(trainers=2)
    checkout.up()
    assert checkout.ids("aws:") == aws
    assert all(checkout.job(name)["metadata"]["uid"] != uid for name, uid in jobs.items())
    data, training = (took_place(checkout, f"paddle-{name}") for name in ("data", "cluster-job"))
    assert data[1] <= training[0]
    assert checkout.job("paddle-cluster-job")["spec"]["completions"] == 2


def test_one_more_worker_updates_the_node_group_in_place(checkout: Checkout) -> None:
    eks = checkout.client("eks")
    before = checkout.ids("")
    checkout.set(workers={"count": 4})
    said = checkout.up()
    assert checkout.ids("") == before
    assert changes(said).keys() == {"updated", "unchanged"}
    assert changes(said)["updated"] == 1
    (group,) = eks.list_nodegroups(clusterName="paddle-cluster")["nodegroups"]
    sizes = eks.describe_nodegroup(clusterName="paddle-cluster", nodegroupName=group)["nodegroup"]["scalingConfig"]
    assert sizes["desiredSize"] == 4
    assert len(checkout.api.list(NODE)) == 4


def test_destroy_leaves_nothing(checkout: Checkout, empty: dict[str, list[str]]) -> None:
    done = checkout.run("pulumi", "destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout
    assert inventory(checkout.client) == empty
    kept = {POD: 0, JOB: 0, PERSISTENT_VOLUME: 0}
    assert {kind: len(checkout.api.list(kind)) for kind in kept} == kept


def test_down_stops_everything(checkout: Checkout) -> None:
    ports = listening.by(checkout.processes())
    assert ports
    done = checkout.run("down")
    assert done.returncode == 0, done.stdout
    assert checkout.processes() == {}
    assert str(checkout.sandbox) not in Path("/proc/self/mounts").read_text()
    assert not checkout.sandbox.exists()
    assert ports.isdisjoint(listening.everybody())


ALL_JOBS = ("paddle-data", "paddle-cluster-job", "paddle-export")
