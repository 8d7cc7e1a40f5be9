"""Cuts a file of lines into even shards with a manifest, and makes sure that they are on disk."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import contract
import numpy
from archives import check_block
from files import replace_file, retry_transient, sync_directory
from progress import DataError, Progress, blocks
from shards import PIECE, pieces, tree_digest

NEWLINE = 10
COPIES_AT_ONCE = 4
FLUSH = 1 << 23


class Lines(NamedTuple):
    """A file of records, one on each line. The records begin after the byte order mark if there is one."""

    path: Path
    start: int
    name: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size - self.start


def cut(lines: Lines, splits: int) -> list[tuple[int, int, int]]:
    """For each shard: its start in the records, its bytes and its record count. The counts differ by at most one."""
    progress = Progress("counting", lines.size)
    counts: list[int] = []
    starts = [0]
    last = b"\n"
    with lines.path.open("rb") as stream:
        stream.seek(lines.start)
        for block in blocks(stream):
            check_block(block, lines.name)
            counts.append(newlines(block))
            starts.append(starts[-1] + len(block))
            last = block[-1:]
            progress.add(len(block))
        total = sum(counts) + (last != b"\n")
        if total < splits:
            raise DataError(f"the data has {total} records for {splits} trainers: each needs at least one")
        firsts = [i * (total // splits) + min(i, total % splits) for i in range(splits)] + [total]
        offsets = [0]
        index = seen = 0
        for first in firsts[1:-1]:
            while seen + counts[index] < first:
                seen += counts[index]
                index += 1
            stream.seek(lines.start + starts[index])
            block = stream.read(starts[index + 1] - starts[index])
            ends = numpy.flatnonzero(numpy.frombuffer(block, numpy.uint8) == NEWLINE)
            if len(ends) != counts[index]:
                raise DataError(f"{lines.name} changed while it was read")
            offsets.append(starts[index] + int(ends[first - seen - 1]) + 1)
    offsets.append(starts[-1])
    return [(offsets[i], offsets[i + 1] - offsets[i], firsts[i + 1] - firsts[i]) for i in range(splits)]


def newlines(block: bytes | memoryview) -> int:
    return int(numpy.count_nonzero(numpy.frombuffer(block, numpy.uint8) == NEWLINE))


def copy_shard(lines: Lines, number: int, target: Path, shard: tuple[int, int, int], progress: Progress) -> list[bytes]:
    """Copy a part of the records to disk and return the SHA-256 of each piece."""
    start, length, expected = shard
    digests, copied, flushed, records, last = [], 0, 0, 0, NEWLINE
    with lines.path.open("rb") as reader, target.open("wb") as writer:
        reader.seek(lines.start + start)
        for piece in pieces(reader, start, length):
            writer.write(piece)
            digests.append(sha256(piece).digest())
            records += newlines(piece)
            last = piece[-1]
            copied += len(piece)
            if copied - flushed >= FLUSH:
                # Start to write to the disk now. Otherwise fsync would write everything at the end.
                os.posix_fadvise(writer.fileno(), flushed, copied - flushed, os.POSIX_FADV_DONTNEED)
                flushed = copied
            progress.add(len(piece))
        records += last != NEWLINE
        if copied != length or records != expected:
            what = f"shard {number} has {records} records instead of {expected}"
            raise DataError(f"{lines.name} changed while it was read: {what}")
        writer.flush()
        os.fsync(writer.fileno())
    return digests


def content_digest(lines: Lines, shards: list[tuple[int, int, int]], copied: list[list[bytes]]) -> str:
    """The digest of all records, the same for any number of shards. It reuses the hashes of the shards' pieces."""
    known: dict[int, bytes] = {}
    for (start, length, _), digests in zip(shards, copied):
        # The first and the last piece of a shard can be only a part of a piece of the whole. Those are hashed again.
        first = start // PIECE
        for index, digest in enumerate(digests, first):
            if index * PIECE >= start and min((index + 1) * PIECE, lines.size) <= start + length:
                known[index] = digest
    found = []
    with lines.path.open("rb") as stream:
        for index, begin in enumerate(range(0, lines.size, PIECE)):
            if index not in known:
                stream.seek(lines.start + begin)
                known[index] = sha256(stream.read(PIECE)).digest()
            found.append(known[index])
    return tree_digest(found)


def split(lines: Lines, data: Path, about: dict[str, Any], splits: int) -> None:
    """Fill `data` with the shards and the manifest. After an error it can be called again."""
    shards = retry_transient(lambda: cut(lines, splits))
    progress = Progress("splitting", lines.size)
    data.mkdir(exist_ok=True)
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        jobs = []
        for number, shard in enumerate(shards):
            folder = data / str(number)
            folder.mkdir(exist_ok=True)
            target = folder / contract.RECORDS_FILE
            jobs.append(pool.submit(retry_transient, partial(copy_shard, lines, number, target, shard, progress)))
        copied = [job.result() for job in jobs]
    for number in range(splits):
        sync_directory(data / str(number))
    manifest = {
        **about,
        "splits": splits,
        "records": [records for _, _, records in shards],
        "shards": [
            {"start": start, "bytes": length, "digest": tree_digest(digests)}
            for (start, length, _), digests in zip(shards, copied)
        ],
        "digest": retry_transient(lambda: content_digest(lines, shards, copied)),
    }
    replace_file(data / contract.MANIFEST_FILE, json.dumps(manifest, indent=1).encode())
    sync_directory(data)
