"""STS patch: the ARN of a user is an ARN of IAM. moto writes one of STS for keys that it did not create."""

from moto.sts.models import STSBackend

_get_caller_identity = STSBackend.get_caller_identity


def _with_iam_arn(self: STSBackend, access_key_id: str, region: str) -> tuple[str, str, str]:
    user_id, arn, account = _get_caller_identity(self, access_key_id, region)
    return user_id, arn.replace(":sts:", ":iam:") if ":user/" in arn else arn, account


def apply() -> None:
    STSBackend.get_caller_identity = _with_iam_arn  # type: ignore[method-assign]
