"""Functions that build IAM policy documents."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

Statement = Mapping[str, Any]


def document(*statements: Statement) -> pulumi.Output[str]:
    """A policy document with these statements. Values can be outputs."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(
    sid: str,
    actions: Sequence[str],
    resource: pulumi.Input[str] | Sequence[pulumi.Input[str]],
    condition: Mapping[str, Any] | None = None,
    principal: Any = None,
) -> Statement:
    """One Allow statement. Policies of resources also need a principal."""
    statement: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resource}
    if principal:
        statement["Principal"] = principal
    if condition:
        statement["Condition"] = condition
    return statement


def account_decides(account: str, partition: str) -> Statement:
    """The default statement of a KMS key policy: IAM policies of the account decide who can use the key."""
    return allow("EnableIamPolicies", ("kms:*",), "*", principal={"AWS": f"arn:{partition}:iam::{account}:root"})


def assumed_by(service: str) -> pulumi.Output[str]:
    """Trust policy for an AWS service."""
    return document({"Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": {"Service": service}})


def assumed_by_subject(provider_arn: pulumi.Input[str], host: pulumi.Input[str], subject: str) -> pulumi.Output[str]:
    """Trust policy for one identity: tokens of this provider for AWS, with exactly this subject."""
    claims = pulumi.Output.from_input(host).apply(
        lambda host: {f"{host}:aud": "sts.amazonaws.com", f"{host}:sub": subject}
    )
    return document(
        {
            "Effect": "Allow",
            "Action": ["sts:AssumeRoleWithWebIdentity"],
            "Principal": {"Federated": provider_arn},
            "Condition": {"StringEquals": claims},
        }
    )


def assumed_by_service_account(
    provider_arn: pulumi.Input[str], issuer: pulumi.Input[str], subject: str
) -> pulumi.Output[str]:
    """Trust policy for one Kubernetes service account of the cluster."""
    host = pulumi.Output.from_input(issuer).apply(lambda url: url.removeprefix("https://"))
    return assumed_by_subject(provider_arn, host, subject)


def tls_only(bucket_arn: pulumi.Input[str]) -> Statement:
    """Denies all access to a bucket without TLS."""
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn, pulumi.Output.concat(bucket_arn, "/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
