"""The training Job: one pod a trainer, each with the tutorial's ports and environment."""

import pulumi
import pulumi_kubernetes as k8s

from settings.schema import Settings
from workloads import scripts
from workloads.access import READ, ServiceAccount
from workloads.data_job import DataJob
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import container, job, pod
from workloads.volume import POD_VOLUME, Volume

ACCOUNT = "paddle-trainer"


class TrainingJob(pulumi.ComponentResource):
    """`name` is known once the model is there, or with `job.wait` off once training has started."""

    name: pulumi.Output[str]

    def __init__(
        self,
        settings: Settings,
        namespace: pulumi.Input[str],
        volume: Volume,
        data: DataJob,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:workloads:TrainingJob", "training", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [{"api_groups": [""], "resources": ["pods"], "verbs": READ}]
        account = ServiceAccount(ACCOUNT, namespace, child, rules)
        shipped = scripts.Scripts(
            "paddle-trainer-scripts",
            namespace,
            scripts.with_imports("launch.py"),
            child,
        )
        spec = training_job_spec(settings, account.name, volume.pod_volume, shipped.volume, data.name)
        opts = pulumi.ResourceOptions(parent=self, depends_on=account.ready)
        made = job(settings.job.name, namespace, spec, settings.job.timeout_minutes, opts, settings.job.wait)
        self.name = made.metadata["name"]
        self.register_outputs({"name": self.name})


def training_job_spec(
    settings: Settings,
    account: pulumi.Input[str],
    volume: k8s.core.v1.VolumeArgsDict,
    code: k8s.core.v1.VolumeArgsDict,
    after: pulumi.Input[str],
) -> k8s.batch.v1.JobSpecArgsDict:
    job_settings, pserver = settings.job, settings.pserver
    env = {
        Env.JOB_NAME: job_settings.name,
        Env.JOB_PATH: contract.TRAINING_VOLUME,
        Env.JOB_NAMESPACE: job_settings.namespace,
        Env.TRAIN_CONFIG_DIR: job_settings.config_dir,
        Env.NIC: pserver.nic,
        Env.PORT: str(pserver.port),
        Env.PORTS: str(pserver.ports),
        Env.SPARSE_PORTS: str(pserver.sparse_ports),
        Env.TRAINERS: str(settings.trainers),
        Env.TRAINER_COUNT: str(settings.trainers),
        Env.PASSES: str(job_settings.passes),
        Env.MAX_ATTEMPTS: str(job_settings.attempts),
        Env.PEER_TIMEOUT_SECONDS: str(job_settings.peer_timeout_minutes * 60),
    }
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"mount_path": contract.TRAINING_VOLUME, "name": POD_VOLUME},
        scripts.MOUNT,
    ]
    fields = {Env.POD_NAME: "metadata.name", Env.POD_UID: "metadata.uid", Env.POD_IP: "status.podIP"}
    gpus = {"nvidia.com/gpu": str(job_settings.gpus_per_trainer)} if job_settings.gpus_per_trainer else {}
    main = container(
        "trainer", job_settings.image, job_settings.command, env, mounts, "1", "2Gi", fields=fields, limits=gpus
    )
    # A host port is free once on each node: this is what spreads the trainers.
    main["ports"] = [
        {"name": f"jobport{i}", "host_port": port, "container_port": port} for i, port in enumerate(pserver.host_ports)
    ]
    return {
        "parallelism": settings.trainers,
        "completions": settings.trainers,
        "completion_mode": "Indexed",
        # One lost pod is one start of all; a pod lost with its node is nobody's failure.
        "backoff_limit": job_settings.attempts - 1,
        "pod_failure_policy": {
            "rules": [{"action": "Ignore", "on_pod_conditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": pod(job_settings.name, account, [volume, code], [main], after=after),
    }
