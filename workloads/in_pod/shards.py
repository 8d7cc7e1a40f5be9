"""The shards on the volume and their manifest, which states the size and the checksum of each."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import contract
from progress import blocks


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest; empty if there is none or if something else wrote it."""
    try:
        value = json.loads((data / contract.MANIFEST_FILE).read_text(encoding="utf-8"))
        shards = [(int(shard["bytes"]), str(shard["sha256"])) for shard in value["shards"]]
        known = len(shards) == value["splits"] == len(value["records"]) and bool(value["digest"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return {}
    return value if known else {}


def shard_problem(folder: Path, shard: dict[str, Any]) -> str:
    """How the records in the folder differ from the manifest's entry; empty if they do not."""
    records = folder / contract.RECORDS_FILE
    if not records.is_file():
        return f"{records} is missing"
    if records.stat().st_size != shard["bytes"]:
        return f"{records} has {records.stat().st_size} bytes instead of {shard['bytes']}"
    digest = hashlib.sha256()
    with records.open("rb") as stream:
        for block in blocks(stream):
            digest.update(block)
    return "" if digest.hexdigest() == shard["sha256"] else f"{records} has the wrong checksum"
