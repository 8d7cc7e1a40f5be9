"""Checks of the settings before anything is created. A problem names key, value, reason and what to write instead."""

from settings.aws_facts import AwsFacts
from settings.checks import aws, cluster, data, jobs, network
from settings.problem import Problem
from settings.schema import Settings

RULES = (*aws.RULES, *network.RULES, *cluster.RULES, *jobs.RULES, *data.RULES)
FACTS_RULES = (*network.FACTS_RULES, *cluster.FACTS_RULES, *jobs.FACTS_RULES, *data.FACTS_RULES)
WARNINGS = (*aws.WARNINGS, *jobs.WARNINGS)


def check(settings: Settings) -> list[Problem]:
    """Every problem that can be found without AWS."""
    return [problem for rule in RULES for problem in rule(settings)]


def check_facts(settings: Settings, facts: AwsFacts) -> list[Problem]:
    """Every problem with what AWS offers."""
    return [problem for rule in FACTS_RULES for problem in rule(settings, facts)]


def warnings(settings: Settings, facts: AwsFacts) -> list[Problem]:
    """What probably does not work, but can."""
    return [problem for rule in WARNINGS for problem in rule(settings, facts)]
