"""Rules for IAM policy documents. They check each input that is such a document, whatever the name of the input."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.graph import Resource, Stack, Unknown, at, nested

Problems = Iterator[str]

KEY = "aws:kms/key:Key"
CLUSTER = "aws:eks/cluster:Cluster"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
FILE_SYSTEM_POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"

MANAGED_POLICIES = frozenset(
    {
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEFSCSIDriverPolicy",
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonSSMManagedInstanceCore",
    }
)
# IAM ignores the case of these keys. A condition with one of them is false for a caller without the key.
CALLER_KEYS = ("aws:principalaccount", "aws:principalarn", "aws:sourceaccount", "aws:sourcearn")
EXACT = ("arnequals", "arnlike", "stringequals", "stringlike")
BY_MOUNT_TARGET = ("elasticfilesystem:accessedviamounttarget", ["true"])
ACCOUNT_IN_TEXT = re.compile(r"\barn:[\w-]*:[\w-]*:[\w-]*:(\d{12}):|^(\d{12})/sg-")
ACCOUNT = re.compile(r"\d{12}")
KEY_ARN = re.compile(r"arn:[\w-]+:kms:[\w-]+:(\d{12}):key/[\w-]+")


class UnreadableError(Exception):
    """A text that looks like a policy document but cannot be read like one."""


def documents(resource: Resource) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each policy document in the inputs, with its path. Values that are not known yet are checked during `up`."""
    for path, value in nested(resource.inputs):
        found = _parsed(path, value) if isinstance(value, str) else value
        if isinstance(found, Mapping) and "statement" in _lower(found):
            yield path, found


def _parsed(path: str, text: str) -> Any:
    if not text.lstrip().startswith("{") or "statement" not in text.lower():
        return None

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key.lower() for key, _ in pairs}) != len(pairs):
            raise UnreadableError(path)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except ValueError:
        raise UnreadableError(path) from None


def _lower(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in mapping.items()}


