"""The EFS file system for data, training code and results. Only workers can reach it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.addon import addon
from infra.cluster import Cluster
from infra.encryption import Encryption
from infra.iam import Statement, allow, document
from infra.network import Network
from infra.pause import addon_options
from infra.security_groups import rule, security_group
from infra.service_account_role import ServiceAccountRole, ServiceAccountRoleArgs
from settings.aws_facts import EFS_DRIVER, AwsFacts
from settings.schema import Settings

NFS_PORT = 2049
# The tutorial's name.
NAME = "paddle-efs"
ROOT_ACCESS = "elasticfilesystem:ClientRootAccess"
DRIVER_ACCOUNT = "kube-system:efs-csi-controller-sa"
# All files that are written through the access point belong to this user.
POSIX_ID = 1000


@dataclass(frozen=True)
class StorageArgs:
    settings: Settings
    facts: AwsFacts
    network: Network
    encryption: Encryption
    cluster: Cluster


class Storage(pulumi.ComponentResource):
    """`ready` lists what pods need to mount the file system and to unmount it."""

    file_system: aws.efs.FileSystem
    access_point: aws.efs.AccessPoint | None
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Storage", name, None, opts)
        settings, child = args.settings, pulumi.ResourceOptions(parent=self)
        description = f"{settings.cluster_name}: NFS from the workers"
        group = security_group(self, "efs-group", NAME, description, args.network.vpc)
        # A new group of workers gets a new rule: pods on the old workers still need theirs to unmount.
        replaced = pulumi.ResourceOptions(parent=self, replace_on_changes=["referencedSecurityGroupId"])
        nfs = rule("efs-from-workers", group, "from", args.cluster.worker_group, NFS_PORT, replaced)
        self.file_system = aws.efs.FileSystem(
            "efs",
            encrypted=True,
            kms_key_id=args.encryption.key_arn,
            throughput_mode="elastic",
            tags={"Name": NAME},
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=settings.retain_data,
                # A new key would replace the file system, for example after somebody deleted the key of the stack.
                ignore_changes=["kmsKeyId"],
            ),
        )
        mounts = [
            aws.efs.MountTarget(
                f"efs-mount-{i}",
                file_system_id=self.file_system.id,
                subnet_id=subnet.id,
                security_groups=[group.id],
                opts=child,
            )
            for i, subnet in enumerate(args.network.worker_subnets)
        ]
        self.ready = [nfs, *mounts]
        self.access_point = None
        if settings.storage.driver == "efsCsi":
            self.access_point = self._access_point()
            self.ready += [self._driver(args)]
        self.ready += [self._policy()]
        if settings.retain_data:
            aws.efs.BackupPolicy(
                "efs-backup",
                file_system_id=self.file_system.id,
                backup_policy={"status": "ENABLED"},
                opts=child,
            )
        self.register_outputs({"file_system_id": self.file_system.id, "dns_name": self.file_system.dns_name})

    def _access_point(self) -> aws.efs.AccessPoint:
        return aws.efs.AccessPoint(
            "efs-access",
            file_system_id=self.file_system.id,
            posix_user={"uid": POSIX_ID, "gid": POSIX_ID},
            root_directory={
                "path": "/paddle",
                "creation_info": {"owner_uid": POSIX_ID, "owner_gid": POSIX_ID, "permissions": "0755"},
            },
            tags={"Name": NAME},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _policy(self) -> aws.efs.FileSystemPolicy:
        """Access only through the mount targets. With an access point, only through it and only with TLS."""
        actions = ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
        arn, anyone = self.file_system.arn, {"AWS": "*"}
        through: dict[str, Any] = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
        denied: list[Statement] = []
        if self.access_point:
            through["StringEquals"] = {"elasticfilesystem:AccessPointArn": self.access_point.arn}
            denied.append(
                {
                    "Sid": "TlsOnly",
                    "Effect": "Deny",
                    "Principal": anyone,
                    "Action": [*actions, ROOT_ACCESS],
                    "Resource": arn,
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                }
            )
        else:
            # The pods are root on an NFS volume. Without this, their files would belong to nobody.
            actions.append(ROOT_ACCESS)
        # The security group already limits access to the workers.
        allowed = allow("ThroughMountTargets", actions, arn, through, anyone)
        name = "efs-policy"
        former = pulumi.Alias(name="efs-tls-only")
        return aws.efs.FileSystemPolicy(
            name,
            file_system_id=self.file_system.id,
            policy=document(allowed, *denied),
            opts=pulumi.ResourceOptions(parent=self, aliases=[former]),
        )

    def _driver(self, args: StorageArgs) -> aws.eks.Addon:
        cluster, name = args.cluster, "efs-csi-driver"
        policy = f"arn:{args.facts.partition}:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy"
        role = ServiceAccountRole(
            "efs-driver",
            ServiceAccountRoleArgs(args.settings, cluster, DRIVER_ACCOUNT, managed_policy=policy),
            pulumi.ResourceOptions(parent=self),
        )
        return addon(
            name,
            cluster.cluster,
            EFS_DRIVER,
            args.facts.addon_versions[EFS_DRIVER],
            pulumi.ResourceOptions.merge(
                addon_options(name, args.settings.paused),
                # The pods of the add-on need nodes, and they need DNS to reach AWS.
                pulumi.ResourceOptions(parent=self, depends_on=[cluster.coredns, *role.ready]),
            ),
            role.arn,
        )
