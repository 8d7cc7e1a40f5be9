"""Which processes of this machine listen on which addresses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path


def everybody() -> dict[str, str]:
    """Every address on which some process listens, with the inode of its socket."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {row[1]: row[9] for row in rows if row[3] == "0A"}


def by(pids: Iterable[int]) -> set[str]:
    """The addresses on which these processes listen."""
    files = set()
    for pid in pids:
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            files |= {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return {address for address, inode in everybody().items() if f"socket:[{inode}]" in files}


def beyond_loopback(addresses: Iterable[str]) -> list[str]:
    """The addresses outside 127.0.0.0/8 and ::1. The kernel writes an address as little-endian words."""
    hosts = {address.partition(":")[0] for address in addresses}
    return [host for host in hosts if not host.endswith("7F") and host != f"{'0' * 24}01000000"]
