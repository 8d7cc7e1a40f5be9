"""Hooks that refuse a change, because AWS would reject it or because it would never complete."""

from collections.abc import Callable

import pulumi

from settings.problem import Problem


def refusal(name: str, problem: Problem | Callable[[pulumi.ResourceHookArgs], Problem | None]) -> pulumi.ResourceHook:
    """A hook that stops a preview or an update before its resource changes, if there is a problem."""

    def refuse(args: pulumi.ResourceHookArgs) -> None:
        if found := problem if isinstance(problem, Problem) else problem(args):
            raise RuntimeError(str(found))

    return pulumi.ResourceHook(name, refuse, pulumi.ResourceHookOptions(on_dry_run=True))
