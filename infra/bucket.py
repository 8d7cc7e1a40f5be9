"""The S3 bucket for results. It can also hold data."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.encryption import Encryption, refuse_new_key
from infra.iam import document, tls_only
from infra.naming import prefix

OLD_VERSIONS_DAYS = 30
ABORTED_UPLOADS_DAYS = 7


@dataclass(frozen=True)
class BucketArgs:
    """Pulumi adds random characters to `name`. The policies in bootstrap/deployer/ match buckets by `name`."""

    name: str
    encryption: Encryption
    retain: bool


class Bucket(pulumi.ComponentResource):
    bucket: aws.s3.Bucket

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Bucket", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.bucket = aws.s3.Bucket(
            prefix(name, "bucket") + args.name,
            # Destroy also deletes all objects and their versions.
            force_destroy=not args.retain,
            # The logical name in earlier versions. With this alias, an existing bucket is kept, with its name in AWS.
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain, aliases=[pulumi.Alias(name=name)]),
        )
        versioning = aws.s3.BucketVersioning(
            f"{name}-versioning",
            bucket=self.bucket.id,
            versioning_configuration={"status": "Enabled"},
            opts=child,
        )
        new_key = refuse_new_key(
            f"{name}-encryption",
            args.encryption.existing,
            lambda inputs: inputs["rules"][0]["applyServerSideEncryptionByDefault"].get("kmsMasterKeyId"),
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption",
            bucket=self.bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": args.encryption.key_arn,
                    },
                    "bucket_key_enabled": True,
                }
            ],
            opts=pulumi.ResourceOptions(parent=self, hooks=pulumi.ResourceHookBinding(before_update=[new_key])),
        )
        block = aws.s3.BucketPublicAccessBlock(
            f"{name}-public-access",
            bucket=self.bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        aws.s3.BucketPolicy(
            f"{name}-policy",
            bucket=self.bucket.id,
            policy=document(tls_only(self.bucket.arn)),
            # S3 rejects two simultaneous changes to the access of one bucket.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[block]),
        )
        aws.s3.BucketLifecycleConfiguration(
            f"{name}-lifecycle",
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
            # Old versions exist only after versioning is turned on.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[versioning]),
        )
        self.register_outputs({"name": self.bucket.bucket, "arn": self.bucket.arn})
