"""KMS: keys and their aliases."""

from __future__ import annotations

from sandbox.plugins.aws.cloud import Cloud, GoneError, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import COMPUTED, LOCAL, REPLACES, REQUIRED, flag, number, policy, text
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.wire import State

TAG = ("TagKey", "TagValue")


def _create_key(cloud: Cloud, want: Checked) -> str:
    return str(cloud("kms:CreateKey", want, Tags=pairs(want["tagsAll"], *TAG))["KeyMetadata"]["KeyId"])


def _read_key(cloud: Cloud, identity: str, before: Checked) -> State:
    key = cloud("kms:DescribeKey", KeyId=identity)["KeyMetadata"]
    if key["KeyState"] in ("PendingDeletion", "PendingReplicaDeletion"):
        raise GoneError
    rotation = cloud("kms:GetKeyRotationStatus", KeyId=identity)
    return {
        **plain(key),
        "policy": cloud("kms:GetKeyPolicy", KeyId=identity, PolicyName="default")["Policy"],
        "enableKeyRotation": rotation["KeyRotationEnabled"],
        "tagsAll": unpaired(cloud("kms:ListResourceTags", KeyId=identity)["Tags"], *TAG),
    }


def _update_key(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    key = {"KeyId": identity}
    if "enableKeyRotation" in changed:
        cloud("kms:EnableKeyRotation" if want["enableKeyRotation"] else "kms:DisableKeyRotation", **key)
    if "description" in changed:
        cloud("kms:UpdateKeyDescription", want, **key)
    if "policy" in changed:
        cloud("kms:PutKeyPolicy", want, **key, PolicyName="default")
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("kms:UntagResource", **key, TagKeys=removed)
    if tags:
        cloud("kms:TagResource", **key, Tags=pairs(tags, *TAG))


def _delete_key(cloud: Cloud, identity: str, state: Checked) -> None:
    window = int(state.get("deletionWindowInDays") or 30)
    cloud("kms:ScheduleKeyDeletion", KeyId=identity, PendingWindowInDays=window)


def _create_alias(cloud: Cloud, want: Checked) -> str:
    cloud("kms:CreateAlias", want, AliasName=want["name"])
    return str(want["name"])


def _read_alias(cloud: Cloud, identity: str, before: Checked) -> State:
    aliases = cloud.pages("kms:ListAliases", "Aliases")
    found = only(each for each in aliases if each["AliasName"] == identity)
    key = cloud("kms:DescribeKey", KeyId=found["TargetKeyId"])["KeyMetadata"]
    return {
        "arn": found["AliasArn"],
        "name": identity,
        "targetKeyArn": key["Arn"],
        "targetKeyId": found["TargetKeyId"],
    }


def _update_alias(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("kms:UpdateAlias", want, AliasName=identity)


def _delete_alias(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("kms:DeleteAlias", AliasName=identity)


def _same_key(one: str, other: str) -> bool:
    """A key can be given by its id or by its ARN."""
    return one.rsplit("/", 1)[-1] == other.rsplit("/", 1)[-1]


ROWS = [
    Row(
        "aws:kms/key:Key",
        inputs={
            "description": text(COMPUTED),
            "policy": policy(COMPUTED),
            "enableKeyRotation": flag(default=False),
            "deletionWindowInDays": number(LOCAL),
            **TAGS,
        },
        outputs=["arn", "keyId"],
        create=_create_key,
        read=_read_key,
        update=_update_key,
        delete=_delete_key,
    ),
    Row(
        "aws:kms/alias:Alias",
        inputs={"name": text(REPLACES | COMPUTED), "targetKeyId": text(REQUIRED, same=_same_key)},
        outputs=["arn", "targetKeyArn"],
        autoname=Autoname(limit=238, prefix="alias/"),
        create=_create_alias,
        read=_read_alias,
        update=_update_alias,
        delete=_delete_alias,
    ),
]
