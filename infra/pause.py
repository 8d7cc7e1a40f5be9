"""workers.count: 0 pauses a stack. Then nothing that needs workers is created, because it would time out."""

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.refusal import refusal
from settings.problem import Problem


def job_options(name: str, paused: bool) -> pulumi.ResourceOptions:
    """Options of a Job. The hook runs only before a change, so a finished Job can stay as it is."""
    if not paused:
        return pulumi.ResourceOptions()
    hook = _hook(name)
    return pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook]))


def addon_options(name: str, paused: bool) -> pulumi.ResourceOptions:
    """Options of an add-on with a Deployment. Without workers, a new version would not become active."""
    if not paused:
        return pulumi.ResourceOptions()
    created = pulumi.ResourceHookBinding(before_create=[_hook(name)])
    return pulumi.ResourceOptions(hooks=created, ignore_changes=["addonVersion"])


def _hook(name: str) -> pulumi.ResourceHook:
    """A hook for the resource with this logical name."""
    return refusal(f"workers-for-{name}", needs_workers)


def needs_workers(args: pulumi.ResourceHookArgs) -> Problem | None:
    if _has_failed(args.old_outputs or {}):
        return None
    why = f"pauses the stack, and {args.name} needs workers, because it is new, has changed or has not finished"
    instead = "Write at least as many workers as trainers. Write 0 after the training to pause the stack"
    return Problem("workers.count", 0, why, instead)


def _has_failed(job: Mapping[str, Any]) -> bool:
    """Whether this is a Job that has failed. It does not run any more, so it needs no workers."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Failed" and each["status"] == "True" for each in conditions)
