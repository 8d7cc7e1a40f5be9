"""The watcher of one container: starts the process in isolation, waits for its end and records the exit code.

The watcher outlives the node process. If the node process is killed and starts again, it finds its containers running.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from sandbox.node import bind_filter
from sandbox.node.container_files import ContainerSpec, Ended, Mount, Running

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
# nosuid, nodev and noexec: a remount in a user namespace must keep them.
_LOCKED_FLAGS = 2 | 4 | 8
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, action: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _call(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount {source} on {target}")


def isolate() -> None:
    """Give this process its own mounts and host name, and give its children their own process ids."""
    wanted = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID
    uid, gid = os.getuid(), os.getgid()
    try:
        _call(_libc.unshare(wanted), "unshare")
    except PermissionError:
        _call(_libc.unshare(wanted | _CLONE_NEWUSER), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        # A container is root inside, as in an image that names no user.
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)


def build_root(root: Path, mounts: list[Mount]) -> None:
    """Show this machine's files under `root`, with the volumes at their paths."""
    _mount("tmpfs", str(root), "tmpfs", 0)
    targets = {os.path.realpath(mount.target): mount for mount in mounts}
    opened = {"/"}
    for target in targets:
        # A mount point must exist. If the machine does not have it, its parents become new folders.
        if not Path(target).exists():
            opened |= {str(parent) for parent in Path(target).parents}
    _mirror(root, "/", opened)
    for target in sorted(targets):
        source, place = targets[target].source, root / target.lstrip("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir() if Path(source).is_dir() else place.touch()
        _mount(source, str(place), "", _MS_BIND | _MS_REC)
        if targets[target].readonly:
            kept = os.statvfs(place).f_flag & _LOCKED_FLAGS
            _mount("none", str(place), "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _mirror(root: Path, folder: str, opened: Iterable[str]) -> None:
    for entry in os.scandir(folder):
        place = root / entry.path.lstrip("/")
        # Sockets and pid files may disappear meanwhile.
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
        # The kernel refuses a new /proc if parts of the existing one are covered, as inside another container.
        _mount("/proc", str(place), "", _MS_BIND | _MS_REC)


def _apply_security_context(spec: ContainerSpec) -> None:
    if spec.drop_capabilities:
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            _call(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "dropping capabilities")
    if spec.forbid_new_privileges:
        _call(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def _execute(spec: ContainerSpec, folder: Path, watcher: socket.socket) -> None:
    """In the child process: become the container's program. Returns only if that fails."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec.hostname:
            socket.sethostname(spec.hostname)
        root = folder / "root"
        root.mkdir(exist_ok=True)
        build_root(root, spec.mounts)
        log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.chroot(root)
        os.chdir(spec.cwd)
        for number, descriptor in ((0, null), (1, log), (2, log)):
            os.dup2(descriptor, number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        socket.send_fds(watcher, [b"\n"], [bind_filter.install()])
        _apply_security_context(spec)
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except OSError as problem:
        watcher.sendall(f"{spec.argv[0]}: {problem.strerror or problem}".encode())


def main() -> None:
    """Run the container that FOLDER/spec.json describes; write FOLDER/running.json and FOLDER/exit.json."""
    folder, lock = Path(sys.argv[1]), int(sys.argv[2])
    # The lock shows that the watcher lives, so the container must not inherit it.
    os.set_inheritable(lock, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    spec = ContainerSpec.read(folder)
    assert spec is not None, f"{folder} has no spec.json"
    started = time.time()
    ours, theirs = socket.socketpair()
    try:
        isolate()
        pid = os.fork()
    except OSError as problem:
        Ended(128, 0, started, time.time(), problem.strerror or str(problem)).write(folder)
        return
    if pid == 0:
        _execute(spec, folder, theirs)
        os._exit(128)
    theirs.close()
    Running(pid, started).write(folder)
    first, filters, *_ = socket.recv_fds(ours, 1024, 1)
    # The socket closes when the program has started. Otherwise it carries the reason why the program did not start.
    with ours.makefile("rb") as rest:
        error = (first + rest.read()).decode().strip()
    if filters:
        bind_filter.answer(filters[0], spec.address, pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code, killed_by = (128 - status, -status) if status < 0 else (status, 0)
    Ended(code, killed_by, started, time.time(), error).write(folder)


if __name__ == "__main__":
    main()
