"""The data Job: the training code and N even shards of the data, put on the volume all at once or not at all."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Iterator, NamedTuple

import contract
import numpy
from contract import Env

BLOCK = 1 << 20
NEWLINE = 10
SEED = 2016
GOOD = "great superb lovely charming brilliant moving funny clever warm gripping fresh honest bold tender rich"
BAD = "dull awful boring clumsy weak tedious bland messy cold shallow noisy stale lazy hollow grim"
PLAIN = "the a film movie story plot actor scene director music ending it this that was is with and very quite"


class DataError(Exception):
    """What a person has to put right; printed as one line."""


class Settings(NamedTuple):
    """The data Job's environment."""

    out: Path
    splits: int
    code: Path
    source: str
    file: Path | None
    records: int
    sha256: str


class Progress:
    """Prints percent and rate at most every two seconds, and once at the end."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.start = self.printed = time.monotonic()
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count
            now = time.monotonic()
            if now - self.printed < 2 and self.done != self.total:
                return
            self.printed = now
        percent = f"{100 * self.done / self.total:3.0f}%" if self.total else "  ?%"
        rate = self.done / max(now - self.start, 1e-9)
        print(f"{self.what}: {percent}  {self.done / 1e6:.1f} MB  {rate / 1e6:.1f} MB/s", flush=True)


def read_settings(env: dict[str, str]) -> Settings:
    """The settings, or a DataError that names the variable."""

    def number(name: str, default: str, least: int) -> int:
        value = env.get(name, default)
        if not value.isdigit() or int(value) < least:
            raise DataError(f"{name} is {value!r}: it must be a whole number of at least {least}")
        return int(value)

    for name in (Env.OUT_DIR, Env.SPLIT_COUNT, Env.TRAIN_CONFIG_DIR):
        if not env.get(name):
            raise DataError(f"{name} is not set: the data Job must give it")
    source = env.get(Env.DATA_SOURCE) or "synthetic"
    if source != "synthetic" and not source.startswith(("https://", "s3://")):
        raise DataError(f"{Env.DATA_SOURCE} is {source!r}: it must be synthetic, https://... or s3://bucket/key")
    if source.startswith("s3://") and not env.get(Env.DATA_FILE):
        raise DataError(f"{Env.DATA_FILE} is not set: an init container must copy {source} and name the file there")
    return Settings(
        out=Path(env[Env.OUT_DIR]),
        splits=number(Env.SPLIT_COUNT, "", 1),
        code=Path(__file__).resolve().parent / env[Env.TRAIN_CONFIG_DIR],
        source=source,
        file=Path(env[Env.DATA_FILE]) if env.get(Env.DATA_FILE) else None,
        records=number(Env.DATA_RECORDS, "20000", 1),
        sha256=env.get(Env.DATA_SHA256, "").lower(),
    )


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """The stream in pieces of bounded size."""
    return iter(lambda: stream.read(BLOCK), b"")


def synthesize(path: Path, records: int) -> None:
    """Write labelled reviews, `0 or 1 <tab> words`; the same ones for the same count, on any machine."""
    rng = random.Random(SEED)
    words = f"{GOOD} {BAD} {PLAIN}".split()
    rare = {"1": BAD.split(), "0": GOOD.split()}
    cumulative = {label: list(accumulate(1 if word in rare[label] else 3 for word in words)) for label in "01"}
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for _ in range(records):
            label = "1" if rng.random() < 0.5 else "0"
            review = rng.choices(words, cum_weights=cumulative[label], k=rng.randrange(20, 41))
            out.write(f"{label}\t{' '.join(review)}\n")


def download(url: str, path: Path) -> None:
    """Stream the URL to the file; a transfer that ends early is an error."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response, path.open("wb") as out:
            expected = int(response.headers.get("Content-Length") or 0)
            progress = Progress("download", expected)
            for block in blocks(response):
                out.write(block)
                progress.add(len(block))
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise DataError(f"{Env.DATA_SOURCE} {url} cannot be downloaded: {error}") from error
    if expected and path.stat().st_size != expected:
        raise DataError(f"{Env.DATA_SOURCE} {url} ended after {path.stat().st_size} of {expected} bytes")