def _granting(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The statements that may allow something, with lower-case keys. Empty if they are not known yet."""
    given = _lower(document)["statement"]
    if isinstance(given, Unknown):
        return []
    listed = [given] if isinstance(given, Mapping) else given if isinstance(given, Sequence) else []
    statements = [_lower(statement) for statement in listed if isinstance(statement, Mapping)]
    return [statement for statement in statements if statement.get("effect") != "Deny"]


def _texts(value: Any) -> list[str]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else []
    return [text for text in listed if isinstance(text, str)]


def _has_wildcard(text: str) -> bool:
    return "*" in text or "?" in text


def no_wildcard_iam(resource: Resource) -> Problems:
    """A policy names each action, each resource and who has access."""
    if not resource.type.startswith("aws:"):
        return
    try:
        for path, document in documents(resource):
            for statement in _granting(document):
                if not (resource.type == KEY and _account_decides(statement)):
                    yield from _wide_statement(resource, path, statement)
    except UnreadableError as error:
        why = "looks like a policy document but is not valid JSON with unique keys"
        yield resource.problem(str(error), why, "Use document() in infra/iam.py")


def _wide_statement(resource: Resource, path: str, statement: Mapping[str, Any]) -> Problems:
    sid = statement.get("sid", "a statement")
    wide = [action for action in _texts(statement.get("action")) if _has_wildcard(action)]
    if wide or "notaction" in statement:
        allowed = ", ".join(wide) or "all actions except some"
        yield resource.problem(path, f"allows {allowed} in {sid}", "Name each action")
    own = resource.type == KEY and _texts(statement.get("resource")) == ["*"]
    if "notresource" in statement or (not own and any(map(_is_wide, _texts(statement.get("resource"))))):
        yield resource.problem(path, f"allows every resource in {sid}", "Name an ARN")
    for why in _wide_principals(resource, statement):
        yield resource.problem(path, f"{why} in {sid}", "Name who has access, with the functions in infra/iam.py")
    if resource.type == BUCKET_POLICY:
        instead = "Give access with the policy of a role"
        yield resource.problem(path, f"gives access to the bucket in {sid}", instead)


def _is_wide(arn: str) -> bool:
    """Whether the ARN has a wildcard in its service, region or account, or instead of a resource's name."""
    parts = arn.split(":", 5)
    if len(parts) < 6 or any(map(_has_wildcard, parts[:5])):
        return _has_wildcard(arn)
    # The name comes after the type, as in role/NAME. S3 has no type.
    name = parts[5] if parts[2] == "s3" else re.split(r"[:/]", parts[5], maxsplit=1)[-1]
    return name.startswith(("*", "?"))


def _wide_principals(resource: Resource, statement: Mapping[str, Any]) -> Iterator[str]:
    if "notprincipal" in statement:
        yield "allows everybody except some"
    principal = statement.get("principal", {})
    named = principal if isinstance(principal, Mapping) else {"AWS": principal}
    for kind, value in named.items():
        for who in _texts(value):
            if kind == "Service" and not _has_wildcard(who):
                continue
            if kind == "Federated" and not _has_wildcard(who):
                if not _names_one_subject(statement):
                    yield "trusts every token of an identity provider"
            elif kind == "AWS" and who == "*" and not resource.type.startswith("aws:iam/"):
                if not _restricts_the_caller(resource, statement):
                    yield "allows everybody"
            elif _has_wildcard(who):
                yield "allows everybody"
            else:
                yield f"allows {who}"


def _conditions(statement: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Operator, key and values. All of them must hold."""
    condition = statement.get("condition")
    for operator, entries in (condition if isinstance(condition, Mapping) else {}).items():
        for key, values in (entries if isinstance(entries, Mapping) else {}).items():
            yield operator.lower(), key.lower(), _texts(values)


def _names_one_subject(statement: Mapping[str, Any]) -> bool:
    exact = [(key.rpartition(":")[2], values) for operator, key, values in _conditions(statement) if _is(operator)]
    claims = {claim for claim, values in exact if values and not any(map(_has_wildcard, values))}
    return {"aud", "sub"} <= claims


def _is(operator: str) -> bool:
    return operator == "stringequals"


def _restricts_the_caller(resource: Resource, statement: Mapping[str, Any]) -> bool:
    for operator, key, values in _conditions(statement):
        if operator in EXACT and key in CALLER_KEYS and values and not any(map(_has_wildcard, values)):
            return True
        if resource.type == FILE_SYSTEM_POLICY and operator == "bool" and (key, values) == BY_MOUNT_TARGET:
            return True
    return False


def _account_decides(statement: Mapping[str, Any]) -> bool:
    """Whether this is the default statement of key policies: IAM policies of the account decide."""
    return (
        _root_account(statement) is not None
        and _texts(statement.get("action")) == ["kms:*"]
        and _texts(statement.get("resource")) == ["*"]
        and set(statement) <= {"sid", "effect", "principal", "action", "resource"}
    )


def _root_account(statement: Mapping[str, Any]) -> str | None:
    principal = statement.get("principal")
    root = principal.get("AWS") if isinstance(principal, Mapping) and set(principal) == {"AWS"} else None
    found = re.fullmatch(r"arn:[\w-]+:iam::(\d{12}):root", root) if isinstance(root, str) else None
    return found[1] if found else None


def only_known_managed_policies(resource: Resource) -> Problems:
    """A role has only those policies of AWS that the program needs."""
    if not resource.type.startswith("aws:iam/"):
        return
    for key, value in resource.inputs.items():
        for arn in _texts(value) if key in ("policyArn", "managedPolicyArns", "permissionsBoundary") else []:
            if key == "permissionsBoundary" and ":iam::aws:" not in arn:
                continue
            name = arn.rpartition("/")[2]
            if ":iam::aws:policy/" not in arn or name not in MANAGED_POLICIES:
                instead = "Write a policy with the actions that are needed, or add it to policy/iam_documents.py"
                yield resource.problem(key, f"is {name}", instead)


def own_account_only(resource: Resource, stack: Stack) -> Problems:
    """No resource names another AWS account."""
    if not resource.type.startswith("aws:"):
        return
    own = _account_of(stack)
    for path, account in _named_accounts(resource):
        if account != own:
            why = f"names the account {account}, and the key of the stack belongs to {own or 'no known account'}"
            yield resource.problem(path, why, "Name only resources and roles of the account of the stack")


def _named_accounts(resource: Resource) -> Iterator[tuple[str, str]]:
    for path, value in nested(resource.inputs):
        for found in ACCOUNT_IN_TEXT.finditer(value) if isinstance(value, str) else ():
            yield path, found[1] or found[2]
    try:
        for path, document in documents(resource):
            for _, value in nested(document):
                if isinstance(value, str) and ACCOUNT.fullmatch(value):
                    yield path, value
    except UnreadableError:
        return


def _account_of(stack: Stack) -> str | None:
    """The account in the default statement of the key. KMS rejects a policy that locks out the account of the key.

    A stack with the setting kmsKeyArn has no key. The program rejects a key of another account.
    """
    try:
        keys = [document for key in stack.of(KEY) for _, document in documents(key)]
    except UnreadableError:
        return None
    if not keys:
        named = KEY_ARN.fullmatch(existing_key(stack) or "")
        return named[1] if named else None
    roots = [_root_account(s) for document in keys for s in _granting(document) if _account_decides(s)]
    return roots[0] if roots else None


def existing_key(stack: Stack) -> str | None:
    """The ARN of a key that the stack uses and has not created: the key that its cluster names."""
    arns = {at(cluster.inputs, "encryptionConfig.provider.keyArn") for cluster in stack.of(CLUSTER)}
    (arn,) = arns if len(arns) == 1 else (None,)
    return arn if not stack.of(KEY) and isinstance(arn, str) and KEY_ARN.fullmatch(arn) else None
