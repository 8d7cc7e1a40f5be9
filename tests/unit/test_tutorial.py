"""The stack tutorial has every field of the tutorial's YAML files, with the same value."""

from typing import Any

import pytest

from tests.unit.conftest import RunStack

EFS = {"name": "efs", "persistentVolumeClaim": {"claimName": "efsvol"}}
# From the tutorial's pv.yaml, pvc.yaml, paddle-data-job.yaml and paddle-cluster-job.yaml. EFS_DNS_NAME is the name that
# the mocks return. One field is missing on purpose: the tutorial names the template of the data Job "pi".
TUTORIAL: dict[tuple[str, str], dict[str, Any]] = {
    ("kubernetes:core/v1:PersistentVolume", "efsvol"): {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "efsvol"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteMany"],
            "nfs": {"server": "fs-1.efs.us-west-2.amazonaws.com", "path": "/"},
        },
    },
    ("kubernetes:core/v1:PersistentVolumeClaim", "efsvol-claim"): {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "efsvol"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "50Gi"}}},
    },
    ("kubernetes:batch/v1:Job", "paddle-data"): {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "paddle-data"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "paddle-data",
                            "image": "paddlepaddle/paddle-tutorial:k8s_data",
                            "imagePullPolicy": "Always",
                            "volumeMounts": [{"mountPath": "/efs", "name": "efs"}],
                            "env": [
                                {"name": "OUT_DIR", "value": "/efs/paddle-cluster-job"},
                                {"name": "SPLIT_COUNT", "value": "3"},
                            ],
                        }
                    ],
                    "volumes": [EFS],
                    "restartPolicy": "Never",
                }
            }
        },
    },
    ("kubernetes:batch/v1:Job", "paddle-cluster-job"): {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "paddle-cluster-job"},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {
                "metadata": {"name": "paddle-cluster-job"},
                "spec": {
                    "volumes": [EFS],
                    "containers": [
                        {
                            "name": "trainer",
                            "image": "paddlepaddle/paddle-tutorial:k8s_train",
                            "command": ["bin/bash", "-c", "/root/start.sh"],
                            "env": [
                                {"name": "JOB_NAME", "value": "paddle-cluster-job"},
                                {"name": "JOB_PATH", "value": "/home/jobpath"},
                                {"name": "JOB_NAMESPACE", "value": "default"},
                                {"name": "TRAIN_CONFIG_DIR", "value": "quick_start"},
                                {"name": "CONF_PADDLE_NIC", "value": "eth0"},
                                {"name": "CONF_PADDLE_PORT", "value": "7164"},
                                {"name": "CONF_PADDLE_PORTS_NUM", "value": "2"},
                                {"name": "CONF_PADDLE_PORTS_NUM_SPARSE", "value": "2"},
                                {"name": "CONF_PADDLE_GRADIENT_NUM", "value": "3"},
                                {"name": "TRAINER_COUNT", "value": "3"},
                            ],
                            "volumeMounts": [{"mountPath": "/home/jobpath", "name": "efs"}],
                            "ports": [
                                {"name": f"jobport{i}", "hostPort": 7164 + i, "containerPort": 7164 + i}
                                for i in range(4)
                            ],
                        }
                    ],
                    "restartPolicy": "Never",
                },
            },
        },
    },
}


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """The fields that are missing or different. A list of named items can have additional items."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [d for key, value in theirs.items() for d in differences(value, ours.get(key), f"{path}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list) and theirs and isinstance(theirs[0], dict):
        by_name = {item["name"]: item for item in ours}
        return [d for item in theirs for d in differences(item, by_name.get(item["name"]), f"{path}[{item['name']}]")]
    return [] if theirs == ours else [f"{path}: the tutorial has {theirs!r}, we have {ours!r}"]


@pytest.mark.parametrize(("type_", "name"), TUTORIAL)
def test_field_by_field(program: RunStack, type_: str, name: str) -> None:
    ours = program(stack="tutorial").one(type_, name).inputs
    assert differences(TUTORIAL[type_, name], ours) == []


def test_the_data_job_runs_the_command_of_its_image(program: RunStack) -> None:
    job = program(stack="tutorial").one("kubernetes:batch/v1:Job", "paddle-data").inputs
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "command" not in container


def test_the_volume_is_mounted_with_the_tutorials_options(program: RunStack) -> None:
    """In the tutorial, a person mounts the file system with these options."""
    spec = program(stack="tutorial").one("kubernetes:core/v1:PersistentVolume").inputs["spec"]
    tutorial = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2"
    # AWS recommends noresvport today.
    assert ",".join(spec["mountOptions"]) == f"{tutorial},noresvport"
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"


def test_names_from_the_tutorial(program: RunStack) -> None:
    graph = program(stack="tutorial")
    tags = {r.name: r.inputs.get("tags", {}).get("Name") for r in graph.resources.values()}
    assert tags["vpc"] == "paddle-cluster-vpc"
    assert (tags["subnet-0"], tags["subnet-1"]) == ("paddle-cluster-Subnet0", "paddle-cluster-Subnet1")
    assert graph.named("worker-group").inputs["name"] == "paddle-cluster-sg-worker"
    assert (graph.named("efs-group").inputs["name"], tags["efs"]) == ("paddle-efs", "paddle-efs")
    assert graph.named("zone").inputs["name"] == "paddle"
