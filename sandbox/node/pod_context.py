"""A pod with its addresses and its API server, and the values that its volumes and variables take from there."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.cluster.objects import Pod
from tools.kubernetes_client import SECRET, Api, Kind

# The fields of a pod that work here, and those that only the scheduler and the controllers need.
POD_FIELDS = {
    "containers",
    "hostname",
    "initContainers",
    "nodeName",
    "restartPolicy",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "volumes",
}
IGNORED_POD_FIELDS = {
    "affinity",
    "automountServiceAccountToken",
    "dnsPolicy",
    "enableServiceLinks",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "schedulerName",
    "serviceAccount",
    "tolerations",
    "topologySpreadConstraints",
}


class NotReadyError(Exception):
    """The pod needs an object that does not exist yet; the node tries again later."""


class UnsupportedError(Exception):
    """The pod asks for a feature that this node does not have; the message names the feature."""


def refuse_others(what: str, given: Iterable[str], supported: Iterable[str]) -> None:
    """Refuse the fields that the program does not use."""
    if unknown := sorted(set(given) - set(supported)):
        raise UnsupportedError(f"{what}: {', '.join(unknown)} is not supported")


@dataclass(frozen=True)
class PodContext:
    """A pod as its containers see it."""

    api: Api
    pod: Pod
    pod_ip: str
    host_ip: str

    def check(self) -> None:
        spec = self.pod["spec"]
        refuse_others("pod", spec.keys(), POD_FIELDS | IGNORED_POD_FIELDS)
        refuse_others("pod: securityContext", spec.get("securityContext") or {}, {"seccompProfile"})
        if spec.get("restartPolicy") != "Never":
            raise UnsupportedError(f"pod: restartPolicy {spec.get('restartPolicy')} is not supported")

    @property
    def service_account(self) -> str:
        return self.pod["spec"].get("serviceAccountName", "default")

    @property
    def hostname(self) -> str:
        return self.pod["spec"].get("hostname") or self.pod["metadata"]["name"]

    def field(self, path: str) -> str:
        """The value of a `fieldRef`."""
        metadata = self.pod["metadata"]
        if match := re.fullmatch(r"metadata\.labels\['(.+)'\]", path):
            return metadata.get("labels", {}).get(match[1], "")
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "status.podIP": self.pod_ip,
        }
        refuse_others("fieldRef", [path], fields)
        return fields[path]

    def entries(self, kind: Kind, name: str) -> dict[str, bytes]:
        """The entries of a ConfigMap or Secret in the pod's namespace."""
        found = self.api.find(kind, self.pod["metadata"]["namespace"], name)
        if found is None:
            raise NotReadyError(f"{kind.kind} {name} does not exist")
        data = found.get("data") or {}
        return {key: base64.b64decode(value) if kind is SECRET else value.encode() for key, value in data.items()}
