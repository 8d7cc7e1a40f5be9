"""CloudWatch log groups."""

from __future__ import annotations

from sandbox.plugins.aws.cloud import Cloud, only, plain
from sandbox.plugins.aws.props import COMPUTED, REPLACES, number, text
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.wire import State


def _create(cloud: Cloud, want: Checked) -> str:
    cloud("logs:CreateLogGroup", want, logGroupName=want["name"], tags=want["tagsAll"])
    return str(want["name"])


def _read(cloud: Cloud, identity: str, before: Checked) -> State:
    groups = cloud.pages("logs:DescribeLogGroups", "logGroups", logGroupNamePrefix=identity)
    group = only(each for each in groups if each["logGroupName"] == identity)
    arn = group["arn"].removesuffix(":*")
    return {
        **plain(group),
        "arn": arn,
        "name": identity,
        "retentionInDays": group.get("retentionInDays", 0),
        "tagsAll": cloud("logs:ListTagsForResource", resourceArn=arn)["tags"],
    }


def _update(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    group = {"logGroupName": identity}
    if "retentionInDays" in changed:
        cloud("logs:PutRetentionPolicy" if want["retentionInDays"] else "logs:DeleteRetentionPolicy", want, **group)
    if "kmsKeyId" in changed:
        cloud("logs:AssociateKmsKey" if want.get("kmsKeyId") else "logs:DisassociateKmsKey", want, **group)
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("logs:UntagResource", resourceArn=have["arn"], tagKeys=removed)
    if tags:
        cloud("logs:TagResource", resourceArn=have["arn"], tags=tags)


def _delete(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("logs:DeleteLogGroup", logGroupName=identity)


ROWS = [
    Row(
        "aws:cloudwatch/logGroup:LogGroup",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "kmsKeyId": text(),
            "retentionInDays": number(default=0),
            **TAGS,
        },
        outputs=["arn"],
        autoname=Autoname(),
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
