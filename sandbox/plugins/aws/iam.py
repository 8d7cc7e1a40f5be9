"""IAM: roles, their policies, and OpenID Connect providers."""

from __future__ import annotations

import json
from typing import Any

from sandbox.plugins.aws.cloud import Cloud, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    REPLACES,
    REQUIRED,
    number,
    policy,
    text,
    texts,
)
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State


def _document(value: Any) -> str:
    """A policy as text; botocore returns it decoded."""
    return value if isinstance(value, str) else json.dumps(value)


def _retag(cloud: Cloud, kind: str, key: dict[str, str], have: Checked, want: Checked, changed: frozenset[str]) -> None:
    removed, tags = tag_changes(have, want, changed)
    if removed:
        cloud(f"iam:Untag{kind}", **key, TagKeys=removed)
    if tags:
        cloud(f"iam:Tag{kind}", **key, Tags=pairs(tags))


def _create_role(cloud: Cloud, want: Checked) -> str:
    named = {"RoleName": want["name"], "AssumeRolePolicyDocument": want["assumeRolePolicy"]}
    return str(cloud("iam:CreateRole", want, **named, Tags=pairs(want["tagsAll"]))["Role"]["RoleName"])


def _read_role(cloud: Cloud, identity: str, before: Checked) -> State:
    role = cloud("iam:GetRole", RoleName=identity)["Role"]
    return {
        **plain(role),
        "name": role["RoleName"],
        "uniqueId": role["RoleId"],
        "assumeRolePolicy": _document(role["AssumeRolePolicyDocument"]),
        "permissionsBoundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
        "tagsAll": unpaired(role.get("Tags")),
    }


