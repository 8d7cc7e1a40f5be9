"""EKS patches: add-ons, access entries and access policies, updates in place, and missing fields of clusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.eks import models, urls
from moto.eks.exceptions import (
    InvalidParameterException,
    InvalidRequestException,
    ResourceInUseException,
    ResourceNotFoundException,
)
from moto.eks.models import Cluster, EKSBackend, Nodegroup, eks_backends
from moto.eks.responses import EKSResponse
from moto.iam.models import iam_backends
from moto.moto_api._internal import mock_random
from moto.sts.models import sts_backends

from sandbox.cloud.patches import eks_addons, eks_rules, sts
from sandbox.cloud.patches.eks_addons import Addon

VERSION = "1.35"
ACCESS_POLICIES = {
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    "AmazonEKSClusterAdminPolicy",
    "AmazonEKSEditPolicy",
    "AmazonEKSViewPolicy",
}
ADMIN_POLICY = "AmazonEKSClusterAdminPolicy"
DNS_SUFFIXES = {"aws-cn": "amazonaws.com.cn"}


class AccessScope(TypedDict):
    """Where an access policy applies: in the cluster or in some namespaces."""

    type: str
    namespaces: list[str]


class AssociatedPolicy(TypedDict):
    """An access policy of an access entry."""

    policyArn: str
    accessScope: AccessScope
    associatedAt: datetime
    modifiedAt: datetime


class Update(TypedDict):
    """A finished update of a cluster, a node group or an add-on."""

    id: str
    status: str
    type: str
    params: list[dict[str, str]]
    createdAt: datetime
    errors: list[str]


@dataclass
class AccessEntry:
    """An IAM principal that may use a cluster, with its access policies."""

    cluster_name: str
    principal_arn: str
    access_entry_arn: str
    kubernetes_groups: list[str]
    username: str
    type: str
    tags: dict[str, str]
    created_at: datetime = field(default_factory=utcnow)
    modified_at: datetime = field(default_factory=utcnow)
    policies: dict[str, AssociatedPolicy] = field(default_factory=dict)


def _missing(message: str) -> ResourceNotFoundException:
    return ResourceNotFoundException(
        clusterName=None, nodegroupName=None, fargateProfileName=None, addonName=None, message=message
    )


def _in_use(message: str) -> ResourceInUseException:
    return ResourceInUseException(clusterName=None, nodegroupName=None, addonName=None, message=message)


class Backend(EKSBackend):
    """moto's EKS backend with the missing features."""

    # moto finds the URLs of a backend by its module name.
    __module__ = models.__name__

    def create_cluster(  # type: ignore[override]
        self, name: str, role_arn: str, resources_vpc_config: dict[str, Any], **given: Any
    ) -> Cluster:
        access, upgrade = given.pop("access_config", None) or {}, given.pop("upgrade_policy", None)
        caller = given.pop("caller")
        bootstrap = given.pop("bootstrap_self_managed_addons", None)
        eks_addons.check_kubernetes_version(given.get("version"))
        eks_rules.check_encryption(self.account_id, self.region_name, caller, given["encryption_config"])
        ec2 = ec2_backends[self.account_id][self.region_name]
        subnet_ids = resources_vpc_config.get("subnetIds") or []
        subnets = [ec2.get_subnet(each) for each in subnet_ids]
        if len({subnet.availability_zone for subnet in subnets}) < 2:
            raise InvalidParameterException(message="Subnets specified must be in at least two different AZs")
        eks_rules.check_cluster_zones((each.availability_zone, each.availability_zone_id) for each in subnets)
        if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", name):
            raise InvalidParameterException(message="The cluster name is not valid")
        vpc_id = subnets[0].vpc_id
        cluster: Any = super().create_cluster(
            name=name,
            role_arn=role_arn,
            resources_vpc_config={
                "subnetIds": subnet_ids,
                "securityGroupIds": [],
                "endpointPublicAccess": True,
                "endpointPrivateAccess": False,
                "publicAccessCidrs": ["0.0.0.0/0"],
                "vpcId": vpc_id,
                **resources_vpc_config,
            },
            **given,
        )
        cluster.zones = {subnet.availability_zone for subnet in subnets}
        identity = mock_random.get_random_hex(32).upper()
        suffix = DNS_SUFFIXES.get(self.partition, "amazonaws.com")
        cluster.identity = {"oidc": {"issuer": f"https://oidc.eks.{self.region_name}.{suffix}/id/{identity}"}}
        cluster.endpoint = f"https://{identity}.gr7.{self.region_name}.eks.{suffix}"
        cluster.kubernetes_network_config = {"ipFamily": "ipv4", **cluster.kubernetes_network_config}
        cluster.platform_version = cluster.platformVersion
        cluster.access_config = {"authenticationMode": access.get("authenticationMode", "CONFIG_MAP")}
        cluster.upgrade_policy = upgrade or {"supportType": "EXTENDED"}
        cluster.addons, cluster.access_entries, cluster.updates = {}, {}, {}
        cluster.self_managed = set() if bootstrap is False else set(eks_addons.BOOTSTRAPPED)
        group = ec2.create_security_group(
            name=f"eks-cluster-sg-{name}-{int(identity[:8], 16)}",
            description="EKS created security group applied to ENI that is attached to EKS Control Plane master nodes",
            vpc_id=vpc_id,
        )
        cluster.resources_vpc_config["clusterSecurityGroupId"] = group.id
        if access.get("bootstrapClusterCreatorAdminPermissions", True) and _has_access_entries(cluster):
            entry = self._add_access_entry(cluster, caller, "STANDARD")
            policy = f"{self._access_policies}/{ADMIN_POLICY}"
            self.associate_access_policy(name, entry.principal_arn, policy, {"type": "cluster", "namespaces": []})
        return cluster  # type: ignore[no-any-return]

    def delete_cluster(self, name: str) -> Cluster:
        cluster: Any = super().delete_cluster(name)
        ec2 = ec2_backends[self.account_id][self.region_name]
        ec2.delete_security_group(group_id=cluster.resources_vpc_config["clusterSecurityGroupId"])
        return cluster  # type: ignore[no-any-return]

    def update_cluster(self, name: str, kind: str, **changes: Any) -> Update:
        """Change only the given fields of a cluster, as EKS does."""
        cluster: Any = self.describe_cluster(name)
        network = changes.get("resources_vpc_config") or {}
        eks_rules.check_subnets(self.account_id, self.region_name, cluster, network.get("subnetIds") or [])
        for attribute, value in changes.items():
            if value is None:
                continue
            old: Any = getattr(cluster, attribute, None)
            if attribute == "logging":
                value = _merged_logging(old, value)
            if attribute == "version":
                eks_rules.check_upgrade(old, value)
            setattr(cluster, attribute, {**old, **value} if isinstance(old, dict) else value)
        return self._updated(cluster, kind, changes)

    def create_nodegroup(  # type: ignore[override]
        self, cluster_name: str, node_role: str, nodegroup_name: str, **given: Any
    ) -> Nodegroup:
        eks_rules.check_group_size(given.get("scaling_config"))
        ec2 = ec2_backends[self.account_id][self.region_name]
        subnets = [ec2.get_subnet(each) for each in given["subnets"]]
        eks_rules.check_group_zones(
            ((each.availability_zone, each.availability_zone_id) for each in subnets),
            given.get("instance_types") or ["t3.medium"],
            ec2.describe_instance_type_offerings("availability-zone-id"),
        )
        update_config = given.pop("update_config", None)
        cluster: Any = self.describe_cluster(cluster_name)
        version = given.pop("version", None) or cluster.version
        group: Any = super().create_nodegroup(
            cluster_name=cluster_name, node_role=node_role, nodegroup_name=nodegroup_name, version=version, **given
        )
        group.remote_access = given.get("remote_access")
        if not group.remote_access:
            group.resources.pop("remoteAccessSecurityGroup")
        if not given.get("release_version"):
            group.release_version = f"{version}.0-20260101"
        if given.get("launch_template") and not given.get("disk_size"):
            group.disk_size = None
        group.update_config = update_config or {"maxUnavailable": 1}
        if eks_addons.node_groups(cluster) and not eks_addons.nodes_can_start(cluster):
            group.status = "CREATE_FAILED"
        if why := self._why_disks_fail(group):
            group.status = "CREATE_FAILED"
            group.health = {"issues": [{"code": "AsgInstanceLaunchFailures", "message": why, "resourceIds": []}]}
        # EKS creates an access entry for the nodes of a managed node group.
        if _has_access_entries(cluster) and node_role not in cluster.access_entries:
            group.created_entry = self._add_access_entry(cluster, node_role, "EC2_LINUX").principal_arn
        return group  # type: ignore[no-any-return]

    def _why_disks_fail(self, group: Any) -> str:
        """Why the instances of a group do not start. Empty if they do, or if the group has none."""
        if not group.launch_template or not (group.scaling_config or {}).get("desiredSize", 1):
            return ""
        template = ec2_backends[self.account_id][self.region_name].get_launch_template(group.launch_template["id"])
        version = group.launch_template.get("version")
        data = template.get_version(int(version)).data if version else template.default_version().data
        spot = group.capacity_type == "SPOT"
        return eks_rules.why_disks_fail(self.account_id, self.region_name, self.partition, data, spot)

    def delete_nodegroup(self, cluster_name: str, nodegroup_name: str) -> Nodegroup:
        group: Any = super().delete_nodegroup(cluster_name, nodegroup_name)
        cluster: Any = self.describe_cluster(cluster_name)
        roles = {each.node_role for each in cluster.nodegroups.values()}
        if getattr(group, "created_entry", None) and group.node_role not in roles:
            cluster.access_entries.pop(group.created_entry, None)
        return group  # type: ignore[no-any-return]

    def update_nodegroup_version(
        self, cluster_name: str, nodegroup_name: str, version: str | None, release: str | None, template: Any
    ) -> Update:
        group: Any = self.describe_nodegroup(cluster_name, nodegroup_name)
        cluster: Any = self.describe_cluster(cluster_name)
        group.version = version or group.version
        group.release_version = release or f"{group.version}.0-20260101"
        if template:
            group.launch_template = {**group.launch_template, **template}
        return self._updated(cluster, "VersionUpdate", {"Version": version})

    def create_addon(self, cluster_name: str, addon_name: str, **given: Any) -> Addon:
        cluster: Any = self.describe_cluster(cluster_name)
        if addon_name in cluster.addons:
            raise _in_use(f"Addon already exists: {addon_name}")
        unique = mock_random.uuid4()
        arn = cluster.arn.replace(":cluster/", ":addon/") + f"/{addon_name}/{unique}"
        given["addon_version"] = given.get("addon_version") or eks_addons.default_version(addon_name, cluster.version)
        eks_addons.check_addon_version(addon_name, given["addon_version"], cluster.version)
        conflict = not eks_addons.overwrites(cluster, addon_name, given.pop("resolve_conflicts", None))
        given |= {"tags": given.get("tags") or {}, "cluster": cluster, "conflict": conflict}
        addon = Addon(addon_name=addon_name, cluster_name=cluster_name, addon_arn=arn, **given)
        cluster.addons[addon_name] = addon
        return addon

    def describe_addon(self, cluster_name: str, addon_name: str) -> Addon:
        cluster: Any = self.describe_cluster(cluster_name)
        if addon_name not in cluster.addons:
            raise _missing(f"No addon: {addon_name} found in cluster: {cluster_name}")
        return cluster.addons[addon_name]  # type: ignore[no-any-return]

    def update_addon(self, cluster_name: str, addon_name: str, **changes: Any) -> Update:
        addon, cluster = self.describe_addon(cluster_name, addon_name), self.describe_cluster(cluster_name)
        if changes["addon_version"]:
            eks_addons.check_addon_version(addon_name, changes["addon_version"], str(cluster.version))
        for attribute, value in changes.items():
            if value is not None:
                setattr(addon, attribute, value)
        addon.modified_at = utcnow()
        return self._updated(cluster, "AddonUpdate", changes)

    def delete_addon(self, cluster_name: str, addon_name: str) -> Addon:
        addon = self.describe_addon(cluster_name, addon_name)
        cluster: Any = self.describe_cluster(cluster_name)
        del cluster.addons[addon_name]
        cluster.self_managed.discard(addon_name)
        if addon_name == eks_addons.NETWORK:
            for group in eks_addons.node_groups(cluster):
                self._leave_interface(cluster, group)
        return addon

    def _leave_interface(self, cluster: Any, group: Any) -> None:
        """Nobody deletes the interfaces that the network plugin had added to the nodes."""
        ec2 = ec2_backends[self.account_id][self.region_name]
        node, groups = f"i-{mock_random.get_random_hex(17)}", cluster.resources_vpc_config["securityGroupIds"]
        if group.launch_template:
            data = ec2.get_launch_template(group.launch_template["id"]).latest_version().data
            groups = data.get("SecurityGroupIds") or groups
        ec2.create_network_interface(
            ec2.get_subnet(group.subnets[0]), "", group_ids=groups, description=f"aws-K8S-{node}"
        )

    def create_access_entry(self, cluster_name: str, principal_arn: str, kind: str | None, **given: Any) -> AccessEntry:
        cluster: Any = self.describe_cluster(cluster_name)
        _require_access_entries(cluster)
        if principal_arn in cluster.access_entries:
            raise _in_use("The specified access entry resource is already in use on this cluster.")
        self._require_principal(principal_arn)
        return self._add_access_entry(cluster, principal_arn, kind or "STANDARD", **given)

    def _add_access_entry(self, cluster: Any, principal_arn: str, kind: str, **given: Any) -> AccessEntry:
        principal, name = principal_arn.split(":")[5].split("/", 1)
        username = principal_arn
        if kind != "STANDARD":
            username = "system:node:{{EC2PrivateDNSName}}"
        elif principal == "role":
            role = name.rsplit("/", 1)[-1]
            username = (
                f"arn:{self.partition}:sts::{principal_arn.split(':')[4]}:assumed-role/{role}/{{{{SessionName}}}}"
            )
        unique = mock_random.uuid4()
        arn = cluster.arn.replace(":cluster/", ":access-entry/")
        entry = AccessEntry(
            cluster_name=cluster.name,
            principal_arn=principal_arn,
            access_entry_arn=f"{arn}/{principal}/{self.account_id}/{name}/{unique}",
            kubernetes_groups=given.get("kubernetes_groups") or ([] if kind == "STANDARD" else ["system:nodes"]),
            username=given.get("username") or username,
            type=kind,
            tags=given.get("tags") or {},
        )
        cluster.access_entries[principal_arn] = entry
        return entry

    def describe_access_entry(self, cluster_name: str, principal_arn: str) -> AccessEntry:
        cluster: Any = self.describe_cluster(cluster_name)
        if principal_arn not in cluster.access_entries:
            raise _missing("The specified principalArn could not be found. You can view your available access entries")
        return cluster.access_entries[principal_arn]  # type: ignore[no-any-return]

    def associate_access_policy(
        self, cluster_name: str, principal_arn: str, policy_arn: str, scope: AccessScope
    ) -> AssociatedPolicy:
        entry = self.describe_access_entry(cluster_name, principal_arn)
        folder, _, policy = policy_arn.rpartition("/")
        if policy not in ACCESS_POLICIES or folder != self._access_policies:
            raise InvalidParameterException(message="The specified policyArn is invalid: invalid policy")
        before = entry.policies.get(policy_arn)
        entry.policies[policy_arn] = {
            "policyArn": policy_arn,
            "accessScope": {"type": scope["type"], "namespaces": scope.get("namespaces") or []},
            "associatedAt": before["associatedAt"] if before else utcnow(),
            "modifiedAt": utcnow(),
        }
        return entry.policies[policy_arn]

    def tags_of(self, arn: str) -> dict[str, str]:
        """The tags of the resource with this ARN."""
        for cluster in self.clusters.values():
            patched: Any = cluster
            if cluster.arn == arn:
                return cluster.tags
            for each in cluster.nodegroups.values():
                if each.arn == arn:
                    return each.tags
            for each in [*patched.addons.values(), *patched.access_entries.values()]:
                if arn in (getattr(each, "addon_arn", None), getattr(each, "access_entry_arn", None)):
                    return each.tags  # type: ignore[no-any-return]
        raise _missing(f"No resource found for ARN: {arn}")

    def tag_resource(self, resource_arn: str, tags: dict[str, str]) -> None:
        self.tags_of(resource_arn).update(tags)

    def untag_resource(self, resource_arn: str, tag_keys: list[str]) -> None:
        for key in tag_keys if isinstance(tag_keys, list) else [tag_keys]:
            self.tags_of(resource_arn).pop(key, None)

    def list_tags_for_resource(self, resource_arn: str) -> dict[str, str]:
        return self.tags_of(resource_arn)

    def _updated(self, cluster: Any, kind: str, changes: dict[str, Any]) -> Update:
        params = [{"type": name, "value": str(value)} for name, value in changes.items() if value is not None]
        update: Update = {
            "id": str(mock_random.uuid4()),
            "status": "Successful",
            "type": kind,
            "params": params,
            "createdAt": utcnow(),
            "errors": [],
        }
        cluster.updates[update["id"]] = update
        return update

    @property
    def _access_policies(self) -> str:
        """The folder of the access policies in ARNs."""
        return f"arn:{self.partition}:eks::aws:cluster-access-policy"

    def _require_principal(self, arn: str) -> None:
        kind, _, name = arn.split(":")[5].partition("/")
        iam = iam_backends[self.account_id][self.partition]
        known = iam.roles.values() if kind == "role" else iam.users.values()
        if (kind, name) != ("user", sts.USER) and not any(each.arn == arn for each in known):
            raise InvalidParameterException(message=f"The specified principalArn is invalid: invalid principal: {name}")


