"""The kinds of objects that the program creates. The emulated provider refuses all others."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.plugins.servicer import ProviderError, type_token
from tools.kubernetes_client import (
    CONFIG_MAP,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)


@dataclass(frozen=True)
class Rule:
    """A kind, and the fields that force a replacement as in the official provider, besides name and namespace."""

    kind: Kind
    replacing: tuple[str, ...] = ()


RBAC = "rbac.authorization.k8s.io/v1"
RULES = (
    Rule(Kind("apps/v1", "DaemonSet", "daemonsets", True), ("spec.selector",)),
    Rule(Kind("batch/v1", "Job", "jobs", True), ("spec.completions", "spec.parallelism", "spec.template")),
    Rule(Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", True)),
    Rule(Kind(RBAC, "Role", "roles", True)),
    Rule(Kind(RBAC, "RoleBinding", "rolebindings", True), ("roleRef",)),
    Rule(CONFIG_MAP, ("data",)),
    Rule(Kind("v1", "Namespace", "namespaces", False)),
    Rule(PERSISTENT_VOLUME, ("spec.csi", "spec.nfs")),
    Rule(PERSISTENT_VOLUME_CLAIM, ("spec.accessModes", "spec.storageClassName", "spec.volumeName")),
    Rule(SECRET, ("data",)),
    Rule(SERVICE_ACCOUNT),
)


def rule_of(urn: str) -> Rule:
    """The rule for the type kubernetes:GROUP/VERSION:KIND in a URN. The group core stands for v1 of the API."""
    token = type_token(urn)
    for rule in RULES:
        module = rule.kind.api_version if "/" in rule.kind.api_version else f"core/{rule.kind.api_version}"
        if token == f"kubernetes:{module}:{rule.kind.kind}":
            return rule
    raise ProviderError(
        f"the emulated Kubernetes provider has no {token}: the program does not create it. "
        "Add it to RULES in sandbox/plugins/kubernetes/kinds.py"
    )
