"""The export Job waits until the training ends, copies its results to the bucket, and sends a message about the end."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.notifications import Notifications
from infra.service_account_role import ServiceAccountRole
from settings.schema import Settings
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import IGNORE_LOST_NODE, Container, Mount, Needs, Variable, job, object_options, pod
from workloads.namespace import Namespace
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.scripts import Scripts, ScriptsArgs, with_imports
from workloads.service_account import READ, ServiceAccount, ServiceAccountArgs
from workloads.tokens import api_token, aws_token
from workloads.training_job import TrainingJob
from workloads.volume import Volume

COPY_MINUTES = 30


@dataclass(frozen=True)
class ExportJobArgs:
    """`destination` is the s3:// address that the results are copied to. With `notifications`, it sends messages."""

    settings: Settings
    role: ServiceAccountRole
    notifications: Notifications | None
    namespace: Namespace
    volume: Volume
    training: TrainingJob
    destination: pulumi.Input[str]


class ExportJob(pulumi.ComponentResource):
    def __init__(self, name: str, args: ExportJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:ExportJob", name, None, opts)
        settings, namespace, child = args.settings, args.namespace.name, object_options(self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": ["batch"], "resources": ["jobs"], "resource_names": [settings.job.name], "verbs": READ}
        ]
        account = ServiceAccount(name, ServiceAccountArgs(namespace, rules), child)
        network = NetworkPolicy(f"{name}-network", NetworkPolicyArgs(name, namespace), child)
        scripts = Scripts(f"{name}-scripts", ScriptsArgs(namespace, with_imports("await_job.py", "export.sh")), child)
        job(
            name,
            namespace,
            export_job_spec(name, args, account.name, scripts.mount),
            settings.job.timeout_minutes + COPY_MINUTES,
            object_options(self, [*account.ready, *network.ready, *args.role.ready]),
            settings.paused,
            settings.job.wait,
        )
        self.register_outputs({})


def export_job_spec(
    name: str, args: ExportJobArgs, account: pulumi.Input[str], scripts: Mount
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
    # The waiting container runs the image of the user, so it must not get the role that may write the results.
    api, role = api_token(), aws_token(args.role)
    mounts = [
        args.volume.mount(contract.EXPORT_VOLUME, read_only=True),
        scripts,
        Mount({"name": "outcome", "empty_dir": {}}, contract.OUTCOME_VOLUME),
    ]
    both: dict[str, Variable] = {
        Env.JOB_NAME: args.training.name,
        Env.OUTPUT_DIR: f"{contract.EXPORT_VOLUME}/{settings.job.name}/{contract.OUTPUT}",
        Env.DESTINATION: args.destination,
        Env.AWS_REGION: settings.region,
        Env.FAILURE_FILE: contract.FAILURE_FILE,
        Env.SUBJECT_FILE: contract.SUBJECT_FILE,
        Env.MESSAGE_FILE: contract.MESSAGE_FILE,
    }
    wait = Container(
        name="await-training",
        image=settings.job.image,
        command=["python3", f"{contract.SCRIPTS}/await_job.py"],
        env={**both, Env.JOB_NAMESPACE: settings.job.namespace, Env.STACK: settings.stack},
        mounts=[*mounts, api.mount],
        needs=Needs("100m", "128Mi", "512Mi"),
    )
    copy = Container(
        name="export",
        image=settings.export.image,
        command=["bash", f"{contract.SCRIPTS}/export.sh"],
        env={
            **both,
            Env.CHECKPOINT: contract.CHECKPOINT.pattern,
            Env.DONE_FILE: contract.DONE_FILE,
            Env.MADE_FROM_FILE: contract.MADE_FROM_FILE,
            Env.NEWEST_FILE: contract.NEWEST_FILE,
            Env.EXPORT_AGAIN: contract.run_again(name),
            Env.TRAINING_AGAIN: contract.run_again(settings.job.name),
            **({Env.TOPIC_ARN: args.notifications.topic.arn} if args.notifications else {}),
            **role.env,
        },
        mounts=[*mounts, role.mount],
        needs=Needs("500m", "512Mi", "2Gi"),
    )
    return {
        # A second pod would send a second message. The AWS CLI repeats requests that failed.
        "backoff_limit": 0,
        "pod_failure_policy": {"rules": [IGNORE_LOST_NODE]},
        "template": pod(name, account, [copy], [wait]),
    }
