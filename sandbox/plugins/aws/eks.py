"""EKS: clusters, node groups, add-ons and access entries."""

from __future__ import annotations

from typing import Any

from sandbox.plugins.aws.cloud import Cloud, only, plain
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    REPLACES,
    REQUIRED,
    block,
    flag,
    number,
    ordered,
    text,
    texts,
)
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, status, tag_changes
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State

UPDATE_SECONDS = 3600
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _parts(identity: str, separator: str, form: str) -> list[str]:
    parts = identity.split(separator, form.count(separator))
    if len(parts) != form.count(separator) + 1:
        raise ProviderError(f"the id has the form {form}, not {identity!r}")
    return parts


def _retag(cloud: Cloud, arn: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("eks:UntagResource", resourceArn=arn, tagKeys=removed)
    if tags:
        cloud("eks:TagResource", resourceArn=arn, tags=tags)


def _finished(cloud: Cloud, answer: Any, **where: str) -> None:
    """Wait for an update that EKS runs in the background."""
    identity = answer["update"]["id"]

    def over() -> bool | None:
        update = cloud("eks:DescribeUpdate", updateId=identity, **where)["update"]
        if update["status"] in ("Failed", "Cancelled"):
            reasons = "; ".join(each.get("errorMessage", "") for each in update.get("errors", []))
            raise ProviderError(f"EKS update {update['type']} of {where['name']}: {update['status']}: {reasons}")
        return True if update["status"] == "Successful" else None

    cloud.until(over, f"EKS update {identity} of {where['name']}", UPDATE_SECONDS)


# Cluster


def _create_cluster(cloud: Cloud, want: Checked) -> str:
    given = want | {"resourcesVpcConfig": want["vpcConfig"]} | _encryption(want)
    parameters: dict[str, Any] = {"tags": want["tagsAll"]}
    if logs := want.get("enabledClusterLogTypes"):
        parameters["logging"] = {"clusterLogging": [{"types": sorted(logs), "enabled": True}]}
    return str(cloud("eks:CreateCluster", given, **parameters)["cluster"]["name"])


def _encryption(want: Checked) -> State:
    """The API has a list with one item."""
    return {"encryptionConfig": [want["encryptionConfig"]]} if want.get("encryptionConfig") else {}


def _read_cluster(cloud: Cloud, identity: str, before: Checked) -> State:
    cluster = cloud("eks:DescribeCluster", name=identity)["cluster"]
    answered = plain(cluster)
    enabled = [kind for each in cluster["logging"]["clusterLogging"] if each["enabled"] for kind in each["types"]]
    # DescribeCluster does not return this option.
    bootstrap = (before.get("accessConfig") or {}).get("bootstrapClusterCreatorAdminPermissions")
    encryption = answered.get("encryptionConfig") or [None]
    return {
        **answered,
        "accessConfig": {
            **answered.get("accessConfig", {}),
            "bootstrapClusterCreatorAdminPermissions": bootstrap,
        },
        "identities": [{"oidcs": [{"issuer": answered["identity"]["oidc"]["issuer"]}]}],
        "enabledClusterLogTypes": sorted(enabled),
        "encryptionConfig": encryption[0],
        "vpcConfig": answered["resourcesVpcConfig"],
        "tagsAll": cluster.get("tags") or {},
    }


def _update_cluster(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cluster = {"name": identity}
    if "version" in changed:
        _finished(cloud, cloud("eks:UpdateClusterVersion", **cluster, version=want["version"]), **cluster)
    # The official provider adds a key, and ignores another one.
    if "encryptionConfig" in changed and not have.get("encryptionConfig"):
        given = _encryption(want)
        answer = cloud("eks:AssociateEncryptionConfig", given, clusterName=identity)
        _finished(cloud, answer, **cluster)
    # EKS accepts one kind of change at a time.
    for name in ("accessConfig", "upgradePolicy"):
        if name in changed:
            _finished(cloud, cloud("eks:UpdateClusterConfig", {name: want[name]}, **cluster), **cluster)
    if "vpcConfig" in changed:
        network = {name: value for name, value in want["vpcConfig"].items() if have["vpcConfig"].get(name) != value}
        answer = cloud("eks:UpdateClusterConfig", {"resourcesVpcConfig": network}, **cluster)
        _finished(cloud, answer, **cluster)
    if "enabledClusterLogTypes" in changed:
        wanted = set(want.get("enabledClusterLogTypes") or [])
        setups = [
            {"types": sorted(wanted), "enabled": True},
            {"types": sorted(set(LOG_TYPES) - wanted), "enabled": False},
        ]
        logging = {"clusterLogging": [setup for setup in setups if setup["types"]]}
        _finished(cloud, cloud("eks:UpdateClusterConfig", **cluster, logging=logging), **cluster)
    _retag(cloud, have["arn"], have, want, changed)


def _encryption_forces(state: Checked, want: Checked) -> list[str]:
    """The encryption of secrets cannot be turned off."""
    return ["encryptionConfig"] if state.get("encryptionConfig") and not want.get("encryptionConfig") else []


def _delete_cluster(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("eks:DeleteCluster", name=identity)


# Node group


def _create_group(cloud: Cloud, want: Checked) -> str:
    given = want | {"nodeRole": want["nodeRoleArn"], "subnets": want["subnetIds"]}
    parameters = {"nodegroupName": want["nodeGroupName"], "tags": want["tagsAll"]}
    cloud("eks:CreateNodegroup", given, **parameters)
    return f"{want['clusterName']}:{want['nodeGroupName']}"


def _read_group(cloud: Cloud, identity: str, before: Checked) -> State:
    cluster, name = _parts(identity, ":", "CLUSTER:NODEGROUP")
    group = cloud("eks:DescribeNodegroup", clusterName=cluster, nodegroupName=name)["nodegroup"]
    answered = plain(group)
    resources = answered.get("resources") or {}
    return {
        **answered,
        "arn": group["nodegroupArn"],
        "nodeGroupName": name,
        "nodeRoleArn": group["nodeRole"],
        "subnetIds": group["subnets"],
        "resources": [
            {
                "autoscalingGroups": [{"name": each["name"]} for each in resources.get("autoScalingGroups", [])],
                "remoteAccessSecurityGroupId": resources.get("remoteAccessSecurityGroup", ""),
            }
        ],
        "tagsAll": group.get("tags") or {},
    }


def _update_group(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cluster, name = _parts(identity, ":", "CLUSTER:NODEGROUP")
    group = {"clusterName": cluster, "nodegroupName": name}
    here = {"name": cluster, "nodegroupName": name}
    if changed & {"version", "launchTemplate"}:
        given = {each: want.get(each) for each in ("version", "launchTemplate")}
        _finished(cloud, cloud("eks:UpdateNodegroupVersion", given, **group), **here)
    if settings := changed & {"scalingConfig", "updateConfig"}:
        given = {each: want[each] for each in sorted(settings)}
        _finished(cloud, cloud("eks:UpdateNodegroupConfig", given, **group), **here)
    _retag(cloud, have["arn"], have, want, changed)


def _delete_group(cloud: Cloud, identity: str, state: Checked) -> None:
    cluster, name = _parts(identity, ":", "CLUSTER:NODEGROUP")
    cloud("eks:DeleteNodegroup", clusterName=cluster, nodegroupName=name)


# Add-on


def _create_addon(cloud: Cloud, want: Checked) -> str:
    given = want | {"resolveConflicts": want.get("resolveConflictsOnCreate")}
    cloud("eks:CreateAddon", given, tags=want["tagsAll"])
    return f"{want['clusterName']}:{want['addonName']}"


def _addon(identity: str) -> dict[str, str]:
    cluster, name = _parts(identity, ":", "CLUSTER:ADDON")
    return {"clusterName": cluster, "addonName": name}


def _read_addon(cloud: Cloud, identity: str, before: Checked) -> State:
    addon = cloud("eks:DescribeAddon", **_addon(identity))["addon"]
    return {**plain(addon), "arn": addon["addonArn"], "tagsAll": addon.get("tags") or {}}


def _update_addon(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if changed & {"addonVersion", "configurationValues", "serviceAccountRoleArn"}:
        names = ("addonVersion", "configurationValues", "serviceAccountRoleArn")
        given = {name: want[name] for name in names if want.get(name)}
        given["resolveConflicts"] = want.get("resolveConflictsOnUpdate")
        answer = cloud("eks:UpdateAddon", given, **_addon(identity))
        _finished(cloud, answer, name=want["clusterName"], addonName=want["addonName"])
    _retag(cloud, have["arn"], have, want, changed)


def _delete_addon(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("eks:DeleteAddon", **_addon(identity))


# Access entries


def _create_entry(cloud: Cloud, want: Checked) -> str:
    cloud("eks:CreateAccessEntry", want, tags=want["tagsAll"])
    return f"{want['clusterName']}:{want['principalArn']}"


def _entry(identity: str) -> dict[str, str]:
    cluster, principal = _parts(identity, ":", "CLUSTER:PRINCIPALARN")
    return {"clusterName": cluster, "principalArn": principal}


def _read_entry(cloud: Cloud, identity: str, before: Checked) -> State:
    entry = cloud("eks:DescribeAccessEntry", **_entry(identity))["accessEntry"]
    return {**plain(entry), "tagsAll": entry.get("tags") or {}}


def _update_entry(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    _retag(cloud, have["accessEntryArn"], have, want, changed)


def _delete_entry(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("eks:DeleteAccessEntry", **_entry(identity))


def _associate(cloud: Cloud, want: Checked) -> str:
    cloud("eks:AssociateAccessPolicy", want)
    return "#".join((want["clusterName"], want["principalArn"], want["policyArn"]))


def _association(identity: str) -> dict[str, str]:
    names = ("clusterName", "principalArn", "policyArn")
    return dict(zip(names, _parts(identity, "#", "CLUSTER#PRINCIPALARN#POLICYARN"), strict=True))


def _read_association(cloud: Cloud, identity: str, before: Checked) -> State:
    place = _association(identity)
    arn = place.pop("policyArn")
    associated = cloud.pages("eks:ListAssociatedAccessPolicies", "associatedAccessPolicies", **place)
    return {**plain(only(each for each in associated if each["policyArn"] == arn)), **place}


def _disassociate(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("eks:DisassociateAccessPolicy", **_association(identity))


ROWS = [
    Row(
        "aws:eks/cluster:Cluster",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "roleArn": text(REQUIRED | REPLACES),
            "version": text(COMPUTED),
            "vpcConfig": block(
                {
                    "subnetIds": texts(REQUIRED),
                    "securityGroupIds": texts(),
                    "endpointPrivateAccess": flag(default=False),
                    "endpointPublicAccess": flag(default=True),
                    "publicAccessCidrs": texts(COMPUTED),
                },
                REQUIRED,
            ),
            "accessConfig": block(
                {
                    "authenticationMode": text(COMPUTED),
                    "bootstrapClusterCreatorAdminPermissions": flag(REPLACES | LOCAL),
                },
                COMPUTED,
            ),
            "bootstrapSelfManagedAddons": flag(REPLACES | LOCAL, default=True),
            "enabledClusterLogTypes": texts(),
            "encryptionConfig": block(
                {"provider": block({"keyArn": text(REQUIRED)}, REQUIRED), "resources": texts(REQUIRED)}
            ),
            "upgradePolicy": block({"supportType": text(COMPUTED)}, COMPUTED),
            **TAGS,
        },
        outputs=["arn", "certificateAuthority", "endpoint", "identities", "status"],
        autoname=Autoname(),
        create=_create_cluster,
        read=_read_cluster,
        update=_update_cluster,
        delete=_delete_cluster,
        forces=_encryption_forces,
        ready=status("status", "ACTIVE", "FAILED"),
        seconds=1800,
    ),
    Row(
        "aws:eks/nodeGroup:NodeGroup",
        inputs={
            "clusterName": text(REQUIRED | REPLACES),
            "nodeGroupName": text(REPLACES | COMPUTED),
            "nodeRoleArn": text(REQUIRED | REPLACES),
            "subnetIds": texts(REQUIRED | REPLACES),
            "scalingConfig": block(
                {"desiredSize": number(REQUIRED), "maxSize": number(REQUIRED), "minSize": number(REQUIRED)}, REQUIRED
            ),
            "amiType": text(REPLACES | COMPUTED),
            "capacityType": text(REPLACES | COMPUTED),
            "instanceTypes": ordered(REPLACES | COMPUTED),
            "launchTemplate": block({"id": text(REPLACES | COMPUTED), "version": text(REQUIRED)}),
            "updateConfig": block({"maxUnavailable": number()}, COMPUTED),
            "version": text(COMPUTED),
            **TAGS,
        },
        outputs=["arn", "resources", "status"],
        autoname=Autoname("nodeGroupName"),
        create=_create_group,
        read=_read_group,
        update=_update_group,
        delete=_delete_group,
        ready=status("status", "ACTIVE", "CREATE_FAILED"),
        seconds=3600,
    ),
    Row(
        "aws:eks/addon:Addon",
        inputs={
            "clusterName": text(REQUIRED | REPLACES),
            "addonName": text(REQUIRED | REPLACES),
            "addonVersion": text(COMPUTED),
            "configurationValues": text(COMPUTED),
            "resolveConflictsOnCreate": text(LOCAL),
            "resolveConflictsOnUpdate": text(LOCAL),
            "serviceAccountRoleArn": text(),
            **TAGS,
        },
        outputs=["arn"],
        create=_create_addon,
        read=_read_addon,
        update=_update_addon,
        delete=_delete_addon,
        ready=status("status", "ACTIVE", "CREATE_FAILED", "DEGRADED"),
        seconds=1200,
    ),
    Row(
        "aws:eks/accessEntry:AccessEntry",
        inputs={
            "clusterName": text(REQUIRED | REPLACES),
            "principalArn": text(REQUIRED | REPLACES),
            **TAGS,
        },
        outputs=["accessEntryArn"],
        create=_create_entry,
        read=_read_entry,
        update=_update_entry,
        delete=_delete_entry,
    ),
    Row(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        inputs={
            "clusterName": text(REQUIRED | REPLACES),
            "principalArn": text(REQUIRED | REPLACES),
            "policyArn": text(REQUIRED | REPLACES),
            "accessScope": block({"type": text(REQUIRED)}, REQUIRED | REPLACES),
        },
        outputs=[],
        create=_associate,
        read=_read_association,
        delete=_disassociate,
    ),
]
