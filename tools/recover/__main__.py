"""Repairs the state of a stack after its engine was killed, and lists what AWS has and the state does not."""

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

from tools.recover import state
from tools.recover.find import find
from tools.recover.unrecorded import search_unrecorded

# The other tags of a stack can change.
OWNER_TAGS = ("project", "stack")

SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"

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
            action = "add to the state if it exists"
            if number > 0 or each.urn in live:
                action = "a second one, `pulumi up` deletes it"
            elif each.type == SECURITY_GROUP:
                action += ", without the rule of AWS that allows all outgoing traffic"
            text.append(f"  {each.type} {each.name}: {identity}: {action}")
    return text


def session(provider: Mapping[str, Any]) -> boto3.Session:
    """The AWS credentials of the stack: profile and role of its aws:* settings, otherwise those of the environment."""
    secret = [key for key in ("profile", "assumeRoles") if not isinstance(provider.get(key, ""), str)]
    if secret:
        raise RecoverError(
            f"aws:{secret[0]} is a secret, so the account of the stack is unknown. Set it without --secret."
        )
    region = provider.get("region")
    found = boto3.Session(profile_name=provider.get("profile"), region_name=region)
    for role in json.loads(provider.get("assumeRoles") or "[]"):
        optional = {"ExternalId": role["externalId"]} if role.get("externalId") else {}
        keys = found.client("sts").assume_role(
            RoleArn=role["roleArn"], RoleSessionName=role.get("sessionName") or "recover", **optional
        )["Credentials"]
        found = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name=region)
    return found


def recover(stack: str, dry_run: bool, config_file: str) -> None:
    exported = json.loads(pulumi(stack, "stack", "export"))
    deployment = exported["deployment"]
    client = functools.cache(session(state.provider(deployment)).client)
    if deployment.get("pending_operations"):
        deployment = repair(client, stack, exported, dry_run, config_file)
    else:
        print(f"Nothing to recover: no operation of stack {stack} was interrupted.")
    print(*unrecorded_lines(client, stack, deployment), sep="\n")


def unrecorded_lines(client: Callable[[str], Any], stack: str, deployment: Mapping[str, Any]) -> list[str]:
    tags = {key: value for key, value in state.stack_tags(deployment).items() if key in OWNER_TAGS}
    if len(tags) < len(OWNER_TAGS):
        return ["The state has no tags, so `recover` cannot search AWS for resources that are not in the state."]
    found = search_unrecorded(client, deployment, tags)
    if not found:
        return [f"AWS has no resources with the tags of stack {stack} that are not in its state."]
    return [
        f"Resources with the tags of stack {stack} that are not in its state:",
        *(each.line for each in found),
        "`recover` does not delete them: a stack with the same name in another backend has the same tags.",
    ]


def repair(
    client: Callable[[str], Any], stack: str, exported: Mapping[str, Any], dry_run: bool, config_file: str
) -> Mapping[str, Any]:
    """Add to the state what the interrupted run created, and return this state."""
    deployment: Mapping[str, Any] = exported["deployment"]
    on_aws = any(each.type.startswith(state.AWS) for each in state.unfinished(deployment))
    if on_aws and not state.stack_tags(deployment):
        raise RecoverError(
            f"the state of stack {stack} has no tags, so its resources cannot be found. Run `pulumi up`."
        )
    found = search(client, deployment)
    print(f"Unfinished resources of stack {stack}:", *lines(deployment, found) or ["  none"], sep="\n")
    adopted = state.adopt(deployment, found)
    if dry_run:
        return adopted
    wait_until_ready(client, deployment, found)
    revoke_default_rules(client, deployment, found)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps({**exported, "deployment": adopted}))
        pulumi(stack, "stack", "import", "--file", str(file))
    pulumi(stack, "refresh", "--yes", "--skip-preview", *(["--config-file", config_file] if config_file else []))
    print("The state is repaired. Continue with `pulumi up` or `pulumi destroy`.")
    repaired: Mapping[str, Any] = json.loads(pulumi(stack, "stack", "export"))["deployment"]
    return repaired


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


def revoke_default_rules(
    client: Callable[[str], Any], deployment: Mapping[str, Any], found: Mapping[str, Sequence[str]]
) -> None:
    """Complete the creation of security groups, which the provider does not do later.

    AWS adds a rule to each new group that allows all outgoing traffic, and the provider revokes it in a second call.
    The group has no other rules: Pulumi creates the rules of a group after the group.
    """
    ec2 = client("ec2")
    for each in state.unfinished(deployment):
        for identity in found.get(each.urn, ()) if each.type == SECURITY_GROUP else ():
            (group,) = ec2.describe_security_groups(GroupIds=[identity])["SecurityGroups"]
            if rules := group["IpPermissionsEgress"]:
                ec2.revoke_security_group_egress(GroupId=identity, IpPermissions=rules)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.recover", description=__doc__)
    parser.add_argument("stack", help="name of the stack")
    parser.add_argument("--dry-run", action="store_true", help="only list the resources")
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
