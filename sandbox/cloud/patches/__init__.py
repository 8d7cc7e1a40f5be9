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
    "overhead",
    "route53",
    "s3",
    "security_groups",
    "service_quotas",
    "sns",
    "sts",
    "tagging",
)


def apply() -> None:
    # All of them are imported first, so that each one keeps the functions of moto, not those of another patch.
    for patch in [importlib.import_module(f"{__name__}.{name}") for name in PATCHES]:
        patch.apply()
