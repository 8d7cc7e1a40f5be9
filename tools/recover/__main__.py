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
from botocore.exceptions import BotoCoreError, ClientError

from tools.pulumi_state import Deployment, Resource
from tools.recover import state
from tools.recover.find import SEARCHED, find, listed
from tools.recover.unrecorded import search_unrecorded

# The other tags of a stack can change.
OWNER_TAGS = ("project", "stack")

SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"

EVERYTHING = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}

# `pulumi preview` prints this for a value that it does not know.
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

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


def run(stack: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["pulumi", *arguments, "--stack", stack], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RecoverError("the command `pulumi` was not found on PATH. Install the Pulumi CLI.") from None


def pulumi(stack: str, *arguments: str) -> str:
    """Run a Pulumi command on the stack and return its output."""
    done = run(stack, *arguments)
    if done.returncode:
        raise RecoverError(f"`pulumi {' '.join(arguments)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def planned_creates(stack: str, config_file: str) -> list[Resource]:
    """What `pulumi up` would create, as far as the preview comes."""
    done = run(stack, "preview", "--json", *config(config_file))
    try:
        previewed = json.loads(done.stdout)
    except ValueError:
        previewed = {"steps": [], "diagnostics": [{"severity": "error", "message": done.stderr}]}
    if done.returncode:
        errors = [each["message"] for each in previewed["diagnostics"] if each["severity"] == "error"]
        reason = " ".join("".join(errors[:1]).split()).removeprefix("error: ").removeprefix("Preview failed: ")
        print(f"`pulumi preview` failed, so `recover` does not know all that `pulumi up` would create: {reason}")
    return [each["newState"] for each in previewed["steps"] if each["op"] == "create"]


def search(client: Callable[[str], Any], deployment: Deployment) -> dict[str, list[str]]:
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


def lines(deployment: Deployment, found: Mapping[str, Sequence[str]]) -> list[str]:
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


def recover(stack: str, dry_run: bool, adopt: bool, config_file: str) -> None:
    exported = json.loads(pulumi(stack, "stack", "export"))
    deployment = exported["deployment"]
    client = functools.cache(session(state.provider(deployment)).client)
    if deployment.get("pending_operations"):
        deployment = repair(client, stack, exported, dry_run, config_file)
    else:
        print(f"Nothing to recover: no operation of stack {stack} was interrupted.")
        if state.stack_tags(deployment):
            deployment = compare(client, stack, exported, adopt and not dry_run, config_file)
    print(*unrecorded_lines(client, stack, deployment), sep="\n")


def compare(
    client: Callable[[str], Any], stack: str, exported: Mapping[str, Any], adopt: bool, config_file: str
) -> Deployment:
    """List what `pulumi up` would create although AWS has it, and add it to the state if the user wants that."""
    deployment: Deployment = exported["deployment"]
    creates = planned_creates(stack, config_file)
    findable = [each for each in creates if each["type"] in SEARCHED and UNKNOWN not in json.dumps(each["inputs"])]
    planned = state.planned(deployment, findable)
    found = {urn: ids for urn, ids in search(client, planned).items() if len(ids) == 1}
    if not found:
        return deployment
    print(f"`pulumi up` would create these resources of stack {stack}, but AWS has them:")
    # The order of a preview varies.
    names = sorted((each.type, each.name, *found[each.urn]) for each in state.unfinished(planned) if each.urn in found)
    print(*(f"  {kind} {name}: {identity}" for kind, name, identity in names), sep="\n")
    if not adopt:
        print("If they do not belong to a stack with the same name in another backend, add them to the state:")
        print(f"  make recover STACK={stack} ADOPT=1")
        return deployment
    return complete(client, stack, {**exported, "deployment": planned}, found, config_file)


def unrecorded_lines(client: Callable[[str], Any], stack: str, deployment: Deployment) -> list[str]:
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
) -> Deployment:
    """Add to the state what the interrupted run created, and return this state."""
    deployment: Deployment = exported["deployment"]
    on_aws = any(each.type.startswith(state.AWS) for each in state.unfinished(deployment))
    if on_aws and not state.stack_tags(deployment):
        raise RecoverError(
            f"the state of stack {stack} has no tags, so its resources cannot be found. Run `pulumi up`."
        )
    found = search(client, deployment)
    print(f"Unfinished resources of stack {stack}:", *lines(deployment, found) or ["  none"], sep="\n")
    return state.adopt(deployment, found) if dry_run else complete(client, stack, exported, found, config_file)


def complete(
    client: Callable[[str], Any],
    stack: str,
    exported: Mapping[str, Any],
    found: Mapping[str, Sequence[str]],
    config_file: str,
) -> Deployment:
    """Complete the creation of these resources, add them to the state, and return it."""
    deployment = exported["deployment"]
    wait_until_ready(client, deployment, found)
    revoke_default_rules(client, deployment, found)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps({**exported, "deployment": state.adopt(deployment, found)}))
        pulumi(stack, "stack", "import", "--file", str(file))
    pulumi(stack, "refresh", "--yes", "--skip-preview", *config(config_file))
    print("The state is repaired. Continue with `pulumi up` or `pulumi destroy`.")
    repaired: Deployment = json.loads(pulumi(stack, "stack", "export"))["deployment"]
    return repaired


def config(file: str) -> list[str]:
    return ["--config-file", file] if file else []


def wait_until_ready(client: Callable[[str], Any], deployment: Deployment, found: Mapping[str, Sequence[str]]) -> None:
    for each in state.unfinished(deployment):
        if each.type in WAITERS and found.get(each.urn):
            service, waiter, arguments = WAITERS[each.type]
            client(service).get_waiter(waiter).wait(**arguments(each.inputs, found[each.urn][0]))


def revoke_default_rules(
    client: Callable[[str], Any], deployment: Deployment, found: Mapping[str, Sequence[str]]
) -> None:
    """Complete the creation of security groups, which the provider does not do later.

    AWS adds a rule to each new group that allows all outgoing traffic, and the provider revokes it in a second call.
    The rules of the program have tags.
    """
    ec2 = client("ec2")
    for each in state.unfinished(deployment):
        for identity in found.get(each.urn, ()) if each.type == SECURITY_GROUP else ():
            filters = [{"Name": "group-id", "Values": [identity]}]
            rules = listed(client, "ec2", "describe_security_group_rules", "SecurityGroupRules", Filters=filters)
            if any(rule["IsEgress"] and rule["IpProtocol"] == "-1" and not rule.get("Tags") for rule in rules):
                ec2.revoke_security_group_egress(GroupId=identity, IpPermissions=[EVERYTHING])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.recover", description=__doc__)
    parser.add_argument("stack", help="name of the stack")
    parser.add_argument("--dry-run", action="store_true", help="only list the resources")
    parser.add_argument("--adopt", action="store_true", help="also add what AWS has and `pulumi up` would create")
    parser.add_argument("--config-file", default="", help="stack file, if it is not Pulumi.STACK.yaml")
    given = parser.parse_args()
    try:
        recover(given.stack, given.dry_run, given.adopt, given.config_file)
    except (RecoverError, BotoCoreError, ClientError) as error:
        print(f"recover: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
