"""Tokens of a pod's service account. Only the container that mounts a token can use it.

Kubernetes and EKS would give all tokens of an account to every container of the pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi_kubernetes as k8s

from infra.service_account_role import ServiceAccountRole
from workloads.in_pod.contract import Env
from workloads.job import Mount, Variable

AWS_FOLDER = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
# The client libraries of Kubernetes look here.
API_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
SECONDS = 3600


@dataclass(frozen=True)
class Token:
    """What one container mounts, and its variables."""

    mount: Mount
    env: Mapping[str, Variable]


def aws_token(role: ServiceAccountRole) -> Token:
    """Gives a container the IAM role. The trust policy of the role names the service account of the pod."""
    source: k8s.core.v1.VolumeProjectionArgsDict = {
        "service_account_token": {"audience": "sts.amazonaws.com", "expiration_seconds": SECONDS, "path": "token"}
    }
    return Token(
        mount=Mount({"name": "aws-token", "projected": {"sources": [source]}}, AWS_FOLDER, read_only=True),
        env={Env.AWS_ROLE_ARN: role.arn, Env.AWS_TOKEN_FILE: f"{AWS_FOLDER}/token"},
    )


def api_token() -> Token:
    """Gives a container the permissions of the service account inside the cluster."""
    sources: list[k8s.core.v1.VolumeProjectionArgsDict] = [
        {"service_account_token": {"expiration_seconds": SECONDS, "path": "token"}},
        {"config_map": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    return Token(
        mount=Mount({"name": "api-token", "projected": {"sources": sources}}, API_FOLDER, read_only=True),
        env={},
    )
