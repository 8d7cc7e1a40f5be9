"""The AWS provider of all resources. It also tags them."""

import re
from typing import Any

import pulumi
import pulumi_aws as aws

from settings.schema import Settings


def aws_provider(settings: Settings) -> aws.Provider:
    """A provider with the stack's aws:* settings. Pulumi passes those only to its default provider."""
    options: dict[str, Any] = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): (
            pulumi.Output.secret(value) if f"aws:{key}" in settings.secrets else value
        )
        for key, value in settings.aws.items()
    }
    return aws.Provider("aws", default_tags={"tags": settings.all_tags}, **options)
