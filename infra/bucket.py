"""The S3 bucket for results. It can also hold data."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.encryption import Encryption
from infra.iam import document, tls_only
from settings.schema import Settings

OLD_VERSIONS_DAYS = 30
ABORTED_UPLOADS_DAYS = 7


def private_bucket(
    name: str,
    parts: str,
    key_arn: pulumi.Input[str],
    old_versions_days: int,
    opts: pulumi.ResourceOptions,
    force_destroy: bool | None = None,
) -> aws.s3.Bucket:
    """A private, versioned and encrypted bucket for requests with TLS. The names of its parts start with `parts`.

    With `force_destroy`, all objects and their versions are deleted with the bucket.
    """
    bucket = aws.s3.Bucket(name, force_destroy=force_destroy, opts=opts)
    child = pulumi.ResourceOptions(parent=opts.parent)
    versioning = aws.s3.BucketVersioning(
        f"{parts}-versioning", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=child
    )
    aws.s3.BucketServerSideEncryptionConfiguration(
        f"{parts}-encryption",
        bucket=bucket.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": key_arn},
                "bucket_key_enabled": True,
            }
        ],
        opts=child,
    )
    block = aws.s3.BucketPublicAccessBlock(
        f"{parts}-public-access",
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    aws.s3.BucketPolicy(
        f"{parts}-policy",
        bucket=bucket.id,
        policy=document(tls_only(bucket.arn)),
        # S3 rejects two simultaneous changes to the access of one bucket.
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[block]),
    )
    aws.s3.BucketLifecycleConfiguration(
        f"{parts}-lifecycle",
        bucket=bucket.id,
        rules=[
            {
                "id": "tidy",
                "status": "Enabled",
                "filter": {"prefix": ""},
                "noncurrent_version_expiration": {"noncurrent_days": old_versions_days},
                "abort_incomplete_multipart_upload": {"days_after_initiation": ABORTED_UPLOADS_DAYS},
            }
        ],
        # Old versions exist only after versioning is turned on.
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[versioning]),
    )
    return bucket


@dataclass(frozen=True)
class BucketArgs:
    settings: Settings
    encryption: Encryption


class Bucket(pulumi.ComponentResource):
    bucket: aws.s3.Bucket

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Bucket", name, None, opts)
        retain = args.settings.retain_data
        # The logical name in earlier versions. With this alias, an existing bucket is kept, with its name in AWS.
        kept = pulumi.ResourceOptions(parent=self, protect=retain, aliases=[pulumi.Alias(name="bucket")])
        # Pulumi adds random characters to this name. The policies in bootstrap/deployer/ match buckets by it.
        self.bucket = private_bucket(
            args.settings.bucket_name, name, args.encryption.key_arn, OLD_VERSIONS_DAYS, kept, force_destroy=not retain
        )
        self.register_outputs({"name": self.bucket.bucket, "arn": self.bucket.arn})