def check_sum(path: Path, expected: str, source: str) -> None:
    """Raise unless the file has this SHA-256."""
    digest = hashlib.sha256()
    progress = Progress("checksum", path.stat().st_size)
    with path.open("rb") as stream:
        for block in blocks(stream):
            digest.update(block)
            progress.add(len(block))
    if digest.hexdigest() != expected:
        raise DataError(f"{Env.DATA_SOURCE} {source} has SHA-256 {digest.hexdigest()}, not {expected}")


def unpack(archive: Path, path: Path) -> None:
    """Write the lines of every file in the tar, in its order, one after the other."""
    with tarfile.open(archive, "r|*") as tar, path.open("wb") as out:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            last = b"\n"
            while content and (block := content.read(BLOCK)):
                out.write(block)
                last = block[-1:]
            if last != b"\n":
                out.write(b"\n")


def obtain(settings: Settings, work: Path) -> Path:
    """A file of lines: the source, made or fetched, checked, unpacked."""
    path = settings.file if settings.file else work / "source"
    if settings.source == "synthetic":
        path = work / "source"
        synthesize(path, settings.records)
    elif settings.source.startswith("https://"):
        path = work / "source"
        download(settings.source, path)
    elif not path.is_file():
        raise DataError(f"{Env.DATA_FILE} {path} is not there: the init container did not copy {settings.source}")
    if settings.sha256:
        check_sum(path, settings.sha256, settings.source)
    if path.stat().st_size and tarfile.is_tarfile(path):
        unpack(path, work / "lines")
        return work / "lines"
    with path.open("rb") as stream:
        head = stream.read(4)
    for magic, what in ((b"\x1f\x8b", "gzip"), (b"\xff\xfe", "UTF-16 text"), (b"\xfe\xff", "UTF-16 text")):
        if head.startswith(magic):
            raise DataError(f"{Env.DATA_SOURCE} {settings.source} is {what}: use plain text or a tar of text files")
    return path


def cut(path: Path, splits: int) -> list[tuple[int, int, int]]:
    """Where each shard begins, its bytes and its records: contiguous, record counts within one of each other."""
    size = path.stat().st_size
    progress = Progress("counting", size)
    counts: list[int] = []
    last = b"\n"
    with path.open("rb", buffering=0) as stream:
        for block in blocks(stream):
            counts.append(int(numpy.count_nonzero(numpy.frombuffer(block, numpy.uint8) == NEWLINE)))
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
            stream.seek(index * BLOCK)
            ends = numpy.flatnonzero(numpy.frombuffer(stream.read(BLOCK), numpy.uint8) == NEWLINE)
            offsets.append(index * BLOCK + int(ends[first - seen - 1]) + 1)
    offsets.append(size)
    return [(offsets[i], offsets[i + 1] - offsets[i], firsts[i + 1] - firsts[i]) for i in range(splits)]


