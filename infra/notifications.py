"""The SNS topic that the export Job sends its messages to, the e-mail address behind it, and the monthly budget."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.encryption import Encryption
from settings.aws_facts import AwsFacts
from settings.schema import Settings

WARN_AT_PERCENT = (80, 100)


@dataclass(frozen=True)
class NotificationsArgs:
    settings: Settings
    facts: AwsFacts
    encryption: Encryption


class Notifications(pulumi.ComponentResource):
    topic: aws.sns.Topic

    def __init__(self, name: str, args: NotificationsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Notifications", name, None, opts)
        settings, child = args.settings, pulumi.ResourceOptions(parent=self)
        # SNS accepts only HTTPS requests for an encrypted topic, so it needs no policy that requires TLS.
        self.topic = aws.sns.Topic("training-messages", kms_master_key_id=args.encryption.key_arn, opts=child)
        aws.sns.TopicSubscription(
            "email", topic=self.topic.arn, protocol="email", endpoint=settings.notify.email, opts=child
        )
        if settings.notify.monthly_budget:
            aws.budgets.Budget(
                "budget",
                # The subject of AWS's warning contains this name.
                name=f"{settings.project}-{settings.stack}",
                account_id=args.facts.account,
                budget_type="COST",
                time_unit="MONTHLY",
                limit_amount=str(settings.notify.monthly_budget),
                limit_unit="USD",
                cost_filters=[{"name": "TagKeyValue", "values": [f"user:stack${settings.stack}"]}],
                # AWS Budgets sends these e-mails itself. To use the topic, it would need access to it and its key.
                notifications=[
                    {
                        "comparison_operator": "GREATER_THAN",
                        "notification_type": "ACTUAL",
                        "threshold": percent,
                        "threshold_type": "PERCENTAGE",
                        "subscriber_email_addresses": [settings.notify.email],
                    }
                    for percent in WARN_AT_PERCENT
                ],
                # Two budgets with the same name cannot exist.
                opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            )
        self.register_outputs({"topic": self.topic.arn})
