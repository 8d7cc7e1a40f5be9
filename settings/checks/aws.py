"""The aws:* settings, the tags, and what the region offers."""

import inspect
import re

import pulumi_aws as aws

from settings.aws_facts import AwsFacts, services_for
from settings.credentials import STATIC_KEYS, not_for_cli
from settings.problem import Problem, Problems
from settings.schema import Settings, camel


def provider_options(s: Settings) -> Problems:
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d", s.region):
        yield Problem("aws:region", s.region, "is not an AWS region", "Write one, such as us-west-2")
    known = {camel(name) for name in inspect.signature(aws.ProviderArgs).parameters}
    for key in sorted(set(s.aws) - known - {"defaultTags"}):
        yield Problem(f"aws:{key}", s.aws[key], "is not an option of the AWS provider", "Remove it")
    if "defaultTags" in s.aws:
        yield Problem("aws:defaultTags", s.aws["defaultTags"], "would be ignored", "Write the tags in the setting tags")


def cli_credentials(s: Settings) -> Problems:
    for key in not_for_cli(s.aws) if not s.kubeconfig else []:
        shown = "(secret)" if key in STATIC_KEYS else s.aws[key]
        why = "is not passed to `aws eks get-token`, so kubectl would have no access to the cluster"
        instead = "Write a profile of your AWS configuration in aws:profile instead"
        yield Problem(f"aws:{key}", shown, why, instead)


def tags(s: Settings) -> Problems:
    for key, value in s.tags.items():
        if key.lower() in ("project", "stack", "name"):
            yield Problem(f"tags.{key}", value, "is a tag that the program sets itself", "Use another tag name")
        elif key.startswith("aws:") or not re.fullmatch(r"[\w .:/=+@-]{1,128}", key):
            why = "has a tag name that AWS does not allow"
            yield Problem(f"tags.{key}", value, why, "Use up to 128 letters, digits, spaces and _.:/=+-@")
        elif not re.fullmatch(r"[\w .:/=+@-]{0,256}", value):
            why = "is a tag value that AWS does not allow"
            yield Problem(f"tags.{key}", value, why, "Use up to 256 letters, digits, spaces and _.:/=+-@")
    if len(s.tags) > 40:
        why = "is too many tags: AWS allows 50, including the tags that the program adds"
        yield Problem("tags", len(s.tags), why, "Write 40 or fewer")


def region_has_services(s: Settings, facts: AwsFacts) -> Problems:
    """A warning, because AWS's list does not contain every service of every region."""
    missing = [service for service in services_for(s) if service not in facts.services]
    if missing:
        why = f"does not have {', '.join(missing)} in AWS's list of services"
        yield Problem("aws:region", s.region, why, "If creating its resources fails, choose another region")


RULES = (provider_options, cli_credentials, tags)
WARNINGS = (region_has_services,)