def copy_range(source: Path, target: Path, start: int, length: int, progress: Progress) -> None:
    """Copy the bytes by the kernel and have them on disk before returning."""
    with source.open("rb") as reader, target.open("wb") as writer:
        written = 0
        while written < length:
            rest = min(length - written, 8 * BLOCK)
            count = os.sendfile(writer.fileno(), reader.fileno(), start + written, rest)
            if not count:
                raise DataError(f"{source} became shorter while it was read")
            # The disk begins to write at once, not when fsync waits for all of it.
            os.posix_fadvise(writer.fileno(), written, count, os.POSIX_FADV_DONTNEED)
            written += count
            progress.add(count)
        os.fsync(writer.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in the directory last through a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write the file and have it on disk."""
    with path.open("w") as out:
        json.dump(value, out, indent=1)
        out.flush()
        os.fsync(out.fileno())


def split(lines: Path, data: Path, about: dict[str, Any], splits: int) -> None:
    """Fill `data` with the shards and a manifest, all on disk."""
    shards = cut(lines, splits)
    progress = Progress("splitting", lines.stat().st_size)
    data.mkdir()
    with ThreadPoolExecutor(4) as pool:
        jobs = []
        for number, (start, length, _) in enumerate(shards):
            shard = data / str(number)
            shard.mkdir()
            jobs.append(pool.submit(copy_range, lines, shard / contract.RECORDS_FILE, start, length, progress))
        for job in jobs:
            job.result()
    for number in range(splits):
        sync_directory(data / str(number))
    records = [count for _, _, count in shards]
    write_json(data / contract.MANIFEST_FILE, {**about, "splits": splits, "records": records})
    sync_directory(data)


def copy_code(source: Path, target: Path) -> str:
    """Copy the training code, subfolders kept, and return its digest."""
    # A ConfigMap volume keeps its files behind links named ..data and ..<date>.
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("..*", "__pycache__"))
    digest = hashlib.sha256()
    for path in sorted(p for p in target.rglob("*") if p.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(target)} {len(content)}\n".encode() + content)
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    for folder in [target, *(p for p in target.rglob("*") if p.is_dir())]:
        sync_directory(folder)
    return digest.hexdigest()


def install(new: Path, target: Path, work: Path) -> None:
    """Put the finished folder in its place; the one it replaces goes with the work folder."""
    if target.exists():
        target.rename(work / f"old-{target.name}")
    new.rename(target)
    sync_directory(target.parent)


def set_aside_output(output: Path, made_from: dict[str, Any]) -> None:
    """Keep passes made from other data or code out of the way of this training."""
    stamp = output / contract.MADE_FROM_FILE
    if output.exists() and (not stamp.exists() or json.loads(stamp.read_text()) != made_from):
        number = 1
        while (aside := output.with_name(f"output-before-{number}")).exists():
            number += 1
        output.rename(aside)
        print(f"{output}: made from other data or code, kept as {aside.name}; training starts anew", flush=True)
    if not output.exists():
        fresh = output.with_name(".output")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        write_json(fresh / stamp.name, made_from)
        fresh.rename(output)
    sync_directory(output.parent)


def prepare(settings: Settings) -> None:
    """Everything; a run that is killed at any point leaves complete folders or none, and the next run mends it."""
    if not settings.code.is_dir():
        raise DataError(f"{Env.TRAIN_CONFIG_DIR}: the training code {settings.code} is not there")
    settings.out.mkdir(parents=True, exist_ok=True)
    for left in settings.out.glob(".prepare-*"):
        shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=".prepare-", dir=settings.out))
    about: dict[str, Any] = {"source": settings.source, "sha256": settings.sha256}
    if settings.source == "synthetic":
        about["synthetic records"] = settings.records
    data = settings.out / contract.DATA
    known = settings.source == "synthetic" or settings.sha256
    if known and is_prepared(data, {**about, "splits": settings.splits}):
        print(f"{data}: already has this data in {settings.splits} shards", flush=True)
    else:
        split(obtain(settings, work), work / "data", about, settings.splits)
        install(work / "data", data, work)
    code = copy_code(settings.code, work / "code")
    install(work / "code", settings.out / settings.code.name, work)
    set_aside_output(settings.out / contract.OUTPUT, {**about, "code": code})
    shutil.rmtree(work)
    records = json.loads((data / contract.MANIFEST_FILE).read_text())["records"]
    print(f"{data}: {sum(records)} records in {len(records)} shards of {min(records)} to {max(records)}", flush=True)


def is_prepared(data: Path, about: dict[str, Any]) -> bool:
    """Whether the shards there are the ones wanted."""
    manifest = data / contract.MANIFEST_FILE
    if not manifest.is_file():
        return False
    found = json.loads(manifest.read_text())
    return all(found.get(name) == value for name, value in about.items())


def main() -> int:
    """Run, and turn what a person can mend into one line."""
    try:
        prepare(read_settings(dict(os.environ)))
    except (DataError, OSError, tarfile.TarError) as error:
        print(f"prepare.py: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
