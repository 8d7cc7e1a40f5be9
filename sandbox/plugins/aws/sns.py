"""SNS: topics and their subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, pairs, unpaired
from sandbox.plugins.aws.props import COMPUTED, LOCAL, REPLACES, REQUIRED, flag, number, policy, text
from sandbox.plugins.aws.rows import REGION, TAGS, Autoname, Checked, Row, tag_changes, unset
from sandbox.plugins.wire import State

# The properties of a topic that are attributes in SNS.
ATTRIBUTES = {"displayName": "DisplayName", "kmsMasterKeyId": "KmsMasterKeyId", "policy": "Policy"}
PENDING = "pending confirmation"


def _set_attributes(cloud: Cloud, arn: str, want: Checked, names: Mapping[str, str]) -> None:
    for name, attribute in names.items():
        cloud("sns:SetTopicAttributes", TopicArn=arn, AttributeName=attribute, AttributeValue=want.get(name) or "")


def _create_topic(cloud: Cloud, want: Checked) -> str:
    arn = str(cloud("sns:CreateTopic", Name=want["name"], Tags=pairs(want["tagsAll"]))["TopicArn"])
    _set_attributes(cloud, arn, want, {name: key for name, key in ATTRIBUTES.items() if want.get(name)})
    return arn


def _read_topic(cloud: Cloud, identity: str, before: Checked) -> State:
    found = cloud("sns:GetTopicAttributes", TopicArn=identity)["Attributes"]
    return {
        "arn": identity,
        "name": identity.rpartition(":")[2],
        "owner": found["Owner"],
        **{name: found.get(attribute) for name, attribute in ATTRIBUTES.items()},
        "tagsAll": unpaired(cloud("sns:ListTagsForResource", ResourceArn=identity)["Tags"]),
    }


def _update_topic(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    _set_attributes(cloud, identity, want, {name: key for name, key in ATTRIBUTES.items() if name in changed})
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
        "confirmationWasAuthenticated": found["ConfirmationWasAuthenticated"] == "true",
    }


def _unsubscribe(cloud: Cloud, identity: str, state: Checked) -> None:
    try:
        cloud("sns:Unsubscribe", SubscriptionArn=identity)
    except ClientError as error:
        # The official provider leaves such a subscription in AWS, which deletes it with the topic.
        if PENDING not in error.response["Error"]["Message"]:
            raise


def _feedback(names: str) -> str:
    """The names of properties that a topic has for each kind of receiver."""
    return " ".join(names.replace("{}", kind) for kind in ("application", "firehose", "http", "lambda", "sqs"))


ROWS = [
    Row(
        "aws:sns/topic:Topic",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "displayName": text(),
            "kmsMasterKeyId": text(),
            "policy": policy(COMPUTED),
            **TAGS,
            **REGION,
        },
        outputs=["arn", "owner", "beginningArchiveTime", "namePrefix", "fifoThroughputScope", "tracingConfig"],
        unset=unset(
            "archivePolicy deliveryPolicy " + _feedback("{}FailureFeedbackRoleArn {}SuccessFeedbackRoleArn"),
            flags="contentBasedDeduplication fifoTopic",
            numbers="signatureVersion maximumMessageSize " + _feedback("{}SuccessFeedbackSampleRate"),
        ),
        autoname=Autoname(limit=256),
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
            "confirmationTimeoutInMinutes": number(LOCAL, default=1),
            "endpointAutoConfirms": flag(LOCAL, default=False),
            **REGION,
        },
        outputs=["arn", "ownerId", "pendingConfirmation", "confirmationWasAuthenticated", "filterPolicyScope"],
        unset=unset(
            "deliveryPolicy filterPolicy redrivePolicy replayPolicy subscriptionRoleArn", flags="rawMessageDelivery"
        ),
        create=_subscribe,
        read=_read_subscription,
        delete=_unsubscribe,
        vanishes=False,
    ),
]
