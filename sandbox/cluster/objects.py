"""The fields of Kubernetes objects that the node reads. A field that an object does not have is absent."""

from __future__ import annotations

from typing import TypedDict

from tools.kubernetes_client import Object


class Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]
    deletionTimestamp: str
    deletionGracePeriodSeconds: int


class VolumeMount(TypedDict, total=False):
    name: str
    mountPath: str
    readOnly: bool


class Container(TypedDict, total=False):
    name: str
    image: str
    command: list[str]
    env: list[Object]
    volumeMounts: list[VolumeMount]
    securityContext: Object
    terminationMessagePolicy: str


class PodSpec(TypedDict, total=False):
    nodeName: str
    hostname: str
    restartPolicy: str
    securityContext: Object
    serviceAccountName: str
    volumes: list[Object]
    initContainers: list[Container]
    containers: list[Container]


class PodStatus(TypedDict, total=False):
    phase: str
    podIP: str


class Pod(TypedDict, total=False):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus


class NodeAddress(TypedDict):
    type: str
    address: str


class NodeSpec(TypedDict, total=False):
    podCIDR: str


class NodeStatus(TypedDict, total=False):
    addresses: list[NodeAddress]
    daemonEndpoints: Object


class Node(TypedDict, total=False):
    metadata: Metadata
    spec: NodeSpec
    status: NodeStatus
