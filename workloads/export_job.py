"""The export Job waits until the training ends, copies its results to the bucket, and sends a message about the end."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.naming import prefix
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import READ, ServiceAccount, ServiceAccountArgs
from workloads.in_cluster import object_options
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import IGNORE_LOST_NODE, Needs, container, job, pod, temporary_folder
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.tokens import api_token, aws_token
from workloads.training_job import TrainingJob
from workloads.volume import POD_VOLUME, Volume

NAME = contract.EXPORT_JOB
WAIT, COPY = "await-training", "export"
COPY_MINUTES = 30
OUTCOME = "outcome"


@dataclass(frozen=True)
class ExportJobArgs:
    """`destination` is the s3:// address that the results are copied to. Without `topic_arn`, no messages are sent."""

    settings: Settings
    namespace: pulumi.Input[str]
    volume: Volume
    training: TrainingJob
    aws_role: ServiceAccountRole
    destination: pulumi.Input[str]
    topic_arn: pulumi.Input[str] | None


class ExportJob(pulumi.ComponentResource):
    def __init__(self, name: str, args: ExportJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:ExportJob", name, None, opts)
        names, settings = prefix(name, "export"), args.settings
        child = object_options(self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": ["batch"], "resources": ["jobs"], "resource_names": [settings.job.name], "verbs": READ}
        ]
        account = ServiceAccount(f"{names}{NAME}", ServiceAccountArgs(NAME, args.namespace, rules), child)
        network = NetworkPolicy(f"{names}{NAME}-network", NetworkPolicyArgs(NAME, args.namespace), child)
        shipped = scripts.Scripts(
            f"{names}paddle-export-scripts",
            scripts.ScriptsArgs(args.namespace, scripts.with_imports("await_job.py", "export.sh")),
            child,
        )
        job(
            f"{names}{NAME}",
            NAME,
            args.namespace,
            export_job_spec(args, account.name, shipped.volume),
            settings.job.timeout_minutes + COPY_MINUTES,
            object_options(self, [*account.ready, *network.ready, *args.aws_role.ready]),
            settings.paused,
            settings.job.wait,
        )
        self.register_outputs({})


def export_job_spec(
    args: ExportJobArgs, account: pulumi.Input[str], code: k8s.core.v1.VolumeArgsDict
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
    # The waiting container runs the image of the user, so it must not get the role that may write the results.
    api, role = api_token(), aws_token(args.aws_role)
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.EXPORT_VOLUME, "read_only": True},
        scripts.MOUNT,
        {"name": OUTCOME, "mount_path": contract.OUTCOME_VOLUME},
    ]
    outcome: k8s.core.v1.VolumeArgsDict = {"name": OUTCOME, "empty_dir": {}}
    both = {
        Env.JOB_NAME: args.training.name,
        Env.OUTPUT_DIR: f"{contract.EXPORT_VOLUME}/{settings.job.name}/{contract.OUTPUT}",
        Env.DESTINATION: args.destination,
        Env.AWS_REGION: settings.region,
        Env.FAILURE_FILE: contract.FAILURE_FILE,
        Env.SUBJECT_FILE: contract.SUBJECT_FILE,
        Env.MESSAGE_FILE: contract.MESSAGE_FILE,
    }
    wait = container(
        WAIT,
        settings.job.image,
        ["python3", f"{contract.SCRIPTS}/await_job.py"],
        {**both, Env.JOB_NAMESPACE: settings.job.namespace, Env.STACK: settings.stack},
        [*mounts, api.mount],
        Needs("100m", "128Mi", "512Mi"),
        read_only=True,
    )
    copy = container(
        COPY,
        settings.export.image,
        ["bash", f"{contract.SCRIPTS}/export.sh"],
        {
            **both,
            Env.DONE_FILE: contract.DONE_FILE,
            Env.MADE_FROM_FILE: contract.MADE_FROM_FILE,
            Env.NEWEST_FILE: contract.NEWEST_FILE,
            Env.EXPORT_AGAIN: contract.run_again(NAME),
            Env.TRAINING_AGAIN: contract.run_again(settings.job.name),
            **({Env.TOPIC_ARN: args.topic_arn} if args.topic_arn is not None else {}),
            **role.env,
        },
        [*mounts, role.mount],
        Needs("500m", "512Mi", "2Gi"),
        read_only=True,
    )
    folders = [temporary_folder(WAIT), temporary_folder(COPY)]
    volumes = [args.volume.pod_volume, code, outcome, api.volume, role.volume, *folders]
    return {
        # A second pod would send a second message. The AWS CLI repeats requests that failed.
        "backoff_limit": 0,
        "pod_failure_policy": {"rules": [IGNORE_LOST_NODE]},
        "template": pod(NAME, account, volumes, [copy], [wait]),
    }
