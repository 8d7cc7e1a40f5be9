"""The state of a stack whose engine was killed, as `pulumi stack export` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        return self.urn.rpartition("::")[2]


def unfinished(deployment: Mapping[str, Any]) -> list[Unfinished]:
    operations = deployment.get("pending_operations") or []
    creates = [operation["resource"] for operation in operations if operation["type"] == "creating"]
    return [Unfinished(each["urn"], each["type"], each.get("inputs") or {}) for each in creates]


def existing(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The resources in the state, without those that the engine has deleted to create them again."""
    return [each for each in deployment.get("resources") or [] if not each.get("pendingReplacement")]


def known_ids(deployment: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Type and ID of each resource in the state."""
    return {(each["type"], each["id"]) for each in existing(deployment) if each.get("id")}


def live_urns(deployment: Mapping[str, Any]) -> set[str]:
    """The URNs of the resources that the stack has."""
    return {each["urn"] for each in existing(deployment) if not each.get("delete")}


def object_id(inputs: Mapping[str, Any]) -> str:
    """The ID of a Kubernetes object: its name, after its namespace if it has one."""
    metadata = inputs["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def provider(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of the AWS provider. A stack of an earlier version also has Pulumi's default one, without tags."""
    for each in deployment.get("resources") or []:
        inputs: Mapping[str, Any] = each.get("inputs") or {}
        if each["type"] == "pulumi:providers:aws" and "defaultTags" in inputs:
            return inputs
    return {}


def stack_tags(deployment: Mapping[str, Any]) -> dict[str, str]:
    """The tags of every resource of the stack. The state has them as JSON text."""
    tags: dict[str, str] = json.loads(provider(deployment).get("defaultTags", "{}")).get("tags", {})
    return tags


def adopt(deployment: Mapping[str, Any], found: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The state without pending operations, with the resources that exist in AWS.

    `found` has the IDs by URN. The first ID becomes the resource of the stack, unless the stack has one already. Every
    other ID is marked for deletion: the next `pulumi up` deletes it.
    """
    resources = list(deployment.get("resources") or [])
    live = live_urns(deployment)
    for operation in deployment.get("pending_operations") or []:
        resource = operation["resource"]
        if operation["type"] != "creating":
            continue
        for identity in found.get(resource["urn"], ()):
            # `pulumi refresh` reads the other outputs.
            adopted = {**resource, "id": identity, "outputs": resource.get("inputs") or {}}
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
