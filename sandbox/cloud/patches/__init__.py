"""Patches for moto: each adds something that moto lacks, or corrects an answer that differs from AWS."""

from sandbox.cloud.patches import ec2, efs, eks, iam, kms, logs, route53, s3, security_groups, service_quotas, sts


def apply() -> None:
    for patch in (ec2, efs, eks, iam, kms, logs, route53, s3, security_groups, service_quotas, sts):
        patch.apply()
