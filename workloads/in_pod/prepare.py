"""The data Job: puts the training code and N even shards of the data on the volume, all of it or nothing."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import secrets
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, TextIO

import contract
from archives import BYTE_ORDER_MARK, HEAD, Stream, append_text, check_head, is_plain
from contract import Env
from download import download
from files import remove, replace_file, retry_transient, sync_directory
from progress import DataError, Progress, blocks
from shards import read_manifest, shard_problem
from splitting import Lines, split

SEED = 2016
GOOD = "great superb lovely charming brilliant moving funny clever warm gripping fresh honest bold tender rich"
BAD = "dull awful boring clumsy weak tedious bland messy cold shallow noisy stale lazy hollow grim"
PLAIN = "the a film movie story plot actor scene director music ending it this that was is with and very quite"
DOWNLOADS_AT_ONCE = 4
LOCK_FILE = ".prepare.lock"
WORK_PREFIX = ".prepare-"


class DataSettings(NamedTuple):
    """The data Job's environment."""

    out: Path
    splits: int
    code: Path
    source: contract.DataSource
    fetched: Path | None  # where the init container put the objects from S3
    records: int
    sha256: str


def read_settings(env: Mapping[str, str]) -> DataSettings:
    """The settings, or a DataError that names the variable."""

    def number(name: str, default: str, least: int) -> int:
        value = env.get(name, default)
        if not value.isdigit() or int(value) < least:
            raise DataError(f"{name} is {value!r}: it must be a whole number of at least {least}")
        return int(value)

    for name in (Env.OUT_DIR, Env.SPLIT_COUNT, Env.TRAIN_CONFIG_DIR, Env.DATA_SOURCE):
        if not env.get(name):
            raise DataError(f"{name} is not set: the data Job must set it")
    out, sha256 = Path(env[Env.OUT_DIR]), env.get(Env.DATA_SHA256, "").lower()
    source = contract.DataSource.from_json(env[Env.DATA_SOURCE])
    if source.kind == contract.INVALID:
        # Without the value, which can be a secret.
        raise DataError(f"{Env.DATA_SOURCE} is not the JSON text that the data Job sets")
    if sha256 and not source.is_one_file:
        raise DataError(f"{Env.DATA_SHA256} is set, but {Env.DATA_SOURCE} is more than one file: leave it empty")
    from_s3 = source.kind == contract.S3
    if from_s3 and not env.get(Env.POD_UID):
        raise DataError(f"{Env.POD_UID} is not set: it names the folder with the objects from S3")
    return DataSettings(
        out=out,
        splits=number(Env.SPLIT_COUNT, "", 1),
        code=Path(__file__).resolve().parent / env[Env.TRAIN_CONFIG_DIR],
        source=source,
        fetched=contract.fetched_folder(out, env[Env.POD_UID]) if from_s3 else None,
        records=number(Env.DATA_RECORDS, "20000", 1),
        sha256=sha256,
    )


def synthesize(path: Path, records: int) -> None:
    """Write labelled reviews, `0 or 1 <tab> words`. The same count gives the same reviews on any machine."""
    rng = random.Random(SEED)
    words = f"{GOOD} {BAD} {PLAIN}".split()
    rare = {"1": BAD.split(), "0": GOOD.split()}
    cumulative = {label: list(accumulate(1 if word in rare[label] else 3 for word in words)) for label in "01"}
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for _ in range(records):
            label = "1" if rng.random() < 0.5 else "0"
            review = rng.choices(words, cum_weights=cumulative[label], k=rng.randrange(20, 41))
            out.write(f"{label}\t{' '.join(review)}\n")


def check_sum(path: Path, expected: str, source: str) -> None:
    """Raise unless the file has this SHA-256."""
    digest = hashlib.sha256()
    progress = Progress("checksum", path.stat().st_size)
    with path.open("rb") as stream:
        for block in blocks(stream):
            digest.update(block)
            progress.add(len(block))
    if digest.hexdigest() != expected:
        raise DataError(f"{source} has SHA-256 {digest.hexdigest()}, not {expected}")


def download_all(settings: DataSettings, work: Path) -> list[tuple[str, Path]]:
    """The name of each address and the file that was downloaded from it."""
    files = [(url, work / f"download-{number}") for number, url in enumerate(settings.source.addresses, 1)]
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        jobs = [pool.submit(download, url, path, bool(settings.sha256)) for url, path in files]
        try:
            for job in jobs:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
    return [(contract.without_credentials(url), path) for url, path in files]


