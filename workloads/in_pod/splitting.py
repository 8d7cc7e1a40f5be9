"""Cuts a file of lines into even shards with a manifest, and makes sure that they are on disk."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import contract
import numpy
from archives import check_block
from progress import BLOCK, DataError, Progress, blocks

NEWLINE = 10
COPIES_AT_ONCE = 4


class Lines(NamedTuple):
    """A file of records, one on each line. The records begin behind the byte order mark if there is one."""

    path: Path
    start: int
    name: str


class Cut(NamedTuple):
    """Where each shard begins, its bytes and its records; and the SHA-256 of all records together."""

    shards: list[tuple[int, int, int]]
    digest: str


def cut(lines: Lines, splits: int) -> Cut:
    """Contiguous shards whose record counts differ by at most one."""
    size = lines.path.stat().st_size - lines.start
    progress = Progress("counting", size)
    counts: list[int] = []
    last = b"\n"
    digest = hashlib.sha256()
    with lines.path.open("rb", buffering=0) as stream, ThreadPoolExecutor(1) as hasher:
        stream.seek(lines.start)
        hashed = hasher.submit(digest.update, b"")
        for block in blocks(stream):
            hashed.result()
            hashed = hasher.submit(digest.update, block)
            check_block(block, lines.name)
            counts.append(int(numpy.count_nonzero(numpy.frombuffer(block, numpy.uint8) == NEWLINE)))
            last = block[-1:]
            progress.add(len(block))
        hashed.result()
        total = sum(counts) + (last != b"\n")
        if total < splits:
            raise DataError(f"the data has {total} records for {splits} trainers: each needs at least one")
        firsts = [i * (total // splits) + min(i, total % splits) for i in range(splits)] + [total]
        offsets = [lines.start]
        index = seen = 0
        for first in firsts[1:-1]:
            while seen + counts[index] < first:
                seen += counts[index]
                index += 1
            begin = lines.start + index * BLOCK
            stream.seek(begin)
            ends = numpy.flatnonzero(numpy.frombuffer(stream.read(BLOCK), numpy.uint8) == NEWLINE)
            offsets.append(begin + int(ends[first - seen - 1]) + 1)
    offsets.append(lines.start + size)
    shards = [(offsets[i], offsets[i + 1] - offsets[i], firsts[i + 1] - firsts[i]) for i in range(splits)]
    return Cut(shards, digest.hexdigest())


def copy_range(source: Path, target: Path, start: int, length: int, progress: Progress) -> str:
    """Copy the bytes to disk and return their SHA-256."""
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as reader, target.open("wb", buffering=0) as writer:
        reader.seek(start)
        left, flushed = length, 0
        while left:
            block = reader.read(min(left, BLOCK))
            if not block:
                raise DataError(f"{source} became shorter while it was read")
            writer.write(block)
            digest.update(block)
            left -= len(block)
            progress.add(len(block))
            if length - left - flushed >= 8 * BLOCK:
                # The disk starts to write now, instead of all at once in fsync.
                os.posix_fadvise(writer.fileno(), flushed, length - left - flushed, os.POSIX_FADV_DONTNEED)
                flushed = length - left
        os.fsync(writer.fileno())
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    """Write the names in the directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    with path.open("w", encoding="utf-8") as out:
        json.dump(value, out, indent=1)
        out.flush()
        os.fsync(out.fileno())


def split(lines: Lines, data: Path, about: dict[str, Any], splits: int) -> None:
    """Fill `data` with the shards and the manifest."""
    found = cut(lines, splits)
    progress = Progress("splitting", sum(length for _, length, _ in found.shards))
    data.mkdir()
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        jobs = []
        for number, (start, length, _) in enumerate(found.shards):
            folder = data / str(number)
            folder.mkdir()
            jobs.append(pool.submit(copy_range, lines.path, folder / contract.RECORDS_FILE, start, length, progress))
        digests = [job.result() for job in jobs]
    for number in range(splits):
        sync_directory(data / str(number))
    shards = [{"bytes": length, "sha256": digest} for (_, length, _), digest in zip(found.shards, digests)]
    records = [count for _, _, count in found.shards]
    manifest = {**about, "splits": splits, "records": records, "shards": shards, "digest": found.digest}
    write_json(data / contract.MANIFEST_FILE, manifest)
    sync_directory(data)
