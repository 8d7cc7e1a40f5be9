"""The files of this machine that every container sees, all of them read-only.

This is a list of allowed paths, so home directories, the checkout, /run and other users' files are not visible.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox.node.run_files import Mount
from sandbox.paths import CHECKOUT

_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "gai.conf",
    "group",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
)
_FOLDERS = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/sys", "/usr", "/var/lib/ca-certificates")
SYSTEM = (*_FOLDERS, *(f"/etc/{name}" for name in _ETC))


def machine_mounts() -> list[Mount]:
    """The system's files and this Python. A home directory or checkout inside them is replaced by an empty folder."""
    system = {path: Mount(_visible_source(path), path, True) for path in SYSTEM if Path(path).exists()}
    private = {os.path.realpath(path) for path in (Path.home(), CHECKOUT)}
    empty = {path: Mount("", path, True) for path in private if is_in_system(path)}
    prefixes = {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    hidden = {path for path in prefixes if not is_in_system(path) or any(is_inside(path, folder) for folder in empty)}
    python = {path: Mount(os.path.realpath(path), path, True) for path in hidden}
    return sorted((system | empty | python).values(), key=lambda mount: mount.target)


def is_inside(path: str, folder: str) -> bool:
    """Whether the path is the folder or below it."""
    return path == folder or path.startswith(f"{folder}/")


def is_in_system(path: str) -> bool:
    """Whether the path is one of the system's files."""
    return any(is_inside(path, folder) for folder in SYSTEM)


def _visible_source(path: str) -> str:
    """The path itself, or what it links to if the container does not see that, as with /etc/resolv.conf in /run."""
    target = os.path.realpath(path)
    return path if is_in_system(target) else target
