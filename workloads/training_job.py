"""The training Job has one pod for each trainer, with the ports and the environment of the tutorial."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from settings.aws_facts import TRAINER_MEMORY_MIB, AwsFacts
from settings.schema import Settings
from workloads.data_job import DataJob
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import IGNORE_LOST_NODE, Container, Mount, Needs, Variable, job, object_options, pod, pod_field
from workloads.namespace import Namespace
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.scripts import Scripts, ScriptsArgs, with_imports
from workloads.service_account import READ, ServiceAccount, ServiceAccountArgs
from workloads.volume import Volume


@dataclass(frozen=True)
class TrainingJobArgs:
    settings: Settings
    facts: AwsFacts
    namespace: Namespace
    volume: Volume
    data: DataJob


class TrainingJob(pulumi.ComponentResource):
    """`name` is known when the model is ready, or when the training has started if `up` does not wait for this Job.

    The Job has its name from the settings.
    """

    name: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:TrainingJob", name, None, opts)
        settings, namespace, child = args.settings, args.namespace.name, object_options(self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [{"api_groups": [""], "resources": ["pods"], "verbs": READ}]
        account = ServiceAccount(name, ServiceAccountArgs(namespace, rules, automount=True), child)
        network = NetworkPolicy(
            f"{settings.job.name}-network", NetworkPolicyArgs(settings.job.name, namespace, peers=True), child
        )
        scripts = Scripts(f"{name}-scripts", ScriptsArgs(namespace, with_imports("launch.py")), child)
        created = job(
            settings.job.name,
            namespace,
            training_job_spec(args, account.name, scripts.mount),
            settings.job.timeout_minutes,
            object_options(self, [*account.ready, *network.ready]),
            settings.paused,
            # With messages, `up` waits for the export Job, which must exist before a training can fail.
            settings.job.wait and not settings.notify.email,
        )
        self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})


def training_job_spec(
    args: TrainingJobArgs, account: pulumi.Input[str], scripts: Mount
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
    job_settings, pserver = settings.job, settings.pserver
    env: dict[str, Variable] = {
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
        Env.STALL_SECONDS: str(job_settings.stall_minutes * 60),
        Env.POD_NAME: pod_field("metadata.name"),
        Env.POD_UID: pod_field("metadata.uid"),
        Env.POD_IP: pod_field("status.podIP"),
        Env.JOB_UID: pod_field("metadata.labels['batch.kubernetes.io/controller-uid']"),
    }
    # Without a volume, Kubernetes gives a container only 64 MiB in /dev/shm.
    shared_memory: k8s.core.v1.VolumeArgsDict = {
        "name": "shared-memory",
        "empty_dir": {"medium": "Memory", "size_limit": f"{job_settings.shared_memory_gib}Gi"},
    }
    memory_limit = f"{args.facts.pod_memory_mib}Mi"
    trainer = Container(
        name="trainer",
        image=job_settings.image,
        command=job_settings.command,
        env=env,
        mounts=[args.volume.mount(contract.TRAINING_VOLUME), scripts, Mount(shared_memory, "/dev/shm")],
        needs=Needs("1", f"{TRAINER_MEMORY_MIB}Mi", memory_limit, job_settings.gpus_per_trainer),
        # The training code of the user may write anywhere.
        writable=True,
        # A host port can be used once per node, so no two trainers run on the same node.
        host_ports=pserver.host_ports,
    )
    rules = [IGNORE_LOST_NODE]
    # Without our launcher, the image's own command cannot count attempts, so Kubernetes counts failed pods.
    backoff_limit = job_settings.attempts - 1
    if job_settings.runs_launcher:
        # Only two failures count, and end the Job: the launcher's final one, and a command that cannot start, as in an
        # image without python3. Not FailJob: `pulumi up` waits for the end of such a Job until its timeout, because
        # the provider knows BackoffLimitExceeded and DeadlineExceeded only.
        not_final: k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgsDict = {
            "container_name": trainer.name,
            "operator": "NotIn",
            "values": [contract.FINAL_FAILURE, *contract.NOT_STARTED],
        }
        rules.append({"action": "Ignore", "on_exit_codes": not_final})
        backoff_limit = 0
    return {
        "parallelism": settings.trainers,
        "completions": settings.trainers,
        "completion_mode": "Indexed",
        "backoff_limit": backoff_limit,
        "pod_failure_policy": {"rules": rules},
        "template": pod(job_settings.name, account, [trainer], after=args.data.name),
    }
