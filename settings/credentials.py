"""The AWS CLI options that give kubectl the same credentials as the stack's aws:* settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STATIC_KEYS = ("accessKey", "secretKey", "token")
FILES = {"sharedConfigFiles": "AWS_CONFIG_FILE", "sharedCredentialsFiles": "AWS_SHARED_CREDENTIALS_FILE"}
# `aws eks get-token` cannot use anything else of a role to assume.
ROLE_OPTIONS = ("roleArn", "sessionName", "duration")


@dataclass(frozen=True)
class CliCredentials:
    """`options` belong before the command, `token_options` after `get-token`."""

    options: Sequence[str] = ()
    token_options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def cli_credentials(aws: Mapping[str, Any]) -> CliCredentials:
    """The options for profile, role and shared files. An option wins over AWS keys in the environment."""
    role: Mapping[str, str] = next(iter(aws.get("assumeRoles") or []), {})
    token_options: list[str] = []
    if role.get("roleArn"):
        token_options += ["--role-arn", role["roleArn"]]
    if role.get("sessionName"):
        token_options += ["--session-name", role["sessionName"]]
    return CliCredentials(
        options=["--profile", aws["profile"]] if aws.get("profile") else [],
        token_options=token_options,
        environment={name: aws[key][0] for key, name in FILES.items() if aws.get(key)},
    )


def not_for_cli(aws: Mapping[str, Any]) -> Iterator[str]:
    """The aws:* settings that work for the AWS provider and that the AWS CLI cannot use."""
    yield from (key for key in (*STATIC_KEYS, "assumeRoleWithWebIdentity") if aws.get(key))
    yield from (key for key in FILES if len(aws.get(key) or []) > 1)
    roles = aws.get("assumeRoles") or []
    if len(roles) > 1 or any(set(role) - set(ROLE_OPTIONS) for role in roles):
        yield "assumeRoles"
