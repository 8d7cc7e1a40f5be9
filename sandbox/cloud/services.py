"""The AWS services that the sandbox emulates. The names are the keys of `aws:endpoints`."""

EMULATED_SERVICES = (
    *("autoscaling", "budgets", "ec2", "efs", "eks", "iam", "kms", "logs", "route53", "s3", "servicequotas", "sns"),
    *("ssm", "sts"),
)
# The names of botocore, if they differ.
BOTOCORE_NAMES = {"servicequotas": "service-quotas"}
