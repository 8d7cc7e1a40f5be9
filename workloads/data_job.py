"""The data Job splits the data into one part for each trainer and copies the training code next to it."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.job_roles import JobRoles
from settings.aws_facts import AwsFacts
from settings.schema import Settings, code_files
from workloads.data_source import DataSource, DataSourceArgs
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import Container, Mount, Needs, job, object_options, pod, pod_field
from workloads.namespace import Namespace
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.scripts import Scripts, ScriptsArgs, with_imports
from workloads.service_account import ServiceAccount, ServiceAccountArgs
from workloads.tokens import aws_token
from workloads.volume import Volume

RETRIES = 2


@dataclass(frozen=True)
class DataJobArgs:
    settings: Settings
    facts: AwsFacts
    roles: JobRoles
    namespace: Namespace
    volume: Volume


class DataJob(pulumi.ComponentResource):
    """`name` is known when the data is ready."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: DataJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:DataJob", name, None, opts)
        settings, namespace, child = args.settings, args.namespace.name, object_options(self)
        account = ServiceAccount(name, ServiceAccountArgs(namespace), child)
        network = NetworkPolicy(
            f"{name}-network", NetworkPolicyArgs(name, namespace, settings.data_source.ports), child
        )
        code = {f"{settings.job.config_dir}/{path}": file for path, file in code_files(settings.job).items()}
        files = {**with_imports("prepare.py", "fetch.sh"), **code}
        scripts = Scripts(f"{name}-scripts", ScriptsArgs(namespace, files), child)
        source = DataSource(f"{name}-source", DataSourceArgs(settings, namespace), child)
        role = args.roles.data
        created = job(
            name,
            namespace,
            data_job_spec(name, args, account.name, scripts.mount, source),
            settings.data.timeout_minutes,
            object_options(self, [*account.ready, *network.ready, *(role.ready if role else ())]),
            settings.paused,
        )
        self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})


def data_job_spec(
    name: str, args: DataJobArgs, account: pulumi.Input[str], scripts: Mount, source: DataSource
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
    folder = f"{contract.DATA_VOLUME}/{settings.job.name}"
    mounts = [args.volume.mount(contract.DATA_VOLUME), scripts]
    # The name of the folder with a copy of an S3 source contains the UID: two pods may run for some seconds.
    pod_uid = {Env.POD_UID: pod_field("metadata.uid")}
    main = Container(
        name=name,
        image=settings.data_image,
        command=settings.data.command,
        env={
            Env.OUT_DIR: folder,
            Env.SPLIT_COUNT: str(settings.trainers),
            Env.TRAIN_CONFIG_DIR: settings.job.config_dir,
            Env.DATA_SOURCE: source.env[Env.DATA_SOURCE],
            Env.DATA_SHA256: settings.data.sha256,
            Env.DATA_RECORDS: str(settings.data.records),
            **pod_uid,
        },
        mounts=mounts,
        needs=Needs("500m", "512Mi", f"{args.facts.pod_memory_mib}Mi"),
        # An image with its own command may write anywhere.
        writable=not settings.data.runs_prepare_script,
        pull_always=True,
    )
    if not args.roles.data:
        return {"backoff_limit": RETRIES, "template": pod(name, account, [main])}
    role = aws_token(args.roles.data)
    recursive = [] if settings.data_source.is_one_file else ["--recursive"]
    fetch = Container(
        name="fetch",
        image=settings.export.image,
        command=["bash", f"{contract.SCRIPTS}/fetch.sh", *recursive],
        env={
            Env.FETCH_ADDRESS: source.env[Env.FETCH_ADDRESS],
            Env.FETCH_PREFIX: f"{folder}/{contract.FETCHED}",
            Env.AWS_REGION: settings.region,
            **role.env,
            **pod_uid,
        },
        mounts=[*mounts, role.mount],
        needs=Needs("500m", "512Mi", "2Gi"),
    )
    return {"backoff_limit": RETRIES, "template": pod(name, account, [main], [fetch])}
