"""The policy pack: `pulumi preview --policy-pack policy` runs the rules."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

# The engine starts a policy pack in the folder of the pack.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from policy.graph import Resource, Stack, Unknown
from policy.rules import RESOURCE_RULES, STACK_RULES, Problems


def plain(value: Any) -> Any:
    """The value with Unknown() for each part that is not known yet. The SDK would raise an error there."""
    if isinstance(value, Mapping):
        return {key: _member(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_member(value, i) for i in range(len(value))]
    return value


def _member(container: Any, key: Any) -> Any:
    try:
        return plain(container[key])
    except UnknownValueError:
        return Unknown()


def resource(given: ResourceValidationArgs | PolicyResource) -> Resource:
    refs = given.property_dependencies if isinstance(given, PolicyResource) else {}
    return Resource(
        urn=given.urn,
        type=given.resource_type,
        name=given.name,
        inputs=plain(given.props),
        refs={key: frozenset(each.urn for each in resources) for key, resources in refs.items()},
        protect=given.opts.protect,
        provider=plain(given.provider.props) if given.provider else {},
    )


def on_resource(rule: Callable[[Resource], Problems]) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        _report(rule(resource(args)), report, None)

    return ResourceValidationPolicy(_name(rule), rule.__doc__ or "", validate)


def on_stack(rule: Callable[[Resource, Stack], Problems]) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        stack = Stack([resource(each) for each in args.resources])
        for each in stack.resources:
            _report(rule(each, stack), report, each.urn)

    return StackValidationPolicy(_name(rule), rule.__doc__ or "", validate)


def _name(rule: Callable[..., Problems]) -> str:
    return rule.__name__.replace("_", "-")


def _report(problems: Iterable[str], report: ReportViolation, urn: str | None) -> None:
    for problem in problems:
        report(problem, urn)


PolicyPack(
    "paddle-on-aws",
    [*map(on_resource, RESOURCE_RULES), *map(on_stack, STACK_RULES)],
    enforcement_level=EnforcementLevel.MANDATORY,
)
