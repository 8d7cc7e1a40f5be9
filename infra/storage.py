"""The file system that data, code and results live on, reachable from the workers alone."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.encryption import Encryption
from infra.iam import allow, document
from infra.network import Network
from infra.service_account_role import ServiceAccountRole
from settings.region import RegionSupport
from settings.schema import Settings

NAME = "paddle-efs"
NFS_PORT = 2049
DRIVER_ACCOUNT = "kube-system:efs-csi-controller-sa"
# Whoever writes through the access point writes as this user.
POSIX_ID = 1000


class Storage(pulumi.ComponentResource):
    """`ready` is what a pod's mount needs, for as long as it is mounted."""

    file_system: aws.efs.FileSystem
    access_point: aws.efs.AccessPoint | None
    ready: Sequence[pulumi.Resource]

    def __init__(
        self,
        settings: Settings,
        region_support: RegionSupport,
        network: Network,
        encryption: Encryption,
        cluster: Cluster,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:infra:Storage", "storage", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        group = aws.ec2.SecurityGroup(
            "efs-group",
            name=NAME,
            description=f"{settings.cluster_name}: NFS from the workers",
            vpc_id=network.vpc.id,
            tags={"Name": NAME},
            opts=child,
        )
        nfs = aws.vpc.SecurityGroupIngressRule(
            "efs-from-workers",
            security_group_id=group.id,
            referenced_security_group_id=cluster.worker_group.id,
            ip_protocol="tcp",
            from_port=NFS_PORT,
            to_port=NFS_PORT,
            opts=child,
        )
        self.file_system = aws.efs.FileSystem(
            "efs",
            encrypted=True,
            kms_key_id=encryption.key.arn,
            throughput_mode="elastic",
            tags={"Name": NAME},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.retain_data),
        )
        mounts = [
            aws.efs.MountTarget(
                f"efs-mount-{i}",
                file_system_id=self.file_system.id,
                subnet_id=subnet.id,
                security_groups=[group.id],
                opts=child,
            )
            for i, subnet in enumerate(network.worker_subnets)
        ]
        self.ready = [nfs, *mounts]
        self.access_point = None
        if settings.storage.driver == "efsCsi":
            self.access_point = self._access_point()
            self.ready += [self._tls_only(), self._driver(region_support, cluster)]
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

    def _tls_only(self) -> aws.efs.FileSystemPolicy:
        actions = ("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite")
        arn, anyone = self.file_system.arn, {"AWS": "*"}
        by_mount_target = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
        return aws.efs.FileSystemPolicy(
            "efs-tls-only",
            file_system_id=self.file_system.id,
            policy=document(
                # Anyone is whoever the security group lets through: the workers.
                allow("ThroughMountTargets", actions, arn, by_mount_target, anyone),
                {
                    "Sid": "TlsOnly",
                    "Effect": "Deny",
                    "Principal": anyone,
                    "Action": [*actions, "elasticfilesystem:ClientRootAccess"],
                    "Resource": arn,
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                },
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _driver(self, region_support: RegionSupport, cluster: Cluster) -> aws.eks.Addon:
        policy = f"arn:{region_support.partition}:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy"
        role = ServiceAccountRole(
            "efs-driver", cluster, DRIVER_ACCOUNT, pulumi.ResourceOptions(parent=self), managed_policy=policy
        )
        return aws.eks.Addon(
            "efs-csi-driver",
            cluster_name=cluster.cluster.name,
            addon_name="aws-efs-csi-driver",
            service_account_role_arn=role.arn,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=pulumi.ResourceOptions(
                parent=self,
                # The add-on is healthy once its pods run, and they run on nodes.
                depends_on=[cluster.nodes, *role.ready],
                # Its id is its name, so a new one made beside the old would be deleted as the old.
                delete_before_replace=True,
            ),
        )
