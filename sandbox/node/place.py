"""A pod's place: its object, its address and the cluster around it, and what can be looked up from there."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from sandbox.cluster.api import SECRET, Api, Kind, Object


class NotYetError(Exception):
    """Something the pod needs is not there yet; it is tried again."""


class UnsupportedError(Exception):
    """The pod asks for something that this node does not do; the message says what."""


@dataclass(frozen=True)
class Place:
    """Where a pod runs: what the downward API and the service variables tell."""

    api: Api
    pod: Object
    pod_ip: str
    host_ip: str


def field(place: Place, path: str) -> str:
    """A field of the pod, by the downward API's path."""
    metadata, spec = place.pod["metadata"], place.pod["spec"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = metadata.get(path.split(".")[1], {})
        return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
    }
    if path not in known:
        raise UnsupportedError(f"fieldRef {path!r} is not one of {', '.join(known)}")
    return str(known[path])


def contents(place: Place, kind: Kind, name: str, optional: bool) -> dict[str, bytes]:
    """The entries of a ConfigMap or a Secret of the pod's namespace."""
    found = place.api.find(kind, place.pod["metadata"]["namespace"], name)
    if found is None:
        if optional:
            return {}
        raise NotYetError(f"{kind.kind} {name} is not there")
    if kind is SECRET:
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return texts | {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
