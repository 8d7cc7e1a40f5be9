"""What the Jobs may do in AWS: read the one dataset, write the one prefix."""

import pulumi

from infra.bucket import Bucket
from infra.cluster import Cluster
from infra.encryption import Encryption
from infra.iam import Statement, allow
from infra.service_account_role import ServiceAccountRole
from settings.region import RegionSupport
from settings.schema import Settings

DATA_ACCOUNT, EXPORT_ACCOUNT = "paddle-data", "paddle-export"


def write_prefix(bucket: pulumi.Input[str], key: pulumi.Input[str], prefix: str) -> list[Statement]:
    """What it takes to write under a prefix and check what was written there, and nothing else."""
    arn = pulumi.Output.from_input(bucket)
    return [
        allow(
            "WriteResults",
            ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"),
            pulumi.Output.concat(arn, "/", prefix, "*"),
        ),
        allow("ListResults", ("s3:ListBucket",), arn, {"StringLike": {"s3:prefix": f"{prefix}*"}}),
        allow("EncryptResults", ("kms:Decrypt", "kms:GenerateDataKey"), key),
    ]


def read_object(partition: str, key: pulumi.Input[str], source: str) -> list[Statement]:
    """What it takes to read one s3://bucket/key, encrypted with our key or Amazon's."""
    return [
        allow("ReadData", ("s3:GetObject",), f"arn:{partition}:s3:::{source.removeprefix('s3://')}"),
        allow("DecryptData", ("kms:Decrypt",), key),
    ]


class JobRoles(pulumi.ComponentResource):
    """A role for each Job that reaches into AWS; None for one that does not."""

    data: ServiceAccountRole | None = None
    export: ServiceAccountRole | None = None

    def __init__(
        self,
        settings: Settings,
        region_support: RegionSupport,
        cluster: Cluster,
        encryption: Encryption,
        bucket: Bucket,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:infra:JobRoles", "job-roles", None, opts)
        namespace, key = settings.job.namespace, encryption.key.arn
        child = pulumi.ResourceOptions(parent=self)
        if settings.data.from_s3:
            statements = read_object(region_support.partition, key, settings.data.source)
            self.data = ServiceAccountRole("data", cluster, f"{namespace}:{DATA_ACCOUNT}", child, statements)
        if settings.export.enabled:
            statements = write_prefix(bucket.bucket.arn, key, settings.job.output_prefix)
            self.export = ServiceAccountRole("export", cluster, f"{namespace}:{EXPORT_ACCOUNT}", child, statements)
        self.register_outputs({})
