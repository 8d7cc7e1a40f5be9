"""STS patch: an access key that IAM did not create belongs to the IAM user `deployer`. moto has no IAM user for it."""

from moto.sts.models import STSBackend

USER = "deployer"

_get_caller_identity = STSBackend.get_caller_identity


def _with_iam_user(self: STSBackend, access_key_id: str, region: str) -> tuple[str, str, str]:
    user_id, arn, account = _get_caller_identity(self, access_key_id, region)
    return (
        user_id,
        arn.replace(":sts:", ":iam:").replace("user/moto", f"user/{USER}") if ":user/" in arn else arn,
        account,
    )


def apply() -> None:
    STSBackend.get_caller_identity = _with_iam_user  # type: ignore[method-assign]
