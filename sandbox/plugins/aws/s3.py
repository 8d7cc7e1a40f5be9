"""S3: buckets and their settings; each setting is a resource of its own, as in the API."""

from __future__ import annotations

from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, gone, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    REPLACES,
    REQUIRED,
    Prop,
    block,
    blocks,
    flag,
    number,
    policy,
    text,
)
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, created_by
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State

BUCKET = {"bucket": text(REQUIRED | REPLACES)}


def _create_bucket(cloud: Cloud, want: Checked) -> str:
    where = {"LocationConstraint": cloud.region}
    parameters: dict[str, Any] = {} if cloud.region == "us-east-1" else {"CreateBucketConfiguration": where}
    cloud("s3:CreateBucket", Bucket=want["bucket"], **parameters)
    return str(want["bucket"])


def _or_none(call: Any) -> Any:
    try:
        return call()
    except ClientError as error:
        if gone(error):
            return None
        raise


def _read_bucket(cloud: Cloud, identity: str, before: Checked) -> State:
    where = cloud("s3:HeadBucket", Bucket=identity)["BucketRegion"]
    return {
        "bucket": identity,
        "arn": f"arn:{cloud.partition()[0]}:s3:::{identity}",
        "bucketDomainName": f"{identity}.s3.{cloud.dns_suffix}",
        "bucketRegion": where,
        "bucketRegionalDomainName": f"{identity}.s3.{where}.{cloud.dns_suffix}",
        "tagsAll": unpaired(_or_none(lambda: cloud("s3:GetBucketTagging", Bucket=identity)["TagSet"])),
    }


