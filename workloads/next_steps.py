"""Commands to use after `pulumi up`."""

import shlex

import pulumi

from settings.credentials import cli_credentials
from settings.schema import Settings


def next_steps(settings: Settings, model: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """Commands to connect kubectl, to follow the training and to download the model."""
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
    if settings.export.enabled:
        copy = f" ./model --recursive --region {settings.region}"
        steps["fetchModel"] = pulumi.Output.concat("aws s3 cp ", model, copy)
    return steps
