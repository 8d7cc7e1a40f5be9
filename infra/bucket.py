"""The bucket: datasets may come from it, results go to it."""

import pulumi
import pulumi_aws as aws

from infra.iam import document, tls_only
from settings.schema import Settings

OLD_VERSIONS_DAYS = 30
ABORTED_UPLOADS_DAYS = 7


class Bucket(pulumi.ComponentResource):
    bucket: aws.s3.Bucket

    def __init__(self, settings: Settings, key: aws.kms.Key, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Bucket", "bucket", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.bucket = aws.s3.Bucket(
            "bucket",
            # Destroy empties it, every version included.
            force_destroy=not settings.retain_data,
            opts=pulumi.ResourceOptions(parent=self, protect=settings.retain_data),
        )
        versioning = aws.s3.BucketVersioning(
            "bucket-versioning",
            bucket=self.bucket.id,
            versioning_configuration={"status": "Enabled"},
            opts=child,
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            "bucket-encryption",
            bucket=self.bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": key.arn,
                    },
                    "bucket_key_enabled": True,
                }
            ],
            opts=child,
        )
        block = aws.s3.BucketPublicAccessBlock(
            "bucket-public-access",
            bucket=self.bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        aws.s3.BucketPolicy(
            "bucket-policy",
            bucket=self.bucket.id,
            policy=document(tls_only(self.bucket.arn)),
            # S3 refuses two changes to a bucket's access at once.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[block]),
        )
        aws.s3.BucketLifecycleConfiguration(
            "bucket-lifecycle",
            bucket=self.bucket.id,
            rules=[
                {
                    "id": "tidy",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSIONS_DAYS},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": ABORTED_UPLOADS_DAYS},
                }
            ],
            # Old versions exist only once versioning is on.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[versioning]),
        )
        self.register_outputs({"name": self.bucket.bucket, "arn": self.bucket.arn})
