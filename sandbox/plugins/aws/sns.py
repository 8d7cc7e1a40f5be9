"""SNS: topics and their subscriptions."""

from __future__ import annotations

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, gone, pairs, unpaired
from sandbox.plugins.aws.props import COMPUTED, REPLACES, REQUIRED, text
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State

PENDING = "pending confirmation"


def _create_topic(cloud: Cloud, want: Checked) -> str:
    _refuse_existing(cloud, want["name"])
    attributes = {"KmsMasterKeyId": want["kmsMasterKeyId"]} if want.get("kmsMasterKeyId") else {}
    answer = cloud("sns:CreateTopic", Name=want["name"], Attributes=attributes, Tags=pairs(want["tagsAll"]))
    return str(answer["TopicArn"])


def _refuse_existing(cloud: Cloud, name: str) -> None:
    """Pulumi's build of the provider asks for the topic first: CreateTopic would return an existing one."""
    account = cloud.account() if cloud.settings.knows_account else ""
    try:
        cloud("sns:GetTopicAttributes", TopicArn=f"arn:{cloud.partition()[0]}:sns:{cloud.region}:{account}:{name}")
    except ClientError as error:
        if gone(error):
            return
        raise
    raise ProviderError(f"SNS Topic ({name}) already exists")


def _read_topic(cloud: Cloud, identity: str, before: Checked) -> State:
    found = cloud("sns:GetTopicAttributes", TopicArn=identity)["Attributes"]
    return {
        "arn": identity,
        "name": identity.rpartition(":")[2],
        "owner": found["Owner"],
        "kmsMasterKeyId": found.get("KmsMasterKeyId"),
        "tagsAll": unpaired(cloud("sns:ListTagsForResource", ResourceArn=identity)["Tags"]),
    }


def _update_topic(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "kmsMasterKeyId" in changed:
        value = {"AttributeName": "KmsMasterKeyId", "AttributeValue": want.get("kmsMasterKeyId") or ""}
        cloud("sns:SetTopicAttributes", TopicArn=identity, **value)
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud("sns:UntagResource", ResourceArn=identity, TagKeys=removed)
    if tags:
        cloud("sns:TagResource", ResourceArn=identity, Tags=pairs(tags))


def _delete_topic(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("sns:DeleteTopic", TopicArn=identity)


def _subscribe(cloud: Cloud, want: Checked) -> str:
    subscription = {"TopicArn": want["topic"], "Protocol": want["protocol"], "Endpoint": want["endpoint"]}
    return str(cloud("sns:Subscribe", **subscription, ReturnSubscriptionArn=True)["SubscriptionArn"])


def _read_subscription(cloud: Cloud, identity: str, before: Checked) -> State:
    found = cloud("sns:GetSubscriptionAttributes", SubscriptionArn=identity)["Attributes"]
    return {
        "arn": identity,
        "topic": found["TopicArn"],
        "protocol": found["Protocol"],
        "endpoint": found["Endpoint"],
        "ownerId": found["Owner"],
        "pendingConfirmation": found["PendingConfirmation"] == "true",
    }


def _unsubscribe(cloud: Cloud, identity: str, state: Checked) -> None:
    try:
        cloud("sns:Unsubscribe", SubscriptionArn=identity)
    except ClientError as error:
        # The official provider leaves such a subscription in AWS, which deletes it with the topic.
        if PENDING not in error.response["Error"]["Message"]:
            raise


ROWS = [
    Row(
        "aws:sns/topic:Topic",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "kmsMasterKeyId": text(),
            **TAGS,
        },
        outputs=["arn", "owner"],
        autoname=Autoname(limit=80),
        create=_create_topic,
        read=_read_topic,
        update=_update_topic,
        delete=_delete_topic,
    ),
    Row(
        "aws:sns/topicSubscription:TopicSubscription",
        inputs={
            "topic": text(REQUIRED | REPLACES),
            "protocol": text(REQUIRED | REPLACES),
            "endpoint": text(REQUIRED | REPLACES),
        },
        outputs=["arn", "ownerId", "pendingConfirmation"],
        create=_subscribe,
        read=_read_subscription,
        delete=_unsubscribe,
        vanishes=False,
    ),
]
