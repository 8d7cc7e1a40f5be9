"""The state of a stack whose engine was killed, as `pulumi stack export` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools import pulumi_state
from tools.pulumi_state import Deployment, Resource

AWS = "aws:"
KUBERNETES = "kubernetes:"


@dataclass(frozen=True)
class Unfinished:
    """A resource that the engine was creating when it was killed."""

    urn: str
    type: str
    inputs: Mapping[str, Any]

    @property
    def name(self) -> str:
        return pulumi_state.name_of(self.urn)


def unfinished(deployment: Deployment) -> list[Unfinished]:
    operations = pulumi_state.pending_operations(deployment)
    creates = [operation["resource"] for operation in operations if operation["type"] == "creating"]
    return [Unfinished(each["urn"], each["type"], each.get("inputs") or {}) for each in creates]


def planned(deployment: Deployment, creates: Iterable[Resource]) -> Deployment:
    """The state as if Pulumi had been killed while it created these resources."""
    return {**deployment, "pending_operations": [{"type": "creating", "resource": each} for each in creates]}


def existing(deployment: Deployment) -> list[Resource]:
    """The resources in the state, without those that the engine has deleted to create them again."""
    return [each for each in pulumi_state.resources(deployment) if not each.get("pendingReplacement")]


def known_ids(deployment: Deployment) -> set[tuple[str, str]]:
    """Type and ID of each resource in the state."""
    return {(each["type"], each["id"]) for each in existing(deployment) if each.get("id")}


def live_urns(deployment: Deployment) -> set[str]:
    """The URNs of the resources that the stack has."""
    return {each["urn"] for each in existing(deployment) if not each.get("delete")}


def object_id(inputs: Mapping[str, Any]) -> str:
    """The ID of a Kubernetes object: its name, after its namespace if it has one."""
    metadata = inputs["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def provider(deployment: Deployment) -> Mapping[str, Any]:
    """The inputs of the AWS provider. A stack of an earlier version also has Pulumi's default one, without tags."""
    for each in pulumi_state.resources(deployment):
        inputs: Mapping[str, Any] = each.get("inputs") or {}
        if each["type"] == "pulumi:providers:aws" and "defaultTags" in inputs:
            return inputs
    return {}


def stack_tags(deployment: Deployment) -> dict[str, str]:
    """The tags of every resource of the stack. The state has them as JSON text."""
    tags: dict[str, str] = json.loads(provider(deployment).get("defaultTags", "{}")).get("tags", {})
    return tags


def adopt(deployment: Deployment, found: Mapping[str, Sequence[str]]) -> Deployment:
    """The state without pending operations, with the resources that exist in AWS.

    `found` has the IDs by URN. The first ID becomes the resource of the stack, unless the stack has one already. Every
    other ID is marked for deletion: the next `pulumi up` deletes it.
    """
    resources = list(pulumi_state.resources(deployment))
    live = live_urns(deployment)
    for operation in pulumi_state.pending_operations(deployment):
        resource = operation["resource"]
        if operation["type"] != "creating":
            continue
        for identity in found.get(resource["urn"], ()):
            adopted = {**resource, "id": identity, "outputs": _outputs(resource, identity)}
            if resource["urn"] in live:
                adopted["delete"] = True
            live.add(resource["urn"])
            replaced = [each for each in resources if each.get("pendingReplacement") and each["urn"] == adopted["urn"]]
            if replaced and not adopted.get("delete"):
                # In the same place: a resource must be behind all that it depends on.
                resources[resources.index(replaced[0])] = adopted
            else:
                resources.append(adopted)
    return {**deployment, "resources": resources, "pending_operations": []}


def _outputs(resource: Resource, identity: str) -> dict[str, Any]:
    """The outputs from which `pulumi refresh` reads the others.

    The provider reads types that use Terraform's plugin framework by this `id`. Without any outputs it would import the
    resource, and forget which inputs it had generated.
    """
    inputs = resource.get("inputs") or {}
    return {**inputs, "id": identity} if resource["type"].startswith(AWS) else dict(inputs)
