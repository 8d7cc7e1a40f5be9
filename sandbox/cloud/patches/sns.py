"""SNS patches: an e-mail address must confirm its subscription, and the limits of a message's subject.

- An e-mail subscription is pending until ConfirmSubscription. moto confirms every subscription at once. The token that
  AWS sends in an e-mail is the ARN of the subscription here.
- A pending subscription gets no messages and cannot be deleted.
- A subject is one line of printable ASCII, as AWS requires. moto checks only its length.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.sns.exceptions import SNSInvalidParameter, SNSNotFoundError
from moto.sns.models import SNSBackend, Subscription
from moto.sns.responses import SNSResponse

_subscribe = SNSBackend.subscribe
_unsubscribe = SNSBackend.unsubscribe
_publish = SNSBackend.publish


def _subscribe_pending(self: SNSBackend, topic_arn: str, endpoint: str, protocol: str) -> Subscription:
    known = self._find_subscription(topic_arn, endpoint, protocol)
    subscription = _subscribe(self, topic_arn, endpoint, protocol)
    if protocol == "email" and not known:
        if "@" not in endpoint:
            raise SNSInvalidParameter("Invalid parameter: Email address")
        subscription.attributes |= {"PendingConfirmation": True, "ConfirmationWasAuthenticated": False}
    return subscription


def _confirm(self: SNSResponse) -> ActionResult:
    subscription = self.backend.subscriptions.get(self._get_param("Token"))
    if subscription is None or subscription.topic_arn != self._get_param("TopicArn"):
        raise SNSNotFoundError("Subscription does not exist")
    subscription.attributes["PendingConfirmation"] = False
    return ActionResult({"SubscriptionArn": subscription.arn})


def _unsubscribe_confirmed(self: SNSBackend, subscription_arn: str) -> None:
    found = self.subscriptions.get(subscription_arn)
    if found and found.attributes["PendingConfirmation"]:
        raise SNSInvalidParameter("Cannot unsubscribe a subscription that is pending confirmation")
    _unsubscribe(self, subscription_arn)


def _publish_checked(self: SNSBackend, message: str, arn: str | None, *args: Any, **more: Any) -> str:
    subject = more.get("subject")
    if subject is not None and not (subject.isascii() and subject.isprintable() and subject.strip()):
        raise SNSInvalidParameter("Invalid parameter: Subject")
    return _publish(self, message, arn, *args, **more)


def apply() -> None:
    SNSBackend.subscribe = _subscribe_pending  # type: ignore[method-assign]
    SNSBackend.unsubscribe = _unsubscribe_confirmed  # type: ignore[method-assign]
    SNSBackend.publish = _publish_checked  # type: ignore[method-assign]
    SNSResponse.confirm_subscription = _confirm  # type: ignore[method-assign]
