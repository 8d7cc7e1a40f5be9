"""Reads a stack from Pulumi: its resources, its outputs, and what `pulumi up` is doing now."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.engine import pulumi_cli
from sandbox.paths import sandbox_command
from settings.schema import PROJECT
from tools import pulumi_state
from tools.kubernetes_client import parse_time
from tools.pulumi_state import Deployment, Resource
from tools.watch.errors import WatchError

SECONDS_TO_ANSWER = 60


@dataclass(frozen=True)
class Stack:
    """The state of one stack, as far as the view needs it."""

    resources: int = 0
    operations: tuple[str, ...] = ()
    created: float = 0.0
    kubeconfig: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)


def environment(stack: str) -> Mapping[str, str]:
    """The environment in which `pulumi` finds the stack."""
    return pulumi_cli.environment() if pulumi_cli.in_sandbox(stack) else os.environ


def fetch_command(stack: str, outputs: Mapping[str, Any]) -> str:
    """The command that fetches the model, as it works here; empty if the stack does not export its model yet."""
    command = str((outputs.get("nextSteps") or {}).get("fetchModel", ""))
    if not command or not pulumi_cli.in_sandbox(stack):
        return command
    return f"{sandbox_command()} --stack {stack} run {command}"


def export(stack: str, env: Mapping[str, str]) -> Stack:
    """Read the stack's state. This works while `pulumi up` runs."""
    command = ["pulumi", "stack", "export", "--show-secrets", "--stack", stack]
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_ANSWER,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError:
        raise WatchError(
            "The command pulumi is not installed. Install it, or start the sandbox with `make sandbox` and watch that."
        ) from None
    except subprocess.TimeoutExpired:
        raise WatchError(f"`pulumi stack export` gave no answer in {SECONDS_TO_ANSWER} s. Check the network.") from None
    if done.returncode:
        raise WatchError(advice(stack, done.stderr))
    return read_state(json.loads(done.stdout))


def advice(stack: str, message: str) -> str:
    """One line for the user: why Pulumi cannot read the stack, and what to do."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "no reason given")
    if "no stack named" in message or "could not find stack" in message:
        return f"Stack {stack} does not exist. Create it with `pulumi up --stack {stack}`, or run `make sandbox`."
    if "passphrase" in message:
        return f"Stack {stack} is encrypted. Set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE."
    if "PULUMI_ACCESS_TOKEN" in message or "pulumi login" in message:
        return "Pulumi is not logged in. Run `pulumi login` with the URL of the state bucket."
    return f"Pulumi cannot read stack {stack}: {reason.removeprefix('error:').strip()}"


def read_state(exported: Mapping[str, Any]) -> Stack:
    """The facts in the output of `pulumi stack export`."""
    deployment: Deployment = exported.get("deployment") or {}
    outputs = pulumi_state.revealed(pulumi_state.stack_outputs(deployment))
    kubeconfig, created = "", []
    for resource in pulumi_state.resources(deployment):
        if resource["type"] == "pulumi:providers:kubernetes":
            kubeconfig = str(pulumi_state.revealed((resource.get("inputs") or {}).get("kubeconfig", "")))
        if resource["type"].startswith("aws:") and resource.get("created"):
            created.append(parse_time(resource["created"]))
    operations = tuple(describe(each["type"], each["resource"]) for each in pulumi_state.pending_operations(deployment))
    count = pulumi_state.resource_count(deployment)
    return Stack(count, operations, min(created, default=0.0), kubeconfig, outputs)


def describe(operation: str, resource: Resource) -> str:
    """An operation as text, such as `creating Cluster paddle-cluster`."""
    return f"{operation} {resource['type'].rpartition(':')[2]} {pulumi_state.name_of(resource['urn'])}"
