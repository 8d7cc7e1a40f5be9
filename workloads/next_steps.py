"""Commands to use after `pulumi up`."""

import shlex

import pulumi

from settings.credentials import cli_credentials
from settings.schema import Settings


def next_steps(settings: Settings, model: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """Commands to connect kubectl, to follow the training, to download the model and to delete everything."""
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
    if not settings.retain_data:
        steps["deleteStackAndData"] = "pulumi destroy  # deletes the file system and the bucket, with all models"
    if settings.export.enabled:
        copy = f" ./model --recursive --region {settings.region}"
        steps["fetchModel"] = pulumi.Output.concat("aws s3 cp ", model, copy)
    return steps
