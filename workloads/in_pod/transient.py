"""Repeats calls that fail because the volume does not answer for a moment."""

from __future__ import annotations

import errno
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
