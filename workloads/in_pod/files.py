"""Access to files on the volume, which does not answer for a moment now and then."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, TypeVar

# An NFS client may return these for a moment, for example while the file server fails over.
TRANSIENT = (errno.ESTALE, errno.EIO)
RETRY_SECONDS = 10.0

T = TypeVar("T")


def retry_transient(call: Callable[[], T]) -> T:
    """The result of the call, which is repeated for some seconds while the volume returns a transient error."""
    deadline = 0.0
    while True:
        try:
            return call()
        except OSError as error:
            # The time counts from the first error: the call itself can take minutes.
            deadline = deadline or time.monotonic() + RETRY_SECONDS
            if error.errno not in TRANSIENT or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def replace_file(path: Path, content: bytes) -> None:
    """Write the file: a reader sees the old or the new content, never a part."""
    # A pod that ends and its replacement may write the same file at the same time.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)

    try:
        retry_transient(write)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def sync_directory(path: Path) -> None:
    """Write the names in the directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Delete the folder and what is in it, as far as the volume allows. Another process may do the same."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            if not folder.exists():
                return
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)