def _update_role(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    role = {"RoleName": identity}
    if "assumeRolePolicy" in changed:
        cloud("iam:UpdateAssumeRolePolicy", **role, PolicyDocument=want["assumeRolePolicy"])
    if changed & {"description", "maxSessionDuration"}:
        cloud("iam:UpdateRole", want | {"description": want.get("description", "")}, **role)
    if "permissionsBoundary" in changed:
        if boundary := want.get("permissionsBoundary"):
            cloud("iam:PutRolePermissionsBoundary", **role, PermissionsBoundary=boundary)
        else:
            cloud("iam:DeleteRolePermissionsBoundary", **role)
    _retag(cloud, "Role", role, have, want, changed)


def _delete_role(cloud: Cloud, identity: str, state: Checked) -> None:
    for profile in list(cloud.pages("iam:ListInstanceProfilesForRole", "InstanceProfiles", RoleName=identity)):
        name = profile["InstanceProfileName"]
        cloud("iam:RemoveRoleFromInstanceProfile", RoleName=identity, InstanceProfileName=name)
    cloud("iam:DeleteRole", RoleName=identity)


def _put_role_policy(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    where = {"RoleName": want["role"], "PolicyName": want["name"]}
    cloud("iam:PutRolePolicy", **where, PolicyDocument=want["policy"])


def _create_role_policy(cloud: Cloud, want: Checked) -> str:
    _put_role_policy(cloud, "", {}, want, frozenset())
    return f"{want['role']}:{want['name']}"


def _split(identity: str, at: str, form: str) -> tuple[str, str]:
    first, found, second = identity.partition(at)
    if not found:
        raise ProviderError(f"the id has the form {form}, not {identity!r}")
    return first, second


def _read_role_policy(cloud: Cloud, identity: str, before: Checked) -> State:
    role, name = _split(identity, ":", "ROLE:POLICY")
    answer = cloud("iam:GetRolePolicy", RoleName=role, PolicyName=name)
    return {"role": role, "name": name, "policy": _document(answer["PolicyDocument"])}


def _delete_role_policy(cloud: Cloud, identity: str, state: Checked) -> None:
    role, name = _split(identity, ":", "ROLE:POLICY")
    cloud("iam:DeleteRolePolicy", RoleName=role, PolicyName=name)


def _attachment(kind: str) -> Row:
    """A policy of AWS or of the account that is attached to a role or to a user."""
    owner, form = kind.lower(), f"{kind.upper()}/POLICYARN"

    def attach(cloud: Cloud, want: Checked) -> str:
        cloud(f"iam:Attach{kind}Policy", **{f"{kind}Name": want[owner]}, PolicyArn=want["policyArn"])
        return f"{want[owner]}/{want['policyArn']}"

    def read(cloud: Cloud, identity: str, before: Checked) -> State:
        name, arn = _split(identity, "/", form)
        attached = cloud.pages(f"iam:ListAttached{kind}Policies", "AttachedPolicies", **{f"{kind}Name": name})
        only(each for each in attached if each["PolicyArn"] == arn)
        return {owner: name, "policyArn": arn}

    def detach(cloud: Cloud, identity: str, state: Checked) -> None:
        name, arn = _split(identity, "/", form)
        cloud(f"iam:Detach{kind}Policy", **{f"{kind}Name": name}, PolicyArn=arn)

    return Row(
        f"aws:iam/{owner}PolicyAttachment:{kind}PolicyAttachment",
        inputs={owner: text(REQUIRED | REPLACES), "policyArn": text(REQUIRED | REPLACES)},
        outputs=[],
        create=attach,
        read=read,
        delete=detach,
        delete_first=True,
    )


def _create_policy(cloud: Cloud, want: Checked) -> str:
    given = {"PolicyName": want["name"], "PolicyDocument": want["policy"], "Tags": pairs(want["tagsAll"])}
    return str(cloud("iam:CreatePolicy", want, **given)["Policy"]["Arn"])


def _read_policy(cloud: Cloud, identity: str, before: Checked) -> State:
    found = cloud("iam:GetPolicy", PolicyArn=identity)["Policy"]
    version = cloud("iam:GetPolicyVersion", PolicyArn=identity, VersionId=found["DefaultVersionId"])["PolicyVersion"]
    return {
        **plain(found),
        "arn": identity,
        "name": found["PolicyName"],
        "policyId": found["PolicyId"],
        "policy": _document(version["Document"]),
        "tagsAll": unpaired(found.get("Tags")),
    }


def _other_versions(cloud: Cloud, identity: str) -> list[Any]:
    """The versions that are not in use, oldest first."""
    versions = list(cloud.pages("iam:ListPolicyVersions", "Versions", PolicyArn=identity))
    return sorted((each for each in versions if not each["IsDefaultVersion"]), key=lambda each: str(each["CreateDate"]))


def _update_policy(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "policy" in changed:
        # IAM keeps five versions at most.
        if len(others := _other_versions(cloud, identity)) == 4:
            cloud("iam:DeletePolicyVersion", PolicyArn=identity, VersionId=others[0]["VersionId"])
        cloud("iam:CreatePolicyVersion", PolicyArn=identity, PolicyDocument=want["policy"], SetAsDefault=True)
    _retag(cloud, "Policy", {"PolicyArn": identity}, have, want, changed)


def _delete_policy(cloud: Cloud, identity: str, state: Checked) -> None:
    for each in _other_versions(cloud, identity):
        cloud("iam:DeletePolicyVersion", PolicyArn=identity, VersionId=each["VersionId"])
    cloud("iam:DeletePolicy", PolicyArn=identity)


def _create_oidc(cloud: Cloud, want: Checked) -> str:
    parameters = {"ClientIDList": want["clientIdLists"], "Tags": pairs(want["tagsAll"])}
    answer = cloud("iam:CreateOpenIDConnectProvider", want, **parameters)
    return str(answer["OpenIDConnectProviderArn"])


def _read_oidc(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("iam:GetOpenIDConnectProvider", OpenIDConnectProviderArn=identity)
    return {
        "arn": identity,
        "url": answer["Url"].removeprefix("https://"),
        "clientIdLists": answer["ClientIDList"],
        "tagsAll": unpaired(answer.get("Tags")),
    }


def _update_oidc(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    provider = {"OpenIDConnectProviderArn": identity}
    if "clientIdLists" in changed:
        has, wanted = set(have["clientIdLists"]), set(want["clientIdLists"])
        for client in sorted(wanted - has):
            cloud("iam:AddClientIDToOpenIDConnectProvider", **provider, ClientID=client)
        for client in sorted(has - wanted):
            cloud("iam:RemoveClientIDFromOpenIDConnectProvider", **provider, ClientID=client)
    _retag(cloud, "OpenIDConnectProvider", provider, have, want, changed)


def _delete_oidc(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("iam:DeleteOpenIDConnectProvider", OpenIDConnectProviderArn=identity)


def _same_url(one: str, other: str) -> bool:
    return one.removeprefix("https://") == other.removeprefix("https://")


ROWS = [
    Row(
        "aws:iam/role:Role",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "assumeRolePolicy": policy(REQUIRED),
            "description": text(),
            "maxSessionDuration": number(default=3600),
            "path": text(REPLACES, default="/"),
            "permissionsBoundary": text(),
            **TAGS,
        },
        outputs=["arn", "uniqueId"],
        autoname=Autoname(limit=64),
        create=_create_role,
        read=_read_role,
        update=_update_role,
        delete=_delete_role,
    ),
    Row(
        "aws:iam/rolePolicy:RolePolicy",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "role": text(REQUIRED | REPLACES),
            "policy": policy(REQUIRED),
        },
        outputs=[],
        autoname=Autoname(),
        create=_create_role_policy,
        read=_read_role_policy,
        update=_put_role_policy,
        delete=_delete_role_policy,
    ),
    _attachment("Role"),
    _attachment("User"),
    Row(
        "aws:iam/policy:Policy",
        inputs={
            "name": text(REPLACES | COMPUTED),
            "policy": policy(REQUIRED),
            **TAGS,
        },
        outputs=["arn", "policyId"],
        autoname=Autoname(),
        create=_create_policy,
        read=_read_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
    Row(
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        inputs={
            "url": text(REQUIRED | REPLACES, same=_same_url),
            "clientIdLists": texts(REQUIRED),
            **TAGS,
        },
        outputs=["arn"],
        create=_create_oidc,
        read=_read_oidc,
        update=_update_oidc,
        delete=_delete_oidc,
    ),
]
