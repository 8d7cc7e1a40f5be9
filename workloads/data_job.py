"""The data Job: splits the data into one shard a trainer and lays the training code beside it."""

import pulumi
import pulumi_kubernetes as k8s

from infra.job_roles import DATA_ACCOUNT
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import ServiceAccount
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import container, job, pod
from workloads.volume import POD_VOLUME, Volume

NAME = "paddle-data"
RETRIES = 2


class DataJob(pulumi.ComponentResource):
    """`name` is known once the data is there."""

    name: pulumi.Output[str]

    def __init__(
        self,
        settings: Settings,
        namespace: pulumi.Input[str],
        volume: Volume,
        aws_role: ServiceAccountRole | None,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:workloads:DataJob", "data", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = ServiceAccount(DATA_ACCOUNT, namespace, child, aws_role=aws_role)
        code = {f"{settings.job.config_dir}/{path}": file for path, file in settings.job.code_files.items()}
        shipped = scripts.Scripts(
            "paddle-data-scripts",
            namespace,
            {**scripts.with_imports("prepare.py"), **code},
            child,
        )
        spec = data_job_spec(settings, account.name, volume.pod_volume, shipped.volume)
        opts = pulumi.ResourceOptions(parent=self, depends_on=account.ready)
        made = job(NAME, namespace, spec, settings.data.timeout_minutes, opts)
        self.name = made.metadata["name"]
        self.register_outputs({"name": self.name})


def data_job_spec(
    settings: Settings,
    account: pulumi.Input[str],
    volume: k8s.core.v1.VolumeArgsDict,
    code: k8s.core.v1.VolumeArgsDict,
) -> k8s.batch.v1.JobSpecArgsDict:
    folder = f"{contract.DATA_VOLUME}/{settings.job.name}"
    source, fetched = settings.data.source, f"{folder}/{contract.FETCHED}"
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.DATA_VOLUME},
        scripts.MOUNT,
    ]
    env = {
        Env.OUT_DIR: folder,
        Env.SPLIT_COUNT: str(settings.trainers),
        Env.TRAIN_CONFIG_DIR: settings.job.config_dir,
        Env.DATA_SOURCE: source,
        Env.DATA_FILE: fetched if settings.data.from_s3 else "",
        Env.DATA_SHA256: settings.data.sha256,
        Env.DATA_RECORDS: str(settings.data.records),
    }
    main = container("paddle-data", settings.data.image, settings.data.command, env, mounts, "500m", "512Mi")
    main["image_pull_policy"] = "Always"
    fetch = container(
        "fetch",
        settings.export.image,
        ["aws", "s3", "cp", "--no-progress", source, fetched],
        {Env.AWS_REGION: settings.region},
        mounts[:1],
        "500m",
        "512Mi",
    )
    return {
        "backoff_limit": RETRIES,
        "template": pod(NAME, account, [volume, code], [main], [fetch] if settings.data.from_s3 else []),
    }
