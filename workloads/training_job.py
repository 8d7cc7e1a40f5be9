"""The training Job has one pod for each trainer, with the ports and the environment of the tutorial."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.naming import prefix
from settings.aws_facts import TRAINER_MEMORY_MIB
from settings.schema import Settings
from workloads import scripts
from workloads.access import READ, ServiceAccount, ServiceAccountArgs
from workloads.data_job import DataJob
from workloads.in_cluster import object_options
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import IGNORE_LOST_NODE, Needs, container, job, pod
from workloads.network_policy import NetworkPolicy, NetworkPolicyArgs
from workloads.volume import POD_VOLUME, Volume

ACCOUNT = "paddle-trainer"
LAUNCHER = f"{contract.SCRIPTS}/launch.py"
# Kubernetes gives a container only 64 MiB in /dev/shm.
SHARED_MEMORY = "shared-memory"


@dataclass(frozen=True)
class TrainingJobArgs:
    settings: Settings
    namespace: pulumi.Input[str]
    volume: Volume
    data: DataJob
    memory_limit: str


class TrainingJob(pulumi.ComponentResource):
    """`name` is known when the model is ready, or when the training has started if `up` does not wait for this Job."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:TrainingJob", name, None, opts)
        names, settings = prefix(name, "training"), args.settings
        child = object_options(self)
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [{"api_groups": [""], "resources": ["pods"], "verbs": READ}]
        account = ServiceAccount(
            f"{names}{ACCOUNT}", ServiceAccountArgs(ACCOUNT, args.namespace, rules, automount=True), child
        )
        network = NetworkPolicy(
            f"{names}{settings.job.name}-network",
            NetworkPolicyArgs(settings.job.name, args.namespace, peers=True),
            child,
        )
        shipped = scripts.Scripts(
            f"{names}paddle-trainer-scripts",
            scripts.ScriptsArgs(args.namespace, scripts.with_imports("launch.py")),
            child,
        )
        created = job(
            f"{names}{settings.job.name}",
            settings.job.name,
            args.namespace,
            training_job_spec(args, account.name, shipped.volume),
            settings.job.timeout_minutes,
            object_options(self, [*account.ready, *network.ready]),
            settings.paused,
            # With messages, `up` waits for the export Job, which must exist before a training can fail.
            settings.job.wait and not settings.notify.email,
        )
        self.name = created.metadata["name"]
        self.register_outputs({"name": self.name})


def training_job_spec(
    args: TrainingJobArgs, account: pulumi.Input[str], code: k8s.core.v1.VolumeArgsDict
) -> k8s.batch.v1.JobSpecArgsDict:
    settings = args.settings
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
        Env.STALL_SECONDS: str(job_settings.stall_minutes * 60),
    }
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"mount_path": contract.TRAINING_VOLUME, "name": POD_VOLUME},
        scripts.MOUNT,
        {"name": SHARED_MEMORY, "mount_path": "/dev/shm"},
    ]
    shared_memory: k8s.core.v1.VolumeArgsDict = {
        "name": SHARED_MEMORY,
        "empty_dir": {"medium": "Memory", "size_limit": f"{job_settings.shared_memory_gib}Gi"},
    }
    fields = {
        Env.POD_NAME: "metadata.name",
        Env.POD_UID: "metadata.uid",
        Env.POD_IP: "status.podIP",
        Env.JOB_UID: "metadata.labels['batch.kubernetes.io/controller-uid']",
    }
    needs = Needs("1", f"{TRAINER_MEMORY_MIB}Mi", args.memory_limit, job_settings.gpus_per_trainer)
    main = container("trainer", job_settings.image, job_settings.command, env, mounts, needs, fields)
    # A host port can be used once per node, so no two trainers run on the same node.
    main["ports"] = [
        {"name": f"jobport{i}", "host_port": port, "container_port": port} for i, port in enumerate(pserver.host_ports)
    ]
    rules = [IGNORE_LOST_NODE]
    # Without our launcher, the image's own command cannot count attempts, so Kubernetes counts failed pods.
    backoff_limit = job_settings.attempts - 1
    if any(LAUNCHER in word for word in job_settings.command):
        # Only two failures count, and end the Job: the launcher's final one, and a command that cannot start, as in an
        # image without python3. Not FailJob: `pulumi up` waits for the end of such
        # a Job until its timeout, because the provider knows BackoffLimitExceeded and DeadlineExceeded only.
        not_final: k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgsDict = {
            "container_name": main["name"],
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
        "template": pod(
            job_settings.name, account, [args.volume.pod_volume, code, shared_memory], [main], after=args.data.name
        ),
    }