def _has_access_entries(cluster: Any) -> bool:
    return bool(cluster.access_config["authenticationMode"] != "CONFIG_MAP")


def _require_access_entries(cluster: Any) -> None:
    if not _has_access_entries(cluster):
        raise InvalidRequestException(
            message="The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]"
            " to perform this operation."
        )


def _merged_logging(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    enabled = {kind for setup in old["clusterLogging"] if setup["enabled"] for kind in setup["types"]}
    for setup in new["clusterLogging"]:
        enabled = enabled | set(setup["types"]) if setup.get("enabled") else enabled - set(setup["types"])
    every: Any = models.DEFAULT_LOGGING["clusterLogging"][0]["types"]
    setups = [{"types": sorted(enabled), "enabled": True}, {"types": sorted(set(every) - enabled), "enabled": False}]
    return {"clusterLogging": [setup for setup in setups if setup["types"]]}


class Response(EKSResponse):
    """moto's EKS API with the missing operations and fields."""

    @property
    def eks(self) -> Any:
        return eks_backends[self.current_account][self.region]

    def _given(self, **names: str) -> dict[str, Any]:
        """Request parameters as keyword arguments: the argument name = the parameter name."""
        return {attribute: self._get_param(name) for attribute, name in names.items()}

    def _parameters(self, *names: str) -> list[Any]:
        return [self._get_param(name) for name in names]

    def _caller(self) -> str:
        """The ARN of the caller. For a session of a role, it is the ARN of the role with its path."""
        backend = sts_backends[self.current_account][self.partition]
        _, arn, account = backend.get_caller_identity(self.access_key, self.region)
        kind, *names = arn.split(":", 5)[5].split("/")
        if kind != "assumed-role":
            return arn
        return str(iam_backends[account][self.partition].get_role(names[0]).arn)

    def create_cluster(self) -> ActionResult:
        cluster = self.eks.create_cluster(
            caller=self._caller(),
            **self._given(
                name="name",
                version="version",
                role_arn="roleArn",
                resources_vpc_config="resourcesVpcConfig",
                kubernetes_network_config="kubernetesNetworkConfig",
                logging="logging",
                client_request_token="clientRequestToken",
                tags="tags",
                encryption_config="encryptionConfig",
                remote_network_config="remoteNetworkConfig",
                access_config="accessConfig",
                upgrade_policy="upgradePolicy",
                bootstrap_self_managed_addons="bootstrapSelfManagedAddons",
            ),
        )
        return ActionResult({"cluster": cluster})

    def update_cluster_config(self) -> ActionResult:
        changes = self._given(
            resources_vpc_config="resourcesVpcConfig",
            logging="logging",
            access_config="accessConfig",
            upgrade_policy="upgradePolicy",
        )
        return ActionResult({"update": self.eks.update_cluster(self._get_param("name"), "ConfigUpdate", **changes)})

    def update_cluster_version(self) -> ActionResult:
        name, version = self._parameters("name", "version")
        return ActionResult({"update": self.eks.update_cluster(name, "VersionUpdate", version=version)})

    def associate_encryption_config(self) -> ActionResult:
        name, encryption = self._parameters("name", "encryptionConfig")
        kind = "AssociateEncryptionConfig"
        return ActionResult({"update": self.eks.update_cluster(name, kind, encryption_config=encryption)})

    def describe_update(self) -> ActionResult:
        name, identity = self._parameters("name", "updateId")
        updates = self.eks.describe_cluster(name).updates
        if identity not in updates:
            raise _missing(f"No update found for ID: {identity}")
        return ActionResult({"update": updates[identity]})

    def create_nodegroup(self) -> ActionResult:
        group = self.eks.create_nodegroup(
            **self._given(
                cluster_name="name",
                nodegroup_name="nodegroupName",
                scaling_config="scalingConfig",
                disk_size="diskSize",
                subnets="subnets",
                instance_types="instanceTypes",
                ami_type="amiType",
                remote_access="remoteAccess",
                node_role="nodeRole",
                labels="labels",
                taints="taints",
                tags="tags",
                client_request_token="clientRequestToken",
                launch_template="launchTemplate",
                capacity_type="capacityType",
                version="version",
                release_version="releaseVersion",
                update_config="updateConfig",
            )
        )
        return ActionResult({"nodegroup": group})

    def update_nodegroup_config(self) -> ActionResult:
        eks_rules.check_group_size(self._get_param("scalingConfig"))
        answer: Any = super().update_nodegroup_config()
        cluster = self.eks.describe_cluster(self._get_param("name"))
        cluster.updates[answer.result["update"]["id"]] = answer.result["update"]
        return answer  # type: ignore[no-any-return]

    def update_nodegroup_version(self) -> ActionResult:
        names = ("name", "nodegroupName", "version", "releaseVersion", "launchTemplate")
        return ActionResult({"update": self.eks.update_nodegroup_version(*self._parameters(*names))})

    def create_addon(self) -> ActionResult:
        addon = self.eks.create_addon(
            **self._given(
                cluster_name="name",
                addon_name="addonName",
                addon_version="addonVersion",
                configuration_values="configurationValues",
                service_account_role_arn="serviceAccountRoleArn",
                resolve_conflicts="resolveConflicts",
                tags="tags",
            )
        )
        return ActionResult({"addon": addon})

    def describe_addon_versions(self) -> ActionResult:
        return ActionResult(
            {"addons": list(eks_addons.supported_versions(*self._parameters("addonName", "kubernetesVersion")))}
        )

    def describe_addon(self) -> ActionResult:
        return ActionResult({"addon": self.eks.describe_addon(*self._parameters("name", "addonName"))})

    def list_addons(self) -> ActionResult:
        return ActionResult({"addons": list(self.eks.describe_cluster(self._get_param("name")).addons)})

    def update_addon(self) -> ActionResult:
        changes = self._given(
            addon_version="addonVersion",
            configuration_values="configurationValues",
            service_account_role_arn="serviceAccountRoleArn",
        )
        return ActionResult({"update": self.eks.update_addon(*self._parameters("name", "addonName"), **changes)})

    def delete_addon(self) -> ActionResult:
        return ActionResult({"addon": self.eks.delete_addon(*self._parameters("name", "addonName"))})

    def create_access_entry(self) -> ActionResult:
        given = self._given(kubernetes_groups="kubernetesGroups", username="username", tags="tags")
        entry = self.eks.create_access_entry(*self._parameters("name", "principalArn", "type"), **given)
        return ActionResult({"accessEntry": entry})

    def describe_access_entry(self) -> ActionResult:
        return ActionResult({"accessEntry": self.eks.describe_access_entry(*self._parameters("name", "principalArn"))})

    def list_access_entries(self) -> ActionResult:
        entries = self.eks.describe_cluster(self._get_param("name")).access_entries
        return ActionResult({"accessEntries": list(entries)})

    def delete_access_entry(self) -> ActionResult:
        cluster, principal = self._parameters("name", "principalArn")
        entry = self.eks.describe_access_entry(cluster, principal)
        del self.eks.describe_cluster(cluster).access_entries[entry.principal_arn]
        return EmptyResult()

    def associate_access_policy(self) -> ActionResult:
        cluster, principal, policy, scope = self._parameters("name", "principalArn", "policyArn", "accessScope")
        associated = self.eks.associate_access_policy(cluster, principal, policy, scope)
        return ActionResult({"clusterName": cluster, "principalArn": principal, "associatedAccessPolicy": associated})

    def list_associated_access_policies(self) -> ActionResult:
        cluster, principal = self._parameters("name", "principalArn")
        policies = list(self.eks.describe_access_entry(cluster, principal).policies.values())
        return ActionResult({"clusterName": cluster, "principalArn": principal, "associatedAccessPolicies": policies})

    def disassociate_access_policy(self) -> ActionResult:
        cluster, principal, policy = self._parameters("name", "principalArn", "policyArn")
        if self.eks.describe_access_entry(cluster, principal).policies.pop(policy, None) is None:
            raise _missing("The specified policyArn could not be found on the access entry")
        return EmptyResult()


PATHS = (
    "/clusters/(?P<name>[^/]+)/updates$",
    "/clusters/(?P<name>[^/]+)/updates/(?P<updateId>[^/]+)$",
    "/clusters/(?P<name>[^/]+)/encryption-config/associate$",
    "/clusters/(?P<name>[^/]+)/node-groups/(?P<nodegroupName>[^/]+)/update-version$",
    "/addons/supported-versions$",
    "/clusters/(?P<name>[^/]+)/addons$",
    "/clusters/(?P<name>[^/]+)/addons/(?P<addonName>[^/]+)$",
    "/clusters/(?P<name>[^/]+)/addons/(?P<addonName>[^/]+)/update$",
    "/clusters/(?P<name>[^/]+)/access-entries$",
    "/clusters/(?P<name>[^/]+)/access-entries/(?P<principalArn>.+)$",
)


def apply() -> None:
    """Replace moto's EKS backend, responses and URL paths. Call this before the first request."""
    models.DEFAULT_KUBERNETES_VERSION = VERSION
    models.DEFAULT_AMI_TYPE = "AL2023_x86_64_STANDARD"
    models.DEFAULT_REMOTE_ACCESS = None  # type: ignore[assignment]
    eks_backends.backend = Backend
    dispatch: Callable[..., Any] = Response.dispatch
    urls.url_paths = dict.fromkeys([*urls.url_paths, *(f"{{0}}{path}" for path in PATHS)], dispatch)
