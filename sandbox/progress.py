"""Progress output in the terminal: one line per step with its elapsed time."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REDRAW_SECONDS = 0.2
SECONDS_BETWEEN_PLAIN_LINES = 30.0
BAR_WIDTH = 24


def elapsed(seconds: float) -> str:
    """Format a duration: 0.4 s, 12 s, 3 min 05 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


@dataclass
class Step:
    """A running step. `advance` and `note` change the text of its line."""

    title: str
    started: float = field(default_factory=time.monotonic)
    done: int = 0
    total: int = 0
    detail: str = ""

    def advance(self) -> None:
        self.done += 1

    def expect(self, total: int) -> None:
        self.total, self.done = total, 0

    def note(self, text: str) -> None:
        self.detail = text

    def line(self) -> str:
        text = f"{self.title}  {elapsed(time.monotonic() - self.started)}"
        if self.total:
            done = min(self.done, self.total)
            filled = BAR_WIDTH * done // self.total
            text += f"  [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done} of {self.total}"
        return f"{text}  {self.detail}" if self.detail else text


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Show a step while its block runs: redraw one line in a terminal, print a line every 30 s elsewhere.

    Of steps that run at the same time, only the oldest one is drawn while it runs.
    """
    current = Step(title)
    _running.append(current)
    ended = threading.Event()
    terminal = sys.stdout.isatty()
    painter = threading.Thread(target=_paint, args=(current, ended, terminal), daemon=True)
    painter.start()
    mark = "failed"
    try:
        yield current
        mark = "ok"
    finally:
        ended.set()
        painter.join()
        _running.remove(current)
        took = elapsed(time.monotonic() - current.started)
        detail = f"  {current.detail}" if current.detail else ""
        print(f"{_CLEAR_LINE if terminal else ''}{mark:>6}  {title}  {took}{detail}", flush=True)


_CLEAR_LINE = "\r\x1b[2K"
_running: list[Step] = []


def _paint(current: Step, ended: threading.Event, terminal: bool) -> None:
    while not ended.wait(REDRAW_SECONDS if terminal else SECONDS_BETWEEN_PLAIN_LINES):
        if terminal and _running[0] is not current:
            continue
        if terminal:
            # A line that wraps cannot be redrawn.
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(_CLEAR_LINE + f"   ...  {current.line()}"[:width])
        else:
            sys.stdout.write(f"   ...  {current.line()}\n")
        sys.stdout.flush()


def report(text: str) -> None:
    """Print a message in line with the titles of the steps."""
    print("\n".join(f"        {line}" for line in text.splitlines()), flush=True)
