"""EFS: file systems, mount targets, access points, file system policies and backup policies."""

from __future__ import annotations

from sandbox.plugins.aws.cloud import Cloud, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    REPLACES,
    REQUIRED,
    block,
    flag,
    number,
    policy,
    text,
    texts,
)
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, created_by, status, tag_changes
from sandbox.plugins.wire import State


def _retag(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("efs:UntagResource", ResourceId=identity, TagKeys=removed)
    if tags:
        cloud("efs:TagResource", ResourceId=identity, Tags=pairs(tags))


def _create_system(cloud: Cloud, want: Checked) -> str:
    return str(cloud("efs:CreateFileSystem", want, Tags=pairs(want["tagsAll"]))["FileSystemId"])


def _read_system(cloud: Cloud, identity: str, before: Checked) -> State:
    system = cloud("efs:DescribeFileSystems", FileSystemId=identity)["FileSystems"][0]
    return {
        **plain(system),
        "arn": system.get("FileSystemArn") or cloud.arn("elasticfilesystem", f"file-system/{identity}"),
        "dnsName": f"{identity}.efs.{cloud.region}.{cloud.dns_suffix}",
        "tagsAll": unpaired(system.get("Tags")),
    }


def _delete_system(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteFileSystem", FileSystemId=identity)


def _create_mount(cloud: Cloud, want: Checked) -> str:
    return str(cloud("efs:CreateMountTarget", want)["MountTargetId"])


def _read_mount(cloud: Cloud, identity: str, before: Checked) -> State:
    mount = only(cloud("efs:DescribeMountTargets", MountTargetId=identity)["MountTargets"])
    return {
        **plain(mount),
        "dnsName": f"{mount['FileSystemId']}.efs.{cloud.region}.{cloud.dns_suffix}",
        "securityGroups": cloud("efs:DescribeMountTargetSecurityGroups", MountTargetId=identity)["SecurityGroups"],
    }


def _update_mount(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("efs:ModifyMountTargetSecurityGroups", want, MountTargetId=identity)


def _delete_mount(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteMountTarget", MountTargetId=identity)


def _create_access_point(cloud: Cloud, want: Checked) -> str:
    return str(cloud("efs:CreateAccessPoint", want, Tags=pairs(want["tagsAll"]))["AccessPointId"])


def _read_access_point(cloud: Cloud, identity: str, before: Checked) -> State:
    point = only(cloud("efs:DescribeAccessPoints", AccessPointId=identity)["AccessPoints"])
    return {
        **plain(point),
        "arn": point["AccessPointArn"],
        "tagsAll": unpaired(point.get("Tags")),
    }


def _delete_access_point(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteAccessPoint", AccessPointId=identity)


def _put_policy(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("efs:PutFileSystemPolicy", want)


def _read_policy(cloud: Cloud, identity: str, before: Checked) -> State:
    return {
        "fileSystemId": identity,
        "policy": cloud("efs:DescribeFileSystemPolicy", FileSystemId=identity)["Policy"],
    }


def _delete_policy(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteFileSystemPolicy", FileSystemId=identity)


def _put_backup(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("efs:PutBackupPolicy", want)


def _read_backup(cloud: Cloud, identity: str, before: Checked) -> State:
    found = cloud("efs:DescribeBackupPolicy", FileSystemId=identity)["BackupPolicy"]
    return {"fileSystemId": identity, "backupPolicy": plain(found)}


def _delete_backup(cloud: Cloud, identity: str, state: Checked) -> None:
    """A backup policy cannot be deleted, only turned off."""
    cloud("efs:PutBackupPolicy", FileSystemId=identity, BackupPolicy={"Status": "DISABLED"})


ROWS = [
    Row(
        "aws:efs/fileSystem:FileSystem",
        inputs={
            "creationToken": text(REPLACES | COMPUTED),
            "encrypted": flag(REPLACES | COMPUTED),
            "kmsKeyId": text(REPLACES | COMPUTED),
            "throughputMode": text(default="bursting"),
            **TAGS,
        },
        outputs=["arn", "dnsName"],
        autoname=Autoname("creationToken"),
        create=_create_system,
        read=_read_system,
        update=_retag,
        delete=_delete_system,
        ready=status("lifeCycleState", "available", "error"),
    ),
    Row(
        "aws:efs/mountTarget:MountTarget",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "subnetId": text(REQUIRED | REPLACES),
            "securityGroups": texts(COMPUTED),
        },
        outputs=["availabilityZoneName", "dnsName", "networkInterfaceId"],
        create=_create_mount,
        read=_read_mount,
        update=_update_mount,
        delete=_delete_mount,
        ready=status("lifeCycleState", "available", "error"),
        delete_first=True,
    ),
    Row(
        "aws:efs/accessPoint:AccessPoint",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "posixUser": block({"uid": number(REQUIRED), "gid": number(REQUIRED)}, REPLACES),
            "rootDirectory": block(
                {
                    "path": text(COMPUTED),
                    "creationInfo": block(
                        {
                            "ownerUid": number(REQUIRED),
                            "ownerGid": number(REQUIRED),
                            "permissions": text(REQUIRED),
                        },
                        COMPUTED,
                    ),
                },
                REPLACES | COMPUTED,
            ),
            **TAGS,
        },
        outputs=["arn"],
        create=_create_access_point,
        read=_read_access_point,
        update=_retag,
        delete=_delete_access_point,
        ready=status("lifeCycleState", "available", "error"),
    ),
    Row(
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "policy": policy(REQUIRED),
        },
        outputs=[],
        create=created_by(_put_policy, "fileSystemId"),
        read=_read_policy,
        update=_put_policy,
        delete=_delete_policy,
    ),
    Row(
        "aws:efs/backupPolicy:BackupPolicy",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "backupPolicy": block({"status": text(REQUIRED)}, REQUIRED),
        },
        outputs=[],
        create=created_by(_put_backup, "fileSystemId"),
        read=_read_backup,
        update=_put_backup,
        delete=_delete_backup,
        vanishes=False,
    ),
]