def _update_bucket(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if want["tagsAll"]:
        cloud("s3:PutBucketTagging", Bucket=identity, Tagging={"TagSet": pairs(want["tagsAll"])})
    else:
        cloud("s3:DeleteBucketTagging", Bucket=identity)


def _delete_bucket(cloud: Cloud, identity: str, state: Checked) -> None:
    if state.get("forceDestroy"):
        _empty(cloud, identity)
    cloud("s3:DeleteBucket", Bucket=identity)


def _empty(cloud: Cloud, bucket: str) -> None:
    """Delete every version of every object: only an empty bucket can be deleted."""
    for kind in ("Versions", "DeleteMarkers"):
        versions = list(cloud.pages("s3:ListObjectVersions", kind, Bucket=bucket))
        objects = iter([{"Key": each["Key"], "VersionId": each["VersionId"]} for each in versions])
        while batch := list(islice(objects, 1000)):
            failed = cloud("s3:DeleteObjects", Bucket=bucket, Delete={"Objects": batch, "Quiet": True}).get("Errors")
            if failed:
                raise ProviderError(f"s3:DeleteObjects: {bucket}/{failed[0]['Key']}: {failed[0].get('Message')}")


def _delete_by(action: str) -> Any:
    def delete(cloud: Cloud, identity: str, state: Checked) -> None:
        cloud(action, Bucket=identity)

    return delete


def _put_versioning(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    status = want["versioningConfiguration"]["status"]
    if status != "Disabled":
        cloud("s3:PutBucketVersioning", Bucket=identity, VersioningConfiguration={"Status": status})
    elif have.get("versioningConfiguration", {}).get("status") in ("Enabled", "Suspended"):
        raise ProviderError(f"versioning of bucket {identity} cannot be Disabled after Enabled: write Suspended")


def _read_versioning(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("s3:GetBucketVersioning", Bucket=identity)
    return {"bucket": identity, "versioningConfiguration": {"status": answer.get("Status", "Disabled")}}


def _suspend_versioning(cloud: Cloud, identity: str, state: Checked) -> None:
    if cloud("s3:GetBucketVersioning", Bucket=identity).get("Status") == "Enabled":
        cloud("s3:PutBucketVersioning", Bucket=identity, VersioningConfiguration={"Status": "Suspended"})


def _put_encryption(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("s3:PutBucketEncryption", {"serverSideEncryptionConfiguration": want}, Bucket=identity)


def _read_encryption(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("s3:GetBucketEncryption", Bucket=identity)
    return {"bucket": identity, "rules": plain(answer["ServerSideEncryptionConfiguration"]["Rules"])}


def _put_access_block(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("s3:PutPublicAccessBlock", {"publicAccessBlockConfiguration": want}, Bucket=identity)


def _read_access_block(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("s3:GetPublicAccessBlock", Bucket=identity)
    return {"bucket": identity, **plain(answer["PublicAccessBlockConfiguration"])}


def _put_policy(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    cloud("s3:PutBucketPolicy", Bucket=identity, Policy=want["policy"])


def _read_policy(cloud: Cloud, identity: str, before: Checked) -> State:
    return {"bucket": identity, "policy": cloud("s3:GetBucketPolicy", Bucket=identity)["Policy"]}


def _put_lifecycle(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    rules = [{"filter": {"prefix": ""}, **rule} for rule in want.get("rules") or []]
    cloud("s3:PutBucketLifecycleConfiguration", {"lifecycleConfiguration": {"rules": rules}}, Bucket=identity)


def _read_lifecycle(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("s3:GetBucketLifecycleConfiguration", Bucket=identity)
    return {"bucket": identity, "rules": plain(answer["Rules"])}


RULE: dict[str, Prop] = {
    "id": text(REQUIRED),
    "status": text(REQUIRED),
    "filter": block({"prefix": text(COMPUTED)}, COMPUTED),
    "abortIncompleteMultipartUpload": block({"daysAfterInitiation": number()}),
    "noncurrentVersionExpiration": block({"noncurrentDays": number(REQUIRED)}),
}

ROWS = [
    Row(
        "aws:s3/bucket:Bucket",
        inputs={
            "bucket": text(REPLACES | COMPUTED),
            "forceDestroy": flag(LOCAL, default=False),
            **TAGS,
        },
        outputs=["arn", "bucketDomainName", "bucketRegion", "bucketRegionalDomainName"],
        autoname=Autoname("bucket", limit=63, lower=True),
        create=_create_bucket,
        read=_read_bucket,
        update=_update_bucket,
        delete=_delete_bucket,
    ),
    Row(
        "aws:s3/bucketVersioning:BucketVersioning",
        inputs={
            **BUCKET,
            "versioningConfiguration": block({"status": text(REQUIRED)}, REQUIRED),
        },
        outputs=[],
        create=created_by(_put_versioning, "bucket"),
        read=_read_versioning,
        update=_put_versioning,
        delete=_suspend_versioning,
        vanishes=False,
    ),
    Row(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        inputs={
            **BUCKET,
            "rules": blocks(
                {
                    "applyServerSideEncryptionByDefault": block(
                        {"sseAlgorithm": text(REQUIRED), "kmsMasterKeyId": text(COMPUTED)}
                    ),
                    "bucketKeyEnabled": flag(COMPUTED),
                },
                REQUIRED,
            ),
        },
        outputs=[],
        create=created_by(_put_encryption, "bucket"),
        read=_read_encryption,
        update=_put_encryption,
        delete=_delete_by("s3:DeleteBucketEncryption"),
        vanishes=False,
    ),
    Row(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        inputs={
            **BUCKET,
            "blockPublicAcls": flag(default=False),
            "blockPublicPolicy": flag(default=False),
            "ignorePublicAcls": flag(default=False),
            "restrictPublicBuckets": flag(default=False),
        },
        outputs=[],
        create=created_by(_put_access_block, "bucket"),
        read=_read_access_block,
        update=_put_access_block,
        delete=_delete_by("s3:DeletePublicAccessBlock"),
    ),
    Row(
        "aws:s3/bucketPolicy:BucketPolicy",
        inputs={**BUCKET, "policy": policy(REQUIRED)},
        outputs=[],
        create=created_by(_put_policy, "bucket"),
        read=_read_policy,
        update=_put_policy,
        delete=_delete_by("s3:DeleteBucketPolicy"),
    ),
    Row(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        inputs={**BUCKET, "rules": blocks(RULE, kind="list")},
        outputs=[],
        create=created_by(_put_lifecycle, "bucket"),
        read=_read_lifecycle,
        update=_put_lifecycle,
        delete=_delete_by("s3:DeleteBucketLifecycle"),
        framework=True,
    ),
]
