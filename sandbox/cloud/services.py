"""The AWS services that the sandbox emulates, by the names that the AWS provider gives their endpoints."""

SERVICES = ("autoscaling", "ec2", "efs", "eks", "iam", "kms", "logs", "route53", "s3", "ssm", "sts")
