"""A pod with its addresses and its API server, and the values that its volumes and variables take from there."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from sandbox.cluster.objects import Pod
from tools.kubernetes_client import SECRET, Api, Kind


class NotReadyError(Exception):
    """The pod needs an object that does not exist yet; the node tries again later."""


class UnsupportedError(Exception):
    """The pod asks for a feature that this node does not have; the message names the feature."""


@dataclass(frozen=True)
class PodContext:
    """A pod as its containers see it."""

    api: Api
    pod: Pod
    pod_ip: str
    host_ip: str

    @property
    def service_account(self) -> str:
        return self.pod["spec"].get("serviceAccountName", "default")

    @property
    def hostname(self) -> str:
        return self.pod["spec"].get("hostname") or self.pod["metadata"]["name"]

    def field(self, path: str) -> str:
        """The value of a `fieldRef`."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        pairs = {"labels": metadata.get("labels", {}), "annotations": metadata.get("annotations", {})}
        if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return pairs[match[1]].get(match[2], "")
        if match := re.fullmatch(r"metadata\.(labels|annotations)", path):
            return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs[match[1]].items()))
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": self.service_account,
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
            "status.podIP": self.pod_ip,
            "status.podIPs": self.pod_ip,
        }
        if path not in fields:
            raise UnsupportedError(f"fieldRef {path!r} is not supported; supported: {', '.join(fields)}")
        return fields[path]

    def entries(self, kind: Kind, name: str, optional: bool) -> dict[str, bytes]:
        """The entries of a ConfigMap or Secret in the pod's namespace."""
        found = self.api.find(kind, self.pod["metadata"]["namespace"], name)
        if found is None:
            if optional:
                return {}
            raise NotReadyError(f"{kind.kind} {name} does not exist")
        if kind is SECRET:
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return texts | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
