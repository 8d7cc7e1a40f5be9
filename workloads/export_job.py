"""The export Job waits until the training ends, copies its results to the bucket, and sends a message about the end."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.job_roles import EXPORT_ACCOUNT
from infra.naming import prefix
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads import scripts
from workloads.access import READ, ServiceAccount, ServiceAccountArgs
from workloads.in_cluster import object_options
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import IGNORE_LOST_NODE, container, job, pod
from workloads.training_job import TrainingJob
from workloads.volume import POD_VOLUME, Volume

NAME = "paddle-export"
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
        account = ServiceAccount(
            f"{names}{EXPORT_ACCOUNT}", ServiceAccountArgs(EXPORT_ACCOUNT, args.namespace, rules, args.aws_role), child
        )
        shipped = scripts.Scripts(
            f"{names}paddle-export-scripts",
            scripts.ScriptsArgs(args.namespace, scripts.with_imports("await_job.py", "export.sh")),
            child,
        )
        job(
            f"{names}{NAME}",
            NAME,
            args.namespace,
            export_job_spec(
                settings,
                account.name,
                args.volume.pod_volume,
                shipped.volume,
                args.training.name,
                args.destination,
                args.topic_arn,
            ),
            settings.job.timeout_minutes + COPY_MINUTES,
            object_options(self, account.ready),
            settings.job.wait,
        )
        self.register_outputs({})


def export_job_spec(
    settings: Settings,
    account: pulumi.Input[str],
    volume: k8s.core.v1.VolumeArgsDict,
    code: k8s.core.v1.VolumeArgsDict,
    training: pulumi.Input[str],
    destination: pulumi.Input[str],
    topic_arn: pulumi.Input[str] | None,
) -> k8s.batch.v1.JobSpecArgsDict:
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": POD_VOLUME, "mount_path": contract.EXPORT_VOLUME, "read_only": True},
        scripts.MOUNT,
        {"name": OUTCOME, "mount_path": contract.OUTCOME_VOLUME},
    ]
    outcome: k8s.core.v1.VolumeArgsDict = {"name": OUTCOME, "empty_dir": {}}
    both = {
        Env.JOB_NAME: training,
        Env.OUTPUT_DIR: f"{contract.EXPORT_VOLUME}/{settings.job.name}/{contract.OUTPUT}",
        Env.DESTINATION: destination,
        Env.AWS_REGION: settings.region,
        Env.FAILURE_FILE: contract.FAILURE_FILE,
        Env.SUBJECT_FILE: contract.SUBJECT_FILE,
        Env.MESSAGE_FILE: contract.MESSAGE_FILE,
    }
    wait = container(
        "await-training",
        settings.job.image,
        ["python3", f"{contract.SCRIPTS}/await_job.py"],
        {**both, Env.JOB_NAMESPACE: settings.job.namespace, Env.STACK: settings.stack},
        mounts,
        "100m",
        "128Mi",
    )
    copy = container(
        "export",
        settings.export.image,
        ["bash", f"{contract.SCRIPTS}/export.sh"],
        {
            **both,
            Env.DONE_FILE: contract.DONE_FILE,
            Env.MADE_FROM_FILE: contract.MADE_FROM_FILE,
            **({Env.TOPIC_ARN: topic_arn} if topic_arn is not None else {}),
        },
        mounts,
        "500m",
        "512Mi",
    )
    return {
        # A second pod would send a second message. The AWS CLI repeats requests that failed.
        "backoff_limit": 0,
        "pod_failure_policy": {"rules": [IGNORE_LOST_NODE]},
        "template": pod(NAME, account, [volume, code, outcome], [copy], [wait]),
    }
