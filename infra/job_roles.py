"""The IAM roles of the Jobs: one can read the data, one can write the results."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.bucket import Bucket
from infra.cluster import Cluster
from infra.encryption import Encryption
from infra.iam import Statement, allow
from infra.notifications import Notifications
from infra.service_account_role import ServiceAccountRole, ServiceAccountRoleArgs
from settings.aws_facts import AwsFacts
from settings.schema import Settings
from workloads.in_pod import contract


def write_prefix(bucket: pulumi.Input[str], key: pulumi.Input[str], prefix: str) -> list[Statement]:
    """The permissions to write, list and compare objects under a prefix, and to delete those of earlier trainings.

    The bucket keeps deleted objects as old versions.
    """
    arn = pulumi.Output.from_input(bucket)
    return [
        allow(
            "WriteResults",
            ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"),
            pulumi.Output.concat(arn, "/", prefix, "*"),
        ),
        allow("ListResults", ("s3:ListBucket",), arn, {"StringLike": {"s3:prefix": f"{prefix}*"}}),
        allow("EncryptResults", ("kms:Decrypt", "kms:GenerateDataKey"), key),
    ]


def send_messages(topic: pulumi.Input[str]) -> Statement:
    """The permission to send messages. Their encryption also needs the key permissions from `write_prefix`."""
    return allow("SendMessages", ("sns:Publish",), topic)


def read_source(partition: str, key: pulumi.Input[str], source: str, secret: bool) -> list[Statement]:
    """The permissions to read s3://bucket/key or all of s3://bucket/folder/, also if the stack's key encrypts them."""
    bucket, _, name = source.removeprefix("s3://").partition("/")
    arn = f"arn:{partition}:s3:::{bucket}"

    def shown(text: str) -> pulumi.Input[str]:
        return pulumi.Output.secret(text) if secret else text

    decrypt = allow("DecryptData", ("kms:Decrypt",), key)
    if not name.endswith("/"):
        return [allow("ReadData", ("s3:GetObject",), shown(f"{arn}/{name}")), decrypt]
    return [
        allow("ReadData", ("s3:GetObject",), shown(f"{arn}/{name}*")),
        allow("ListData", ("s3:ListBucket",), shown(arn), {"StringLike": {"s3:prefix": shown(f"{name}*")}}),
        decrypt,
    ]


@dataclass(frozen=True)
class JobRolesArgs:
    """The export Job sends messages if there are `notifications`."""

    settings: Settings
    facts: AwsFacts
    encryption: Encryption
    bucket: Bucket
    cluster: Cluster
    notifications: Notifications | None


class JobRoles(pulumi.ComponentResource):
    """The roles of the Jobs. A role is None if its Job does not use AWS."""

    data: ServiceAccountRole | None = None
    export: ServiceAccountRole | None = None

    def __init__(self, name: str, args: JobRolesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:JobRoles", name, None, opts)
        settings, key_arn = args.settings, args.encryption.key_arn

        def role(job: str, account: str, statements: Sequence[Statement]) -> ServiceAccountRole:
            # The service account of a Job has the name of the Job.
            full_name = f"{settings.job.namespace}:{account}"
            role_args = ServiceAccountRoleArgs(settings, args.cluster, full_name, statements)
            return ServiceAccountRole(job, role_args, pulumi.ResourceOptions(parent=self))

        if settings.data_source.kind == contract.S3:
            (source,) = settings.data_source.addresses
            reading = read_source(args.facts.partition, key_arn, source, settings.data_is_secret)
            self.data = role("data", contract.DATA_JOB, reading)
        if settings.export.enabled:
            results = write_prefix(args.bucket.bucket.arn, key_arn, settings.job.output_prefix)
            messages = [send_messages(args.notifications.topic.arn)] if args.notifications else []
            self.export = role("export", contract.EXPORT_JOB, [*results, *messages])
        self.register_outputs({})