def fetched_objects(fetched: Path, source: str) -> list[tuple[str, Path]]:
    """Each object of an S3 source, in the order of S3, and the file with its content."""
    if not (fetched / contract.FETCH_DONE).is_file():
        raise DataError(f"{fetched} is missing or incomplete: the init container did not copy all of {source}")
    folder = fetched / contract.FETCH_OBJECTS
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: os.fsencode(path))
    if not files:
        raise DataError(f"{source} has no objects")
    prefix = source[: source.rindex("/") + 1]
    return [(f"{prefix}{path.relative_to(folder)}", path) for path in files]


def obtain(settings: DataSettings, work: Path) -> Lines:
    """A file with all records of the source."""
    if settings.source.kind == contract.SYNTHETIC:
        retry_transient(lambda: synthesize(work / "lines", settings.records))
        return Lines(work / "lines", 0, settings.source.shown)
    fetched = settings.fetched
    if fetched:
        files = retry_transient(partial(fetched_objects, fetched, settings.source.addresses[0]))
    else:
        files = download_all(settings, work)
    if settings.sha256:
        retry_transient(lambda: check_sum(files[0][1], settings.sha256, files[0][0]))
    if len(files) == 1:
        name, path = files[0]
        head = retry_transient(partial(read_head, path))
        if is_plain(head):
            check_head(head, name)
            return Lines(path, len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0, name)
    lines = work / "lines"
    end = 0
    for name, path in files:
        end = retry_transient(partial(append_file, path, name, lines, end))
        retry_transient(partial(remove_file, path))
    return Lines(lines, 0, settings.source.shown)


def read_head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD)


def append_file(path: Path, name: str, lines: Path, end: int) -> int:
    """Write the text of the file after the first `end` bytes of the records. Returns the new end."""
    with lines.open("r+b" if end else "wb") as out, path.open("rb") as stream:
        out.seek(end)
        out.truncate()
        append_text(Stream(blocks(stream)), name, out)
        return out.tell()


def remove_file(path: Path) -> None:
    if path.exists():
        path.unlink()


def copy_file(source: str, target: str) -> None:
    retry_transient(lambda: shutil.copy2(source, target))


def copy_code(source: Path, target: Path) -> str:
    """Copy the training code, subfolders kept, and return its digest."""
    remove(target)
    # The files of a ConfigMap volume are links into ..data, which is a link to a folder ..<date>.
    ignored = shutil.ignore_patterns("..*", "__pycache__")
    shutil.copytree(source, target, ignore=ignored, copy_function=copy_file)
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
    """Move the finished folder to its place. The old folder moves into the work folder, which is deleted later."""
    if retry_transient(target.exists):
        retry_transient(lambda: target.rename(work / f"old-{target.name}"))
    retry_transient(lambda: new.rename(target))
    retry_transient(lambda: sync_directory(target.parent))


def set_aside_output(output: Path, made_from: dict[str, str], about: dict[str, str]) -> None:
    """Rename an output that was made from other data or code, so that this training does not resume from it.

    `about` is only recorded, so the same data under another name changes nothing. Can be called again after an error.
    """
    stamp = output / contract.MADE_FROM_FILE
    if output.exists() and not was_made_from(stamp, made_from):
        number = 1
        while (aside := output.with_name(f"output-before-{number}")).exists():
            number += 1
        output.rename(aside)
        print(f"{output}: made from other data or code, kept as {aside.name}; training starts from the beginning")
    if not output.exists():
        fresh = output.with_name(".output")
        remove(fresh)
        fresh.mkdir()
        # The id tells the export Job whether the bucket contains this output or another one.
        content = {**about, **made_from, "id": secrets.token_hex(16)}
        replace_file(fresh / stamp.name, json.dumps(content, indent=1).encode())
        fresh.rename(output)
    sync_directory(output.parent)


