"""The kubeconfig of the cluster."""

from typing import Any

import yaml

from settings.credentials import CliCredentials


def kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str, credentials: CliCredentials) -> str:
    """A kubeconfig that gets a new token from the AWS CLI for each session."""
    command = ["eks", "get-token", "--cluster-name", name, "--output", "json"]
    environment = [{"name": key, "value": value} for key, value in credentials.environment.items()]
    executable: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": [*credentials.options, "--region", region, *command, *credentials.token_options],
        "interactiveMode": "Never",
    }
    if environment:
        executable["env"] = environment
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority},
                }
            ],
            "users": [{"name": name, "user": {"exec": executable}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )
