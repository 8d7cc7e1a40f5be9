"""Gives every cluster on this machine its own loopback network for pods: 127.<64 to 127>.0.0/16."""

from __future__ import annotations

import fcntl
from pathlib import Path

from sandbox import build
from sandbox.errors import SandboxError

FIRST, LAST = 64, 127
NODES = 254


def claim(owner: Path) -> int:
    """The second number of the network of the cluster in this folder. Deleting the folder releases the network."""
    claims = build.cache() / "networks"
    claims.mkdir(parents=True, exist_ok=True)
    with (claims / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = {int(file.name): Path(file.read_text()) for file in claims.glob("[0-9]*")}
        for number, folder in held.items():
            if folder == owner:
                return number
        for number in range(FIRST, LAST + 1):
            if number not in held or not _exists(held[number]):
                (claims / str(number)).write_text(str(owner))
                return number
    raise SandboxError(
        f"{LAST - FIRST + 1} stacks run on this machine, which is the maximum: stop one with `make sandbox-down`"
    )


def _exists(folder: Path) -> bool:
    try:
        folder.stat()
    except PermissionError:
        return True  # it belongs to another user
    except OSError:
        return False
    return True