def was_made_from(stamp: Path, made_from: dict[str, str]) -> bool:
    try:
        found = json.loads(stamp.read_text(encoding="utf-8"))
        return all(found[name] == value for name, value in made_from.items())
    except (FileNotFoundError, IsADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return False


@contextmanager
def locked(out: Path) -> Iterator[TextIO]:
    """The file with the name of the newest work folder, locked: only one process at a time can use it."""
    with retry_transient(partial((out / LOCK_FILE).open, "a+")) as file:
        retry_transient(lambda: fcntl.flock(file, fcntl.LOCK_EX))
        file.seek(0)
        yield file


def claim(out: Path) -> Path:
    """Create a work folder. The data Job that started last wins: those that started before it cannot finish."""
    with locked(out) as newest:
        for left in retry_transient(lambda: list(out.glob(f"{WORK_PREFIX}*"))):
            remove(left)
        work = out / f"{WORK_PREFIX}{secrets.token_hex(8)}"
        retry_transient(lambda: work.mkdir(exist_ok=True))
        newest.truncate(0)
        newest.write(work.name)
        newest.flush()
        os.fsync(newest.fileno())
    return work


def is_prepared(data: Path, about: dict[str, Any]) -> bool:
    """Whether the shards of this source exist and are undamaged."""
    manifest = read_manifest(data)
    if not manifest or any(manifest.get(name) != value for name, value in about.items()):
        return False
    for number, shard in enumerate(manifest["shards"]):
        if problem := shard_problem(data / str(number), shard):
            print(f"{problem}: the data is split again", flush=True)
            return False
    return True


def prepare(settings: DataSettings) -> None:
    """If a run is killed, each folder is complete or missing. The next run finishes the work."""
    if not settings.code.is_dir():
        raise DataError(f"{Env.TRAIN_CONFIG_DIR}: the training code {settings.code} is missing")
    retry_transient(lambda: settings.out.mkdir(parents=True, exist_ok=True))
    work = claim(settings.out)
    own = [work, settings.fetched] if settings.fetched else [work]
    try:
        fill(settings, work)
    except Exception as error:
        for folder in own:
            remove(folder)
        with locked(settings.out) as newest:
            check_newest(newest, work, error)
        raise
    for folder in own:
        remove(folder)


def check_newest(newest: TextIO, work: Path, error: Exception | None = None) -> None:
    if newest.read() != work.name:
        raise DataError(f"{work.parent}: another data Job started after this one, so this one stops") from error


def fill(settings: DataSettings, work: Path) -> None:
    """Make everything in the work folder, then move it to its place."""
    about: dict[str, Any] = {"source": settings.source.shown, "sha256": settings.sha256}
    synthetic = settings.source.kind == contract.SYNTHETIC
    if synthetic:
        about["synthetic records"] = settings.records
    data = settings.out / contract.DATA
    known = synthetic or bool(settings.sha256)
    if known and retry_transient(lambda: is_prepared(data, {**about, "splits": settings.splits})):
        print(f"{data}: already has this data in {settings.splits} shards", flush=True)
    else:
        lines = obtain(settings, work)
        retry_transient(lambda: split(lines, work / contract.DATA, about, settings.splits))
    code = retry_transient(lambda: copy_code(settings.code, work / "code"))
    with locked(settings.out) as newest:
        check_newest(newest, work)
        if retry_transient((work / contract.DATA).exists):
            install(work / contract.DATA, data, work)
        install(work / "code", settings.out / settings.code.name, work)
        manifest = retry_transient(lambda: read_manifest(data))
        made_from = {"digest": manifest["digest"], "code": code}
        named = {"source": manifest["source"], "sha256": manifest["sha256"]}
        retry_transient(lambda: set_aside_output(settings.out / contract.OUTPUT, made_from, named))
        for left in retry_transient(lambda: list(settings.out.glob(f"{contract.FETCHED}*"))):
            remove(left)
    records = manifest["records"]
    print(f"{data}: {sum(records)} records in {len(records)} shards of {min(records)} to {max(records)}", flush=True)


def stop(*_: object) -> None:
    """On SIGTERM. The work folder stays: the next data Job deletes it."""
    why = "Kubernetes ends the pods of a Job at its time limit (data.timeoutMinutes), and of a node that it drains"
    text = f"prepare.py: stopped by SIGTERM: {why}\n{contract.repeat(contract.DATA_JOB)}\n"
    os.write(sys.stderr.fileno(), text.encode())
    os._exit(128 + signal.SIGTERM)


def main() -> int:
    """Prepare, and print a problem that the user must solve as one line."""
    try:
        prepare(read_settings(os.environ))
    except (DataError, OSError) as error:
        print(f"prepare.py: {error}", file=sys.stderr, flush=True)
        print(contract.repeat(contract.DATA_JOB), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    # The first process of a container ignores SIGTERM unless it has a handler.
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
