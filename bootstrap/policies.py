"""The deployer's IAM policies and the permissions boundary: JSON files with the names of one stack filled in."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("deployer")
BOUNDARY = Path(__file__).with_name("boundary.json")
PARTS = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))
# The name of the bucket contains the name of the stack, and S3 allows no capital letters and 63 characters.
STACK_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

# How the names of the statements about a key of the stack itself start. A stack with kmsKeyArn has none.
OWN_KEY = "Key"


@dataclass(frozen=True)
class Names:
    """What the placeholders in the files stand for. The field `region` replaces <REGION>, and so on.

    `principals` are the IAM roles and users that may get access to the cluster, `data` the ARNs of the data in S3.
    `key` is the ARN in kmsKeyArn. It is empty if the stack has its own key.
    """

    account: str
    cluster: str
    dns_suffix: str
    partition: str
    region: str
    stack: str
    zone: str
    principals: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


def boundary_name(stack: str) -> str:
    return f"paddle-boundary-{stack}"


def deployer_policy(part: str, names: Names) -> dict[str, Any]:
    """The IAM policy document in deployer/<part>.json, for one stack."""
    return _document(FOLDER / f"{part}.json", names)


def boundary_policy(names: Names) -> dict[str, Any]:
    """What the roles of one stack can do at most."""
    return _document(BOUNDARY, names)


def _document(file: Path, names: Names) -> dict[str, Any]:
    document: dict[str, Any] = _filled(json.loads(file.read_text()), names)
    # IAM rejects an empty list of resources.
    needed = [each for each in document["Statement"] if each["Resource"]]
    if names.key:
        needed = [each for each in needed if not each["Sid"].startswith(OWN_KEY)]
    return {**document, "Statement": needed}


def _filled(value: Any, names: Names) -> Any:
    """The value without placeholders. A list with one placeholder can become a list of several texts."""
    if isinstance(value, str):
        return re.sub(r"<([A-Z_]+)>", lambda found: str(getattr(names, found[1].lower())), value)
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    if value in (["<PRINCIPALS>"], ["<DATA>"], ["<KEY>"]):
        return list(getattr(names, value[0].strip("<>").lower()))
    return [_filled(each, names) for each in value]
