"""Makes a volume unreliable for a script: each call on each path of UNRELIABLE_VOLUME fails once with ESTALE."""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

FUNCTIONS = ("open", "stat", "lstat", "scandir", "listdir", "mkdir", "rename", "unlink", "rmdir")
failed: set[tuple[str, str]] = set()


def unreliable(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        for path in arguments[:2]:
            text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
            if (
                isinstance(text, str)
                and text.startswith(os.environ["UNRELIABLE_VOLUME"])
                and (name, text) not in failed
            ):
                failed.add((name, text))
                raise OSError(errno.ESTALE, "Stale file handle", text)
        return function(*arguments, **options)

    return call


# The tests start the launcher and prepare.py as a command. The processes of a training run a script.
if "UNRELIABLE_VOLUME" in os.environ and sys.argv[:1] == ["-c"]:
    for each in FUNCTIONS:
        setattr(os, each, unreliable(each, getattr(os, each)))
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(float(seconds) / 20)  # there are hundreds of calls to repeat
    builtins.open = io.open = unreliable("io.open", io.open)
