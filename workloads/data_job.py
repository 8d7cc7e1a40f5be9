"""The data Job splits the data into one part for each trainer and copies the training code next to it."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.job_roles import DATA_ACCOUNT
from infra.naming import prefix
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import ServiceAccount, ServiceAccountArgs
from workloads.in_cluster import object_options
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import container, job, pod
from workloads.volume import POD_VOLUME, Volume

NAME = "paddle-data"
RETRIES = 2


@dataclass(frozen=True)
class DataJobArgs:
    settings: Settings
    namespace: pulumi.Input[str]
    volume: Volume
    aws_role: ServiceAccountRole | None


class DataJob(pulumi.ComponentResource):
    """`name` is known when the data is ready."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: DataJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:DataJob", name, None, opts)
        names, settings = prefix(name, "data"), args.settings
        child = object_options(self)
        account = ServiceAccount(
            f"{names}{DATA_ACCOUNT}", ServiceAccountArgs(DATA_ACCOUNT, args.namespace, aws_role=args.aws_role), child
        )
        code = {f"{settings.job.config_dir}/{path}": file for path, file in settings.job.code_files.items()}
        files = {**scripts.with_imports("prepare.py", "fetch.sh"), **code}
        shipped = scripts.Scripts(f"{names}paddle-data-scripts", scripts.ScriptsArgs(args.namespace, files), child)
        created = job(
            f"{names}{NAME}",
            NAME,
            args.namespace,
            data_job_spec(settings, account.name, args.volume.pod_volume, shipped.volume),
            settings.data.timeout_minutes,
            object_options(self, account.ready),
        )
        self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})


def data_job_spec(
    settings: Settings,
    account: pulumi.Input[str],
    volume: k8s.core.v1.VolumeArgsDict,
    code: k8s.core.v1.VolumeArgsDict,
) -> k8s.batch.v1.JobSpecArgsDict:
    folder = f"{contract.DATA_VOLUME}/{settings.job.name}"
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.DATA_VOLUME},
        scripts.MOUNT,
    ]
    env = {
        Env.OUT_DIR: folder,
        Env.SPLIT_COUNT: str(settings.trainers),
        Env.TRAIN_CONFIG_DIR: settings.job.config_dir,
        Env.DATA_SOURCE: " ".join(settings.data.sources),
        Env.DATA_SHA256: settings.data.sha256,
        Env.DATA_RECORDS: str(settings.data.records),
    }
    # The name of the folder with a copy of an S3 source contains the UID: two pods may run for some seconds.
    pod_uid = {Env.POD_UID: "metadata.uid"}
    main = container("paddle-data", settings.data_image, settings.data.command, env, mounts, "500m", "512Mi", pod_uid)
    main["image_pull_policy"] = "Always"
    fetch = container(
        "fetch",
        settings.export.image,
        ["bash", f"{contract.SCRIPTS}/fetch.sh"],
        {
            Env.DATA_SOURCE: " ".join(settings.data.sources),
            Env.FETCH_PREFIX: f"{folder}/{contract.FETCHED}",
            Env.AWS_REGION: settings.region,
        },
        mounts,
        "500m",
        "512Mi",
        pod_uid,
    )
    return {
        "backoff_limit": RETRIES,
        "template": pod(NAME, account, [volume, code], [main], [fetch] if settings.data.from_s3 else []),
    }
