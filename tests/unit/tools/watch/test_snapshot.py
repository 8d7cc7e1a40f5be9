"""The view of a stack: what it makes of the state, the cluster's objects and the logs, and how it looks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from docs import record_demo as record
from settings.schema import PROJECT
from tools.watch import training_log, words
from tools.watch.cluster_copy import advice
from tools.watch.screen import draw
from tools.watch.snapshot import Cost, Names, Snapshot, jobs_of, nodes_of, pods_to_read
from tools.watch.stack import advice as stack_advice
from tools.watch.stack import read_state
from tools.watch.training_log import Progress
from workloads.in_pod.contract import Attempt

NAMES = Names("dev", "us-west-2", False, 3, "paddle-cluster-job", True)
NOW = 1_800_000_000.0
BEGAN = {"number": 1, "started": 1799999000, "ended": None, "reason": "", "result": ""}
LOST = {**BEGAN, "ended": 1799999300, "reason": "trainer 1 is lost"}
AGAIN = {**BEGAN, "number": 2, "started": 1799999300}
LOG = [
    f"12:00:00 launch: attempts {json.dumps([BEGAN])}",
    "12:00:01 launch: attempt 1: trainer 0 of 3 starts from the beginning",
    "3 trainers, 20000 records, passes 1 to 5",
    "pass 1/5: 40%  ETA 0:01:30",
    '12:01 launch: checkpoint 1 of 5 {"loss": 0.69, "accuracy": 0.5, "a": "", "b": true} written 2027-01-15T07:50:00Z',
    '12:02:00 launch: checkpoint 2 of 5 {"loss": 0.42, "accuracy": 0.75} written 2027-01-15T07:55:00Z',
    f"12:02:01 launch: attempts {json.dumps([LOST, AGAIN, 7])}",
    "pass 3/5: 50%",
]


def pod(name: str, job: str = "paddle-cluster-job", index: int | None = 0, phase: str = "Running", **more: Any) -> Any:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"name": name, "uid": name, "labels": {"job-name": job}, "annotations": annotations}
    metadata |= {"creationTimestamp": "2027-01-15T07:40:00Z"} | more.pop("metadata", {})
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"phase": phase, **more}}


def job(name: str, completions: int = 1, **conditions: str) -> Any:
    listed = [{"type": kind, "status": "True", "message": text} for kind, text in conditions.items()]
    status = {"startTime": "2027-01-15T07:40:00Z", "conditions": listed}
    return {"metadata": {"name": name}, "spec": {"completions": completions}, "status": status}


def node(name: str, ready: str = "True") -> Any:
    labels = {"topology.kubernetes.io/zone": "us-west-2a", "node.kubernetes.io/instance-type": "m6i.large"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def picture(jobs: list[Any], pods: list[Any], log: list[str] = LOG, **more: Any) -> Snapshot:
    progress = {"training": training_log.read(Progress(), log)} if log else {}
    nodes = nodes_of([node("node-10"), node("node-9"), node("node-2", "Unknown")])
    cost = Cost(0.5, NOW - 7200, ("workers, spot",))
    made = Snapshot(NAMES, NOW, 84, (), nodes, jobs_of(NAMES, jobs, pods), progress, cost, "", ())
    return replace(made, **more)


def training() -> Snapshot:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    pods = [pod(f"p-{i}", index=i) for i in (0, 1)]
    pods.append(pod("p-2", index=2, phase="Pending", conditions=[waits]))
    pods.append(pod("p-data", "paddle-data", None, "Succeeded"))
    jobs = [job("paddle-data", Complete=""), job("paddle-cluster-job", 3)]
    return picture(jobs, pods, operations=(("creating Job paddle-cluster-job", NOW - 75),))


def drawn(snapshot: Snapshot, width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(draw(snapshot, width))
    return console.export_text()


def test_the_picture_shows_a_training_under_way() -> None:
    text = drawn(training(), 160)
    for part in (
        "Stack dev on AWS, us-west-2, 84 resources",
        "Cost: $0.50 an hour, $1.00 so far without workers, spot",
        "creating Job paddle-cluster-job (1 min 15 s)",
        "2 of 3 nodes ready; not ready: node-2",
        "2 running, 1 waiting",
        "trainer 2 waiting: Unschedulable 0/3 nodes are available",
        "checkpoint 2 of 5, 50%, 10 min 00 s left",
        "loss      0.42  █▁",
        "accuracy  0.75  ▁█",
        "attempt 1 ended after 5 min 00 s: trainer 1 is lost",
        "attempt 2 running for 11 min 40 s",
        "pass 3/5: 50%",
    ):
        assert part in text, text


@pytest.mark.parametrize("width", [80, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = replace(training(), fetch="aws s3 cp " + "x" * 300, trouble=("word " * 60,))
    lines = drawn(long, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 60


def test_a_finished_stack_shows_the_numbers_and_the_command_that_fetches_the_model() -> None:
    jobs = [
        job("paddle-data", Complete=""),
        job("paddle-cluster-job", 3, Complete=""),
        job("paddle-export", Complete=""),
    ]
    shown = picture(jobs, [], fetch="aws s3 cp s3://b/model ./model")
    text = drawn(shown, 160)
    assert "The model is ready. loss 0.42, accuracy 0.75" in text
    assert "To fetch it: aws s3 cp s3://b/model ./model" in text
    assert words.lines(shown)[-2:] == [
        "the model is ready: loss 0.42, accuracy 0.75",
        "to fetch it: aws s3 cp s3://b/model ./model",
    ]
    assert not words.is_finished(picture(jobs[:2], []))


def test_a_failed_job_shows_the_last_line_of_its_first_failed_pod() -> None:
    ended = {"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback\nlaunch.py: no data\n"}}}
    pods = [pod("p-0", phase="Failed", containerStatuses=[ended]), pod("p-1", index=1, phase="Succeeded")]
    shown = picture([job("paddle-cluster-job", 3, Failed="Job has reached the backoff limit")], pods, [])
    assert shown.jobs[0].reason == "Error launch.py: no data"
    assert "training Job paddle-cluster-job: failed: Error launch.py: no data" in words.lines(shown)


def test_of_a_trainer_the_newest_pod_counts() -> None:
    old = pod("p-0-a", phase="Failed", metadata={"creationTimestamp": "2027-01-15T07:30:00Z"})
    (found,) = jobs_of(NAMES, [job("paddle-cluster-job", 1)], [pod("p-0-b"), old])
    assert [each.name for each in found.pods] == ["p-0-b"]
    assert [each.name for each in pods_to_read([found])] == ["p-0-b"]


def test_a_log_read_twice_says_the_same() -> None:
    once = training_log.read(Progress(), LOG)
    assert training_log.read(once, LOG) == once
    assert once.checkpoints == {1: {"loss": 0.69, "accuracy": 0.5}, 2: {"loss": 0.42, "accuracy": 0.75}}
    assert once.attempts[0] == Attempt(number=1, started=1799999000, ended=1799999300, reason="trainer 1 is lost")
    assert training_log.time_left(once, once.written[2]) == 900, "three more checkpoints of five minutes"
    assert training_log.read(once, ["pass 3/5: 60%  ETA 0:02:05"]).remaining == 125


@pytest.mark.parametrize(
    "line",
    [
        "launch: checkpoint 1 of 5 {not json} written x",
        "launch: attempts [{}]",
        "launch: attempts [" + "[" * 9999 + "]",
    ],
)
def test_a_line_that_is_not_understood_is_harmless(line: str) -> None:
    assert training_log.read(Progress(), [line]).attempts == ()


def test_a_thousand_trainers_take_a_few_lines() -> None:
    pods = [pod(f"p-{i}", index=i, phase="Running" if i % 100 else "Failed", message="Evicted") for i in range(1000)]
    nodes = nodes_of([node(f"node-{i}") for i in range(1000)])
    shown = picture([job("paddle-cluster-job", 1000)], pods, nodes=nodes)
    text = drawn(shown, 80)
    assert "10 failed, 990 running" in text
    assert len(text.splitlines()) < 45
    assert len(words.lines(shown)) < 30


def test_lines_change_only_when_something_happens() -> None:
    assert words.lines(training()) == words.lines(replace(training(), now=NOW + 100))


def test_the_state_tells_what_up_waits_for() -> None:
    secret = {"4dabf18193072939515e22adb298388d": "x", "plaintext": json.dumps("apiVersion: v1\n")}
    urn = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Cluster$aws:eks/cluster:Cluster::paddle-cluster"
    resources = [
        {"type": "pulumi:pulumi:Stack", "urn": "u", "outputs": {"nextSteps": {"fetchModel": "aws"}}},
        {"type": "aws:ec2/vpc:Vpc", "urn": "u", "custom": True, "created": "2027-01-15T07:50:00.5Z"},
        {"type": "pulumi:providers:kubernetes", "urn": "u", "custom": True, "inputs": {"kubeconfig": secret}},
    ]
    pending = [{"type": "creating", "resource": {"urn": urn, "type": "aws:eks/cluster:Cluster"}}]
    state = read_state({"deployment": {"resources": resources, "pending_operations": pending}})
    assert state.operations == ("creating Cluster paddle-cluster",)
    assert (state.resources, state.created, state.kubeconfig) == (2, 1799999400.5, "apiVersion: v1\n")
    assert state.outputs == {"nextSteps": {"fetchModel": "aws"}}
    assert read_state({"deployment": {"resources": None}}).resources == 0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("error: no stack named 'dev' found", "Stack dev does not exist. Create it with `pulumi up --stack dev`"),
        ("error: PULUMI_ACCESS_TOKEN must be set", "Pulumi is not logged in. Run `pulumi login`"),
        ("error: passphrase must be set", "Stack dev is encrypted. Set PULUMI_CONFIG_PASSPHRASE"),
        ("warning: x\nerror: AccessDenied\n", "Pulumi cannot read stack dev: AccessDenied"),
        ("", "Pulumi cannot read stack dev: no reason given"),
    ],
)
def test_one_line_says_what_to_do_about_the_stack(message: str, expected: str) -> None:
    assert stack_advice("dev", message).startswith(expected)


def test_the_recording_is_one_small_picture_that_needs_no_other_file() -> None:
    moments = [record.Moment((), None)]
    for second in range(40):
        moments.append(record.Moment(("<b>&",) * second, replace(training(), resources=second)))
    chosen = record.key_moments(moments)
    assert len(chosen) == record.FRAMES
    assert (chosen[0], chosen[-1]) == (moments[0], moments[-1])
    text = record.animation(chosen)
    ElementTree.fromstring(text)
    assert len(text) < record.LARGEST
    assert re.findall(r"(?:href=|url\()(?!#)", text) == []
    assert text.count('class="frame"') == record.FRAMES


def test_the_recording_of_the_readme_is_small_and_names_no_path_of_a_machine() -> None:
    text = (PROJECT / "docs/demo.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert len(text.encode()) < record.LARGEST
    assert re.findall(r"(?:href=|url\()(?!#)", text) == []
    assert re.findall(r"/(?:home|root|tmp|Users|work)/[^<]*", text) == []


def test_one_line_says_what_to_do_about_the_cluster() -> None:
    from tools.kubernetes_client import ApiError, UnreachableError

    assert "add your role to the setting admins" in advice("pods", ApiError(403, {}))
    assert "The cluster rejects your login" in advice("pods", ApiError(401, {}))
    assert "apiAccessCidrs" in advice("pods", UnreachableError("no route"))
    assert "Install the AWS CLI" in advice("pods", UnreachableError("the credential plugin `aws` did not run"))
