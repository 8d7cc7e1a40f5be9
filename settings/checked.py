"""The one way from the files of a stack to valid settings."""

from collections.abc import Callable

import pulumi
import pulumi_aws as aws

from settings.ask_aws import ask_aws
from settings.aws_errors import NoAnswerError
from settings.aws_facts import AwsFacts
from settings.checks import check, check_facts, warnings
from settings.problem import Problem
from settings.schema import Settings, load


def checked(create_provider: Callable[[Settings], aws.Provider]) -> tuple[Settings, aws.Provider, AwsFacts]:
    """The stack's settings, its provider and what AWS offers; or one error with all problems."""
    settings, problems = load()
    problems += check(settings)
    # The provider cannot be configured with invalid options.
    if any(problem.key.startswith("aws:") for problem in problems):
        raise _refusal(settings, problems)
    provider = create_provider(settings)
    try:
        facts = ask_aws(settings, provider)
    except NoAnswerError as error:
        why = f"could not be checked with AWS: {error}"
        instead = "Check the region's name, your network, and `aws sts get-caller-identity`"
        raise _refusal(settings, [*problems, Problem("aws:region", settings.region, why, instead)]) from None
    problems += check_facts(settings, facts)
    if problems:
        raise _refusal(settings, problems)
    for warning in warnings(settings, facts):
        pulumi.log.warn(str(warning))
    return settings, provider, facts


def _refusal(settings: Settings, problems: list[Problem]) -> pulumi.RunError:
    listed = "\n".join(f"  {problem.hidden(settings.secrets)}" for problem in problems)
    return pulumi.RunError(f"Stack {settings.stack} has invalid settings. Nothing was created in AWS.\n{listed}")
