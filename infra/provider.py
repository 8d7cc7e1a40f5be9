"""The AWS provider of all resources. It also tags them."""

import re

import pulumi_aws as aws

from settings.schema import Settings


def aws_provider(settings: Settings) -> aws.Provider:
    """A provider with the stack's aws:* settings. Pulumi passes those only to its default provider."""
    options = {re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): value for key, value in settings.aws.items()}
    return aws.Provider("aws", default_tags={"tags": settings.all_tags}, **options)
