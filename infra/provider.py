"""The AWS provider that every resource goes through, and with it everybody's tags."""

import re

import pulumi_aws as aws

from settings.schema import Settings


def aws_provider(settings: Settings) -> aws.Provider:
    """A provider with all that the stack's aws:* keys say: an explicit provider inherits none of them by itself."""
    options = {re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): value for key, value in settings.aws.items()}
    return aws.Provider("aws", default_tags={"tags": settings.all_tags}, **options)
