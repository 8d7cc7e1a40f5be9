"""The watcher of one container: starts the process in isolation, waits for its end and records the exit code.

The watcher outlives the node process. If the node process is killed and starts again, it finds its containers running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection
from pathlib import Path

from sandbox.node import bind_filter
from sandbox.node.run_files import ContainerSpec, Ended, Mount, Running
from sandbox.node.visible_files import is_in_system, is_inside

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
# A kubelet gives a pod 64 MiB of shared memory.
_SHARED_MEMORY = "size=64m,mode=1777"
# The files of /proc that change the machine itself.
_MACHINE_SETTINGS = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, action: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    result = _libc.mount(source.encode(), bytes(target), kind.encode(), flags, options.encode() or None)
    _call(result, f"mount {source} on {target}")


def _bind(source: str, target: Path, readonly: bool) -> None:
    _mount(source, target, "", _MS_BIND | _MS_REC)
    if readonly:
        _make_readonly(target, _AT_RECURSIVE)


def _make_readonly(target: Path, flags: int) -> None:
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, bytes(target), flags, attributes, len(attributes))
    _call(result, f"mount {target} read-only")


def isolate() -> None:
    """Give this process its own host name, and give its children their own process ids."""
    wanted = _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID
    uid, gid = os.getuid(), os.getgid()
    try:
        _call(_libc.unshare(wanted), "unshare")
    except PermissionError:
        _call(_libc.unshare(wanted | _CLONE_NEWUSER), "unshare")
        _become_root(uid, gid)


def _become_root(uid: int, gid: int) -> None:
    """In a new user namespace: a container is root inside, as in an image that names no user."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def enter_root(root: Path, spec: ContainerSpec) -> None:
    """Make `root` the file system of this process. The rest of the machine cannot be reached from there."""
    _call(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", Path("/"), "", _MS_REC | _MS_PRIVATE)
    _build_root(root, spec.machine, spec.mounts)
    if spec.readonly_root:
        _make_readonly(root, 0)
    os.chdir(root)
    _call(_libc.pivot_root(b".", b"."), "pivot_root")
    _call(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
    # The container is root in a second user namespace. There the kernel forbids changes to the mounts made above.
    _call(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    _become_root(0, 0)


def _build_root(root: Path, machine: list[Mount], mounts: list[Mount]) -> None:
    for folder, mode in (("dev", 0o755), ("proc", 0o755), ("root", 0o700), ("run", 0o755), ("tmp", 0o1777)):
        (root / folder).mkdir()
        (root / folder).chmod(mode)
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "var/tmp").symlink_to("/tmp")
    _mount(str(root), root, "", _MS_BIND)
    _mount_proc(root / "proc")
    _create_devices(root / "dev")
    volumes = {_resolved(mount.target, machine): mount for mount in mounts}
    # A mount point must exist. If the machine does not have it, its parents become folders of the container.
    opened = {str(parent) for path in volumes if not Path(path).exists() for parent in Path(path).parents}
    for mount in machine:
        if mount.source == mount.target:
            _show(root, mount.source, opened)
        else:
            _mount_volume(mount, root / mount.target.lstrip("/"))
    for path, mount in sorted((volumes | _hidden_python(machine, volumes)).items()):
        _mount_volume(mount, root / path.lstrip("/"))


def _hidden_python(machine: list[Mount], volumes: Collection[str]) -> dict[str, Mount]:
    """This Python, if a volume hides it: the user may keep the tools in /tmp, where some pods have a volume."""
    python = [mount for mount in machine if mount.target not in volumes and not is_in_system(mount.target)]
    return {mount.target: mount for mount in python if any(is_inside(mount.target, path) for path in volumes)}


def _resolved(target: str, machine: list[Mount]) -> str:
    """The path of a volume without symbolic links. Inside the container, links exist in the machine's files only."""
    target = os.path.normpath(target)
    if target.startswith("/var/run/"):
        return target.removeprefix("/var")
    visible = any(target.startswith(f"{mount.target}/") for mount in machine)
    return os.path.realpath(target) if visible else target


def _show(root: Path, path: str, opened: set[str]) -> None:
    """Show a file or folder of this machine read-only."""
    place = root / path.lstrip("/")
    if path in opened and Path(path).is_dir():
        place.mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(path):
            _show(root, entry.path, opened)
    elif Path(path).is_symlink():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(path).readlink())
    else:
        _create_mount_point(place, Path(path).is_dir())
        _bind(path, place, readonly=True)


def _mount_volume(mount: Mount, place: Path) -> None:
    _create_mount_point(place, not mount.source or Path(mount.source).is_dir())
    if mount.source:
        _bind(mount.source, place, mount.readonly)
    else:
        _mount("tmpfs", place, "tmpfs", 0)


def _create_mount_point(place: Path, folder: bool) -> None:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if folder else place.touch()


def _mount_proc(place: Path) -> None:
    try:
        _mount("proc", place, "proc", 0)
    except OSError:
        # The kernel refuses a new /proc if parts of the existing one are covered, as inside another container.
        _bind("/proc", place, readonly=False)
    for name in _MACHINE_SETTINGS:
        if (place / name).exists():
            _bind(str(place / name), place / name, readonly=True)


def _create_devices(place: Path) -> None:
    for name in _DEVICES:
        (place / name).touch()
        _bind(f"/dev/{name}", place / name, readonly=False)
    for name, target in _DEVICE_LINKS.items():
        (place / name).symlink_to(target)
    (place / "shm").mkdir()
    _mount("tmpfs", place / "shm", "tmpfs", 0, _SHARED_MEMORY)


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
        socket.sethostname(spec.hostname)
        root = folder / "root"
        root.mkdir(exist_ok=True)
        log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        enter_root(root, spec)
        # Only now: the new user namespace has reset this.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
