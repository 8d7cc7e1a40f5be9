"""Repairs the state of a stack after its engine was killed: `python -m recover STACK [--dry-run]`."""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from recover import state
from recover.find import find

# A resource that AWS is still creating must be ready before `pulumi up` uses it.
WAITERS: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    "aws:ec2/natGateway:NatGateway": (
        "ec2",
        "nat_gateway_available",
        lambda _, identity: {"NatGatewayIds": [identity]},
    ),
    "aws:eks/addon:Addon": (
        "eks",
        "addon_active",
        lambda inputs, _: {"clusterName": inputs["clusterName"], "addonName": inputs["addonName"]},
    ),
    "aws:eks/cluster:Cluster": ("eks", "cluster_active", lambda inputs, _: {"name": inputs["name"]}),
    "aws:eks/nodeGroup:NodeGroup": (
        "eks",
        "nodegroup_active",
        lambda inputs, _: {"clusterName": inputs["clusterName"], "nodegroupName": inputs["nodeGroupName"]},
    ),
}


class RecoverError(Exception):
    """A problem that the user can solve. The message says what failed and what to do."""


def pulumi(stack: str, *arguments: str) -> str:
    """Run a Pulumi command on the stack and return its output."""
    command = ["pulumi", *arguments, "--stack", stack]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RecoverError("the command `pulumi` was not found on PATH. Install the Pulumi CLI.") from None
    if done.returncode:
        raise RecoverError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def search(client: Callable[[str], Any], deployment: Mapping[str, Any]) -> dict[str, list[str]]:
    """The IDs of the resources that exist without a record in the state, by URN."""
    known = state.known_ids(deployment)
    tags = state.stack_tags(deployment)
    found: dict[str, list[str]] = {}
    for each in state.unfinished(deployment):
        ids: list[str] | None
        if each.type.startswith(state.KUBERNETES):
            # The ID follows from the inputs. `pulumi refresh` drops the object again if it does not exist.
            ids = [state.object_id(each.inputs)]
        elif each.type.startswith(state.AWS):
            ids = find(client, each.type, each.inputs, tags)
        else:
            continue
        if ids is None:
            raise RecoverError(f"{each.type} is not supported. Search for {each.name} in AWS and delete it.")
        found[each.urn] = [identity for identity in ids if (each.type, identity) not in known]
        known |= {(each.type, identity) for identity in found[each.urn]}
    return found


def lines(deployment: Mapping[str, Any], found: Mapping[str, Sequence[str]]) -> list[str]:
    """What recover does with each unfinished resource."""
    live = state.live_urns(deployment)
    text = []
    for each in state.unfinished(deployment):
        ids = found.get(each.urn, ())
        if not ids:
            text.append(f"  {each.type} {each.name}: does not exist, `pulumi up` creates it")
        for number, identity in enumerate(ids):
            unwanted = number > 0 or each.urn in live
            action = "a second one, `pulumi up` deletes it" if unwanted else "add to the state if it exists"
            text.append(f"  {each.type} {each.name}: {identity}: {action}")
    return text


def recover(stack: str, dry_run: bool, config_file: str) -> None:
    exported = json.loads(pulumi(stack, "stack", "export"))
    deployment = exported["deployment"]
    if not deployment.get("pending_operations"):
        print(f"Nothing to recover: no operation of stack {stack} was interrupted.")
        return
    on_aws = any(each.type.startswith(state.AWS) for each in state.unfinished(deployment))
    if on_aws and not state.stack_tags(deployment):
        raise RecoverError(
            f"the state of stack {stack} has no tags, so its resources cannot be found. Run `pulumi up`."
        )
    client = functools.cache(
        lambda service: boto3.client(service, region_name=state.provider(deployment).get("region"))
    )
    found = search(client, deployment)
    print(f"Unfinished resources of stack {stack}:", *lines(deployment, found) or ["  none"], sep="\n")
    if dry_run:
        return
    wait_until_ready(client, deployment, found)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps({**exported, "deployment": state.adopt(deployment, found)}))
        pulumi(stack, "stack", "import", "--file", str(file))
    pulumi(stack, "refresh", "--yes", "--skip-preview", *(["--config-file", config_file] if config_file else []))
    print("The state is repaired. Continue with `pulumi up` or `pulumi destroy`.")


def wait_until_ready(
    client: Callable[[str], Any], deployment: Mapping[str, Any], found: Mapping[str, Sequence[str]]
) -> None:
    for each in state.unfinished(deployment):
        if each.type in WAITERS and found.get(each.urn):
            service, waiter, arguments = WAITERS[each.type]
            try:
                client(service).get_waiter(waiter).wait(**arguments(each.inputs, found[each.urn][0]))
            except WaiterError as error:
                # The ID follows from the inputs, but the resource was not created.
                if "NotFound" not in error.last_response.get("Error", {}).get("Code", ""):
                    raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m recover", description=__doc__)
    parser.add_argument("stack", help="name of the stack")
    parser.add_argument("--dry-run", action="store_true", help="only list the unfinished resources")
    parser.add_argument("--config-file", default="", help="stack file, if it is not Pulumi.STACK.yaml")
    given = parser.parse_args()
    try:
        recover(given.stack, given.dry_run, given.config_file)
    except (RecoverError, BotoCoreError, ClientError) as error:
        print(f"recover: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
