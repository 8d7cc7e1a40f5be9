"""One container as one process: run as a program, it keeps watch over the process it isolates and records how it ended.

It outlives the node that started it, so a node that is killed and comes back finds its containers as they are. It
imports the standard library and little else, for there is one of it a container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.node import network

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
# Flags that a mount in a user namespace may not lose: as statvfs tells them and as mount takes them.
_LOCKED_FLAGS = 2 | 4 | 8
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _call(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount {source} on {target}")


def isolate() -> None:
    """Give this process its own mounts and host name, and its children their own process ids."""
    wanted = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID
    uid, gid = os.getuid(), os.getgid()
    try:
        _call(_libc.unshare(wanted), "unshare")
    except PermissionError:
        _call(_libc.unshare(wanted | _CLONE_NEWUSER), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        # Whoever runs the sandbox, a container is root in its own place, as in an image that names no user.
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)


def build_root(root: Path, mounts: list[dict[str, Any]]) -> None:
    """Lay out under `root` this machine's files with the volumes at their paths; the machine's own files stay as is."""
    _mount("tmpfs", str(root), "tmpfs", 0)
    targets = {os.path.realpath(mount["target"]): mount for mount in mounts}
    opened = {"/"}
    for target in targets:
        # A mount needs something to be mounted on: where the machine has nothing, the folders above are laid anew.
        if not Path(target).exists():
            opened |= {str(above) for above in Path(target).parents}
    _mirror(root, "/", opened)
    for target in sorted(targets):
        source, place = targets[target]["source"], root / target.lstrip("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir() if Path(source).is_dir() else place.touch()
        _mount(source, str(place), "", _MS_BIND | _MS_REC)
        if targets[target]["readonly"]:
            kept = os.statvfs(place).f_flag & _LOCKED_FLAGS
            _mount("none", str(place), "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _mirror(root: Path, folder: str, opened: Iterable[str]) -> None:
    for entry in os.scandir(folder):
        place = root / entry.path.lstrip("/")
        # What comes and goes meanwhile (sockets, pids) is nobody's loss.
        with contextlib.suppress(FileNotFoundError):
            if entry.is_symlink():
                place.symlink_to(Path(entry.path).readlink())
            elif entry.path == "/proc":
                place.mkdir()
                _mount_proc(place)
            elif entry.path in opened:
                place.mkdir()
                _mirror(root, entry.path, opened)
            else:
                place.mkdir() if entry.is_dir() else place.touch()
                _mount(entry.path, str(place), "", _MS_BIND | _MS_REC)


def _mount_proc(place: Path) -> None:
    try:
        _mount("proc", str(place), "proc", 0)
    except OSError:
        # Inside another container /proc is partly covered, and the kernel then allows no fresh one.
        _mount("/proc", str(place), "", _MS_BIND | _MS_REC)


def _confine(spec: dict[str, Any]) -> None:
    """Give up what the container's security context does not leave it; it is gone from the program's start on."""
    if spec["without_capabilities"]:
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            _call(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "dropping capabilities")
    if spec["without_escalation"]:
        _call(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def _become(spec: dict[str, Any], folder: Path, watcher: socket.socket) -> None:
    """In the child: be the container's process. Returns only when that cannot be."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec["hostname"]:
            socket.sethostname(spec["hostname"])
        root = folder / "root"
        root.mkdir(exist_ok=True)
        build_root(root, spec["mounts"])
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.chroot(root)
        os.chdir(spec["cwd"])
        for number, descriptor in ((0, null), (1, log), (2, log)):
            os.dup2(descriptor, number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        socket.send_fds(watcher, [b"\n"], [network.hold()])
        _confine(spec)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as problem:
        watcher.sendall(f"{spec['argv'][0]}: {problem.strerror or problem}".encode())


def write_json(path: Path, content: dict[str, Any]) -> None:
    """All or nothing: a reader never sees half a file."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def main() -> None:
    """Run the container described in FOLDER/spec.json; FOLDER/running.json and FOLDER/exit.json tell how it goes."""
    folder, lock = Path(sys.argv[1]), int(sys.argv[2])
    # The lock says that this process lives; the container must not hold it on.
    os.set_inheritable(lock, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    spec = json.loads((folder / "spec.json").read_text())
    started, error = time.time(), ""
    ours, theirs = socket.socketpair()
    try:
        isolate()
        pid = os.fork()
    except OSError as problem:
        told = {"code": 128, "started": started, "finished": time.time(), "error": problem.strerror}
        write_json(folder / "exit.json", told)
        return
    if pid == 0:
        _become(spec, folder, theirs)
        os._exit(128)
    theirs.close()
    write_json(folder / "running.json", {"pid": pid, "started": started})
    first, held, *_ = socket.recv_fds(ours, 1024, 1)
    # Its end comes when the container's process has begun, or with the reason why it could not.
    with ours.makefile("rb") as rest:
        error = (first + rest.read()).decode().strip()
    if held:
        network.answer(held[0], spec["address"], pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ended = {"code": 128 - code if code < 0 else code, "signal": -code if code < 0 else 0}
    write_json(folder / "exit.json", ended | {"started": started, "finished": time.time(), "error": error})


if __name__ == "__main__":
    main()
