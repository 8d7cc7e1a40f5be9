"""The export Job: waits for the training Job in the cluster, then copies its output to the bucket."""

import pulumi
import pulumi_kubernetes as k8s

from infra.job_roles import EXPORT_ACCOUNT
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import READ, ServiceAccount
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import container, job, pod
from workloads.training_job import TrainingJob
from workloads.volume import POD_VOLUME, Volume

NAME = "paddle-export"
COPY_MINUTES = 30
RETRIES = 2


class ExportJob(pulumi.ComponentResource):
    def __init__(
        self,
        settings: Settings,
        namespace: pulumi.Input[str],
        volume: Volume,
        aws_role: ServiceAccountRole,
        training: TrainingJob,
        destination: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:workloads:ExportJob", "export", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": ["batch"], "resources": ["jobs"], "resource_names": [settings.job.name], "verbs": READ}
        ]
        account = ServiceAccount(EXPORT_ACCOUNT, namespace, child, rules, aws_role)
        shipped = scripts.Scripts(
            "paddle-export-scripts",
            namespace,
            scripts.with_imports("await_job.py", "export.sh"),
            child,
        )
        spec = export_job_spec(settings, account.name, volume.pod_volume, shipped.volume, training.name, destination)
        minutes = settings.job.timeout_minutes + COPY_MINUTES
        opts = pulumi.ResourceOptions(parent=self, depends_on=account.ready)
        job(NAME, namespace, spec, minutes, opts, settings.job.wait)
        self.register_outputs({})


def export_job_spec(
    settings: Settings,
    account: pulumi.Input[str],
    volume: k8s.core.v1.VolumeArgsDict,
    code: k8s.core.v1.VolumeArgsDict,
    training: pulumi.Input[str],
    destination: pulumi.Input[str],
) -> k8s.batch.v1.JobSpecArgsDict:
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.EXPORT_VOLUME, "read_only": True},
        scripts.MOUNT,
    ]
    wait = container(
        "await-training",
        settings.job.image,
        ["python3", f"{contract.SCRIPTS}/await_job.py"],
        {Env.JOB_NAME: training, Env.JOB_NAMESPACE: settings.job.namespace},
        mounts[1:],
        "100m",
        "128Mi",
    )
    copy = container(
        "export",
        settings.export.image,
        ["bash", f"{contract.SCRIPTS}/export.sh"],
        {
            Env.OUTPUT_DIR: f"{contract.EXPORT_VOLUME}/{settings.job.name}/{contract.OUTPUT}",
            Env.DONE_FILE: contract.DONE_FILE,
            Env.DESTINATION: destination,
            Env.AWS_REGION: settings.region,
        },
        mounts,
        "500m",
        "512Mi",
    )
    return {
        "backoff_limit": RETRIES,
        "template": pod(NAME, account, [volume, code], [copy], [wait]),
    }
