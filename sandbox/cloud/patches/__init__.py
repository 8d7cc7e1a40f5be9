"""Patches for moto: each adds something that moto lacks, or corrects an answer that differs from AWS."""

from sandbox.cloud.patches import (
    budgets,
    ec2,
    efs,
    eks,
    iam,
    in_use,
    kms,
    logs,
    route53,
    s3,
    security_groups,
    service_quotas,
    sns,
    sts,
    tagging,
)


def apply() -> None:
    for patch in (
        budgets,
        ec2,
        efs,
        eks,
        iam,
        in_use,
        kms,
        logs,
        route53,
        s3,
        security_groups,
        service_quotas,
        sns,
        sts,
        tagging,
    ):
        patch.apply()
