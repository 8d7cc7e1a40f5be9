"""S3 patches: bucket policies with conditions, and deletion of versions in buckets with suspended versioning."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from moto.core.common_types import TYPE_RESPONSE
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.models import FakeBucket, S3Backend
from moto.s3.responses import S3Response

_delete = S3Backend.delete_object
_put = S3Response._bucket_response_put


def _denies_requests_without_tls(statement: dict[str, Any]) -> bool:
    conditions = statement.get("Condition", {}).get("Bool", {})
    return str(conditions.get("aws:SecureTransport", "")).lower() == "false"


def _get_permission(self: FakeBucket, action: str, resource: str) -> PermissionResult:
    """Ignore statements that deny requests without TLS. moto applies a Deny without looking at its condition."""
    document = json.loads(self.policy or b'{"Statement": []}')
    statements = document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]
    statements_to_apply = [each for each in statements if not _denies_requests_without_tls(each)]
    return IAMPolicy(json.dumps({**document, "Statement": statements_to_apply})).is_action_permitted(action, resource)


def _delete_object(
    self: S3Backend, bucket_name: str, key_name: str, version_id: str | None = None, bypass: bool = False
) -> tuple[bool, dict[str, Any]]:
    """In a bucket with suspended versioning, delete only the version that the request names."""
    bucket = self.get_bucket(bucket_name)
    if not version_id or not isinstance(bucket, FakeBucket) or bucket.versioning_status != "Suspended":
        return _delete(self, bucket_name, key_name, version_id, bypass)
    kept = [each for each in bucket.keys.getlist(key_name, []) if str(each.version_id) != version_id]
    bucket.keys.setlist(key_name, kept)
    if not kept:
        bucket.keys.pop(key_name)
    return True, {"version-id": version_id}


def _put_bucket(self: S3Response, request: Any, bucket_name: str, querystring: dict[str, Any]) -> str | TYPE_RESPONSE:
    """Store the tags of a new bucket; moto ignores them."""
    answer = _put(self, request, bucket_name, querystring)
    if not querystring and self.body:
        tags = ElementTree.fromstring(self.body).iterfind("{*}Tags/{*}Tag")
        stored = {tag.findtext("{*}Key", ""): tag.findtext("{*}Value", "") for tag in tags}
        if stored:
            self.backend.put_bucket_tagging(bucket_name, stored)
    return answer


def apply() -> None:
    S3Response._bucket_response_put = _put_bucket  # type: ignore[method-assign]
    FakeBucket.get_permission = _get_permission  # type: ignore[method-assign]
    S3Backend.delete_object = _delete_object  # type: ignore[method-assign]
