"""Patches for moto: each adds something that moto lacks, or corrects an answer that differs from AWS."""

import importlib

PATCHES = (
    "budgets",
    "ec2",
    "efs",
    "eks",
    "iam",
    "in_use",
    "kms",
    "logs",
    "route53",
    "s3",
    "security_groups",
    "service_quotas",
    "sns",
    "sts",
    "tagging",
)


def apply() -> None:
    for name in PATCHES:
        importlib.import_module(f"{__name__}.{name}").apply()
