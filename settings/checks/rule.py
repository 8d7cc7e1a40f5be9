"""What all rules have in common."""

from collections.abc import Callable, Iterator, Mapping

from settings.aws_facts import AwsFacts
from settings.problem import Problem
from settings.schema import Settings

Problems = Iterator[Problem]
Rule = Callable[[Settings], Problems]
# A rule about what AWS offers this account, this stack or this region.
FactsRule = Callable[[Settings, AwsFacts], Problems]

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def at_least(limits: Mapping[str, tuple[int, int]]) -> Problems:
    """`limits` maps a key to its value and the smallest one that is valid."""
    for key, (value, least) in limits.items():
        if value < least:
            yield Problem(key, value, "is too small", f"Write {least} or more")
