"""EFS: file systems, mount targets, access points, file system policies and backup policies."""

from __future__ import annotations

from sandbox.plugins.aws.cloud import Cloud, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    REPLACES,
    REQUIRED,
    block,
    blocks,
    flag,
    number,
    numbers,
    policy,
    text,
    texts,
)
from sandbox.plugins.aws.rows import REGION, TAGS, Autoname, Checked, Row, status, tag_changes, unset
from sandbox.plugins.wire import State

# The API writes IA in capitals, the SDK writes Ia.
LIFECYCLE = {"transitionToIa": "TransitionToIA"} | {
    name: name[0].upper() + name[1:] for name in ("transitionToArchive", "transitionToPrimaryStorageClass")
}


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
    answer = cloud("efs:DescribeLifecycleConfiguration", FileSystemId=identity)
    tags = unpaired(system.get("Tags"))
    answered = plain(system)
    return {
        **answered,
        "arn": system.get("FileSystemArn") or cloud.arn("elasticfilesystem", f"file-system/{identity}"),
        "dnsName": f"{identity}.efs.{cloud.region}.{cloud.dns_suffix}",
        "name": tags.get("Name"),
        "sizeInBytes": [
            {
                "value": answered["sizeInBytes"].get("value", 0),
                "valueInIa": system["SizeInBytes"].get("ValueInIA", 0),
                "valueInStandard": answered["sizeInBytes"].get("valueInStandard", 0),
            }
        ],
        "lifecyclePolicies": [
            {name: each[upper] for name, upper in LIFECYCLE.items() if upper in each}
            for each in answer.get("LifecyclePolicies", [])
        ],
        "tagsAll": tags,
    }


def _update_system(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if changed & {"throughputMode", "provisionedThroughputInMibps"}:
        cloud("efs:UpdateFileSystem", want, FileSystemId=identity)
    if "lifecyclePolicies" in changed:
        policies = [
            {LIFECYCLE[name]: value for name, value in each.items()} for each in want.get("lifecyclePolicies") or []
        ]
        cloud("efs:PutLifecycleConfiguration", FileSystemId=identity, LifecyclePolicies=policies)
    _retag(cloud, identity, have, want, changed)


def _delete_system(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteFileSystem", FileSystemId=identity)


def _create_mount(cloud: Cloud, want: Checked) -> str:
    return str(cloud("efs:CreateMountTarget", want)["MountTargetId"])


def _read_mount(cloud: Cloud, identity: str, before: Checked) -> State:
    mount = only(cloud("efs:DescribeMountTargets", MountTargetId=identity)["MountTargets"])
    system = mount["FileSystemId"]
    name = f"{system}.efs.{cloud.region}.{cloud.dns_suffix}"
    return {
        **plain(mount),
        "dnsName": name,
        "mountTargetDnsName": f"{mount.get('AvailabilityZoneName')}.{name}",
        "fileSystemArn": cloud.arn("elasticfilesystem", f"file-system/{system}"),
        "ipAddressType": "IPV4_ONLY",
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
        "fileSystemArn": cloud.arn("elasticfilesystem", f"file-system/{point['FileSystemId']}"),
        "ownerId": point.get("OwnerId") or cloud.account(),
        "tagsAll": unpaired(point.get("Tags")),
    }


def _update_access_point(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    _retag(cloud, identity, have, want, changed)


def _delete_access_point(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteAccessPoint", AccessPointId=identity)


def _put_policy(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("efs:PutFileSystemPolicy", want)


def _create_policy(cloud: Cloud, want: Checked) -> str:
    cloud("efs:PutFileSystemPolicy", want)
    return str(want["fileSystemId"])


def _read_policy(cloud: Cloud, identity: str, before: Checked) -> State:
    return {
        "fileSystemId": identity,
        "policy": cloud("efs:DescribeFileSystemPolicy", FileSystemId=identity)["Policy"],
    }


def _delete_policy(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("efs:DeleteFileSystemPolicy", FileSystemId=identity)


def _put_backup(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("efs:PutBackupPolicy", want)


def _create_backup(cloud: Cloud, want: Checked) -> str:
    cloud("efs:PutBackupPolicy", want)
    return str(want["fileSystemId"])


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
            "performanceMode": text(REPLACES | COMPUTED),
            "throughputMode": text(default="bursting"),
            "provisionedThroughputInMibps": number(),
            "availabilityZoneName": text(REPLACES | COMPUTED),
            "lifecyclePolicies": blocks({name: text() for name in LIFECYCLE}, kind="list"),
            **TAGS,
            **REGION,
        },
        outputs=["arn", "availabilityZoneId", "dnsName", "name", "numberOfMountTargets", "ownerId", "sizeInBytes"],
        withheld=["protection"],
        autoname=Autoname("creationToken"),
        unset=unset(numbers="provisionedThroughputInMibps"),
        create=_create_system,
        read=_read_system,
        update=_update_system,
        delete=_delete_system,
        ready=status("lifeCycleState", "available", "error"),
    ),
    Row(
        "aws:efs/mountTarget:MountTarget",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "subnetId": text(REQUIRED | REPLACES),
            "ipAddress": text(REPLACES | COMPUTED),
            "securityGroups": texts(COMPUTED),
            **REGION,
        },
        outputs=[
            *("availabilityZoneId", "availabilityZoneName", "dnsName", "fileSystemArn", "ipAddressType"),
            *("ipv6Address", "mountTargetDnsName", "networkInterfaceId", "ownerId"),
        ],
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
            "posixUser": block(
                {"uid": number(REQUIRED), "gid": number(REQUIRED), "secondaryGids": numbers()},
                REPLACES,
            ),
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
            **REGION,
        },
        outputs=["arn", "fileSystemArn", "ownerId"],
        create=_create_access_point,
        read=_read_access_point,
        update=_update_access_point,
        delete=_delete_access_point,
        ready=status("lifeCycleState", "available", "error"),
    ),
    Row(
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "policy": policy(REQUIRED),
            "bypassPolicyLockoutSafetyCheck": flag(LOCAL, default=False),
            **REGION,
        },
        outputs=[],
        create=_create_policy,
        read=_read_policy,
        update=_put_policy,
        delete=_delete_policy,
    ),
    Row(
        "aws:efs/backupPolicy:BackupPolicy",
        inputs={
            "fileSystemId": text(REQUIRED | REPLACES),
            "backupPolicy": block({"status": text(REQUIRED)}, REQUIRED),
            **REGION,
        },
        outputs=[],
        create=_create_backup,
        read=_read_backup,
        update=_put_backup,
        delete=_delete_backup,
        vanishes=False,
    ),
]
