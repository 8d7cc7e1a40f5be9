"""What moto lacks or answers otherwise than AWS, put right before its server starts. Each mend could go upstream."""

from sandbox.cloud.patches import ec2, efs, eks, iam, kms, route53, s3, security_groups, ssm


def apply() -> None:
    for patch in (ec2, efs, eks, iam, kms, route53, s3, security_groups, ssm):
        patch.apply()
