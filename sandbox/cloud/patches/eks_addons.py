"""Add-ons of EKS: their versions for each Kubernetes version, and what they need to become active."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moto.core.utils import utcnow
from moto.eks.exceptions import InvalidParameterException

KUBERNETES_VERSIONS = ("1.32", "1.33", "1.34", "1.35", "1.36")
# EKS installs copies of these in each new cluster, unless bootstrapSelfManagedAddons is false.
BOOTSTRAPPED = ("coredns", "kube-proxy", "vpc-cni")
NETWORK = "vpc-cni"
# Their pods are a Deployment. Without nodes it has no available replicas.
DEPLOYMENTS = ("aws-ebs-csi-driver", "aws-efs-csi-driver", "coredns", "metrics-server")
DEFAULT_VERSIONS = {
    "amazon-cloudwatch-observability": "v4.4.0-eksbuild.1",
    "aws-ebs-csi-driver": "v1.48.0-eksbuild.1",
    "aws-efs-csi-driver": "v2.1.11-eksbuild.1",
    "coredns": "v1.{minor}.4-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.8-eksbuild.2",
    "kube-proxy": "v{kubernetes}.0-eksbuild.2",
    "metrics-server": "v0.8.0-eksbuild.2",
    "vpc-cni": "v1.20.3-eksbuild.1",
}


@dataclass
class Addon:
    """An add-on of a cluster. `conflict` means that EKS did not overwrite a self-managed copy."""

    addon_name: str
    cluster_name: str
    addon_version: str
    addon_arn: str
    configuration_values: str | None
    service_account_role_arn: str | None
    tags: dict[str, str]
    cluster: Any
    conflict: bool = False
    created_at: datetime = field(default_factory=utcnow)
    modified_at: datetime = field(default_factory=utcnow)

    @property
    def status(self) -> str:
        if self.conflict:
            return "CREATE_FAILED"
        return "DEGRADED" if self._replicas_are_missing else "ACTIVE"

    @property
    def health(self) -> dict[str, list[dict[str, str]]]:
        issues = []
        if self.conflict:
            issues.append({"code": "ConfigurationConflict", "message": "Conflicts found when trying to apply."})
        if self._replicas_are_missing:
            message = "The add-on is unhealthy because it doesn't have the desired number of replicas."
            issues.append({"code": "InsufficientNumberOfReplicas", "message": message})
        return {"issues": issues}

    @property
    def _replicas_are_missing(self) -> bool:
        return self.addon_name in DEPLOYMENTS and not node_groups(self.cluster)


def check_kubernetes_version(version: str | None) -> None:
    if version is not None and version not in KUBERNETES_VERSIONS:
        raise InvalidParameterException(message=f"unsupported Kubernetes version {version}")


def supported_versions(name: str | None, kubernetes: str | None) -> Iterator[dict[str, Any]]:
    """The answer of DescribeAddonVersions: each add-on with its versions, the newest first."""
    asked = [kubernetes] if kubernetes else KUBERNETES_VERSIONS
    for addon in [name] if name else DEFAULT_VERSIONS:
        versions: dict[str, list[dict[str, Any]]] = {}
        for each in asked:
            if addon in DEFAULT_VERSIONS and each in KUBERNETES_VERSIONS:
                default = default_version(addon, each)
                for version in (_newer(default), default):
                    compatible = {"clusterVersion": each, "platformVersions": ["*"]}
                    versions.setdefault(version, []).append({**compatible, "defaultVersion": version == default})
        if versions:
            listed = [{"addonVersion": version, "compatibilities": each} for version, each in versions.items()]
            yield {"addonName": addon, "type": "networking", "addonVersions": listed}


def check_addon_version(name: str, version: str, kubernetes: str) -> None:
    default = default_version(name, kubernetes)
    if version not in (default, _newer(default)):
        raise InvalidParameterException(message="Addon version specified is not supported")


def default_version(name: str, kubernetes: str) -> str:
    """The version that EKS recommends for a cluster."""
    if name not in DEFAULT_VERSIONS:
        raise InvalidParameterException(message=f"Addon {name} specified is not supported")
    return DEFAULT_VERSIONS[name].format(kubernetes=kubernetes, minor=kubernetes.partition(".")[2])


def _newer(version: str) -> str:
    head, _, build = version.rpartition(".")
    return f"{head}.{int(build) + 1}"


def node_groups(cluster: Any) -> list[Any]:
    """The node groups that have nodes."""
    return [group for group in cluster.nodegroups.values() if (group.scaling_config or {}).get("desiredSize", 1)]


def is_installed(cluster: Any, name: str) -> bool:
    """Whether the add-on, or its self-managed copy, is in the cluster."""
    return name in cluster.self_managed or name in cluster.addons


def nodes_can_start(cluster: Any) -> bool:
    """Without a network plugin, nodes do not become ready."""
    return is_installed(cluster, NETWORK)


def overwrites(cluster: Any, name: str, resolve_conflicts: str | None) -> bool:
    """Whether a new add-on can replace the self-managed copy, if there is one."""
    copies: Collection[str] = cluster.self_managed
    return name not in copies or resolve_conflicts == "OVERWRITE"
