"""The shards on the volume and their manifest, which states the size and the checksum of each."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Iterable, Iterator

import contract

PIECE = 1 << 20


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest; empty if there is none or if something else wrote it."""
    try:
        value = json.loads((data / contract.MANIFEST_FILE).read_text(encoding="utf-8"))
        shards = [(int(shard["start"]), int(shard["bytes"]), str(shard["digest"])) for shard in value["shards"]]
        known = len(shards) == value["splits"] == len(value["records"]) and bool(value["digest"])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return value if known else {}


def shard_problem(folder: Path, shard: dict[str, Any]) -> str:
    """How the records in the folder differ from the manifest's entry; empty if they do not."""
    records = folder / contract.RECORDS_FILE
    if not records.is_file():
        return f"{records} is missing"
    if records.stat().st_size != shard["bytes"]:
        return f"{records} has {records.stat().st_size} bytes instead of {shard['bytes']}"
    with records.open("rb") as stream:
        found = [sha256(piece).digest() for piece in pieces(stream, shard["start"], shard["bytes"])]
    return "" if tree_digest(found) == shard["digest"] else f"{records} has the wrong checksum"


def pieces(stream: BinaryIO, start: int, length: int) -> Iterator[memoryview]:
    """The next `length` bytes of the stream in pieces. The first byte is number `start` of all records.

    Pieces end where this number is a multiple of PIECE. All pieces use the same memory, so use each before the next.
    """
    buffer = memoryview(bytearray(PIECE))
    offset = start
    while offset < start + length:
        wanted = min(PIECE - offset % PIECE, start + length - offset)
        count = stream.readinto(buffer[:wanted])  # type: ignore[attr-defined]
        if not count:
            return
        yield buffer[:count]
        offset += count


def tree_digest(digests: Iterable[bytes]) -> str:
    """One digest for a list of pieces. Threads can compute the digests of the pieces at the same time."""
    return sha256(b"".join(digests)).hexdigest()
