"""What the scripts of the data Job share: the error for the user, progress lines and reading in blocks."""

from __future__ import annotations

import threading
import time
from typing import BinaryIO, Iterator

BLOCK = 1 << 20
SECONDS_BETWEEN_LINES = 2.0


class DataError(Exception):
    """A problem that the user must solve; the Job prints it as one line."""


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
            if now - self.printed < SECONDS_BETWEEN_LINES and self.done != self.total:
                return
            self.printed = now
        percent = f"{100 * self.done / self.total:3.0f}%" if self.total else "  ?%"
        rate = self.done / max(now - self.start, 1e-9)
        print(f"{self.what}: {percent}  {self.done / 1e6:.1f} MB  {rate / 1e6:.1f} MB/s", flush=True)


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: stream.read(BLOCK), b"")
