"""The data Job splits the data into one part for each trainer and copies the training code next to it."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.naming import prefix
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import ServiceAccount, ServiceAccountArgs
from workloads.data_source import DataSource, DataSourceArgs
from workloads.in_cluster import object_options
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import Needs, container, job, pod, temporary_folder
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.tokens import aws_token
from workloads.volume import POD_VOLUME, Volume

NAME, FETCH = contract.DATA_JOB, "fetch"
SCRIPT = f"{contract.SCRIPTS}/prepare.py"
RETRIES = 2


@dataclass(frozen=True)
class DataJobArgs:
    settings: Settings
    namespace: pulumi.Input[str]
    volume: Volume
    aws_role: ServiceAccountRole | None
    memory_limit: str


class DataJob(pulumi.ComponentResource):
    """`name` is known when the data is ready."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: DataJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:DataJob", name, None, opts)
        names, settings = prefix(name, "data"), args.settings
        child = object_options(self)
        account = ServiceAccount(f"{names}{NAME}", ServiceAccountArgs(NAME, args.namespace), child)
        network = NetworkPolicy(
            f"{names}{NAME}-network", NetworkPolicyArgs(NAME, args.namespace, settings.data_source.ports), child
        )
        code = {f"{settings.job.config_dir}/{path}": file for path, file in settings.job.code_files.items()}
        files = {**scripts.with_imports("prepare.py", "fetch.sh"), **code}
        shipped = scripts.Scripts(f"{names}paddle-data-scripts", scripts.ScriptsArgs(args.namespace, files), child)
        source = DataSource(f"{names}paddle-data-source", DataSourceArgs(settings, args.namespace), child)
        created = job(
            f"{names}{NAME}",
            NAME,
            args.namespace,
            data_job_spec(args, account.name, shipped.volume, source),
            settings.data.timeout_minutes,
            object_options(self, [*account.ready, *network.ready, *(args.aws_role.ready if args.aws_role else ())]),
            settings.paused,
        )
        self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})


def data_job_spec(
    args: DataJobArgs, account: pulumi.Input[str], code: k8s.core.v1.VolumeArgsDict, source: DataSource
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
    folder = f"{contract.DATA_VOLUME}/{settings.job.name}"
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.DATA_VOLUME},
        scripts.MOUNT,
    ]
    env = {
        Env.OUT_DIR: folder,
        Env.SPLIT_COUNT: str(settings.trainers),
        Env.TRAIN_CONFIG_DIR: settings.job.config_dir,
        **source.env,
        Env.DATA_SHA256: settings.data.sha256,
        Env.DATA_RECORDS: str(settings.data.records),
    }
    # The name of the folder with a copy of an S3 source contains the UID: two pods may run for some seconds.
    pod_uid = {Env.POD_UID: "metadata.uid"}
    needs = Needs("500m", "512Mi", args.memory_limit)
    # An image with its own command may write anywhere.
    own_script = any(SCRIPT in word for word in settings.data.command)
    main = container(
        NAME, settings.data_image, settings.data.command, env, mounts, needs, pod_uid, source.secrets, own_script
    )
    main["image_pull_policy"] = "Always"
    volumes = [args.volume.pod_volume, code]
    if own_script:
        volumes.append(temporary_folder(NAME))
    if not args.aws_role:
        return {"backoff_limit": RETRIES, "template": pod(NAME, account, volumes, [main])}
    role = aws_token(args.aws_role)
    recursive = [] if settings.data_source.is_one_file else ["--recursive"]
    fetch = container(
        FETCH,
        settings.export.image,
        ["bash", f"{contract.SCRIPTS}/fetch.sh", *recursive],
        {
            **source.env,
            Env.FETCH_PREFIX: f"{folder}/{contract.FETCHED}",
            Env.AWS_REGION: settings.region,
            **role.env,
        },
        [*mounts, role.mount],
        Needs("500m", "512Mi", "2Gi"),
        pod_uid,
        source.secrets,
        read_only=True,
    )
    volumes += [role.volume, temporary_folder(FETCH)]
    return {"backoff_limit": RETRIES, "template": pod(NAME, account, volumes, [main], [fetch])}
