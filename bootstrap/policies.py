"""The deployer's IAM policies: the files in deployer/, with the names of one stack in place of the placeholders."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("deployer")
PARTS = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


@dataclass(frozen=True)
class Names:
    """What the placeholders in the files stand for. The field `region` replaces <REGION>, and so on."""

    account: str
    cluster: str
    dns_suffix: str
    partition: str
    region: str
    stack: str
    zone: str


def deployer_policy(part: str, names: Names) -> dict[str, Any]:
    """The IAM policy document in deployer/<part>.json, for one stack."""
    text = (FOLDER / f"{part}.json").read_text()
    filled = re.sub(r"<([A-Z_]+)>", lambda found: str(getattr(names, found[1].lower())), text)
    document: dict[str, Any] = json.loads(filled)
    return document
