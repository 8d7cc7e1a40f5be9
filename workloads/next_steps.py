"""Commands to use after `pulumi up`."""

import json
import shlex

import pulumi

from settings.credentials import CliCredentials, cli_credentials
from settings.schema import Settings
from workloads.in_pod import contract
from workloads.volume import CLAIM, POD_VOLUME

LOOK = "look-into-volume"


def next_steps(settings: Settings, model: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """Commands for the cluster, the training, the volume, the workers and the model, and to delete everything."""
    job, credentials = settings.job, cli_credentials(settings.aws)
    steps: dict[str, pulumi.Input[str]] = {
        "useCluster": shlex.join(
            [
                *(f"{key}={value}" for key, value in credentials.environment.items()),
                *("aws", *credentials.options, "eks", "update-kubeconfig"),
                *("--region", settings.region, "--name", settings.cluster_name),
                *credentials.token_options[:2],
            ]
        ),
        "followTraining": (
            f"kubectl --namespace {job.namespace} logs --follow --prefix --selector job-name={job.name} "
            f"--max-log-requests {settings.trainers}"
        ),
    }
    if not settings.paused:
        steps["lookIntoVolume"] = _look_into_volume(settings)
        steps["shellOnWorker"] = _shell_on_worker(settings, credentials)
    if not settings.retain_data:
        steps["deleteStackAndData"] = "pulumi destroy  # deletes the file system and the bucket, with all models"
    if settings.export.enabled:
        steps["fetchModel"] = pulumi.Output.from_input(model).apply(lambda folder: fetch_model(settings, folder))
    return steps


def fetch_model(settings: Settings, folder: str) -> str:
    """Copies the newest checkpoint. Fails if there is none: `aws s3 cp --recursive` alone would copy nothing."""
    region = f"--region {settings.region}"
    find = f"aws s3 cp {region} {folder}{contract.NEWEST_FILE} -"
    return f"""sh -c 'model=$({find}) && aws s3 cp {region} --recursive "$model" ./model'"""


def _look_into_volume(settings: Settings) -> str:
    """A pod with the volume in /mnt, which is deleted when its shell ends."""
    container = {
        "name": LOOK,
        "image": settings.export.image,
        "command": ["bash"],
        "stdin": True,
        "tty": True,
        "workingDir": "/mnt",
        "volumeMounts": [{"name": POD_VOLUME, "mountPath": "/mnt"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": POD_VOLUME, "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    command = ["kubectl", "--namespace", settings.job.namespace, "run", LOOK, "--rm", "--stdin", "--tty"]
    overrides = f"--overrides={json.dumps({'spec': spec}, separators=(',', ':'))}"
    return shlex.join([*command, "--restart=Never", f"--image={settings.export.image}", overrides])


def _shell_on_worker(settings: Settings, credentials: CliCredentials) -> str:
    """Session Manager, or SSH if the stack has a key, on one of the workers."""
    aws = shlex.join(
        [*(f"{key}={value}" for key, value in credentials.environment.items()), "aws", *credentials.options]
    )
    address = "PublicDnsName" if settings.nat_gateways == "none" else "PrivateDnsName"
    wanted = address if settings.ssh_public_key else "InstanceId"
    worker = (
        f"{aws} ec2 describe-instances --region {settings.region} --output text "
        f"--filters Name=tag:Name,Values={settings.cluster_name}-worker Name=instance-state-name,Values=running "
        f"--query 'Reservations[0].Instances[0].{wanted}'"
    )
    if settings.ssh_public_key:
        return f'ssh ec2-user@"$({worker})"'
    return f'{aws} ssm start-session --region {settings.region} --target "$({worker})"'
