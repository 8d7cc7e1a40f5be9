"""A container's share of the network: a server that asks for every address of the machine gets its pod's alone.

All pods share this machine's network, where every address would be the other pods' too and be reached from outside.
So the kernel holds back each `bind` and `listen` of the container until its watcher has answered.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple


class _Numbers(NamedTuple):
    """An architecture's mark in a system call's data, and its numbers of the system calls."""

    mark: int
    seccomp: int
    bind: int
    listen: int


_SYSTEM_CALLS = {"x86_64": _Numbers(0xC000003E, 317, 49, 50), "aarch64": _Numbers(0xC00000B7, 277, 200, 201)}
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
# id, pid, flags; number, architecture, instruction; the arguments: socket, address, its length, three more.
_ASKED, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=Qqii")
_LONGEST_ADDRESS = 128
# Where in an address of each family the host is: nothing but zeros means every address.
_EVERYWHERE = {int(socket.AF_INET): slice(4, 8), int(socket.AF_INET6): slice(8, 24)}
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def hold() -> int:
    """From here on, no `bind` or `listen` of this process and its children goes on unanswered; what `answer` needs."""
    try:
        numbers = _SYSTEM_CALLS[os.uname().machine]
    except KeyError as unknown:
        raise OSError(errno.ENOSYS, f"seccomp: not known on {unknown}") from None
    steps = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_JUMP_IF, 0, 4, numbers.mark),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_JUMP_IF, 1, 0, numbers.bind),
        (_JUMP_IF, 0, 1, numbers.listen),
        (_RETURN, 0, 0, _NOTIFY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = _Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = int(_libc.syscall(numbers.seccomp, _SET_MODE_FILTER, flags, ctypes.byref(program)))
        if listener >= 0:
            return listener
    raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def answer(listener: int, address: str, child: int) -> None:
    """Answer whatever is held back, for as long as the container's first process lives."""
    handle = _descriptor(_PIDFD_OPEN, child, 0)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(handle, select.POLLIN)
    while handle not in dict(poll.poll()):
        asked = bytearray(_ASKED.size)
        # Whoever asked may be gone before, or after.
        with suppress(OSError):
            fcntl.ioctl(listener, _RECEIVE, asked)
            fcntl.ioctl(listener, _SEND, _answer(bytes(asked), address))
    os.close(handle)


def _answer(asked: bytes, address: str) -> bytes:
    id_, thread, _, number, _, _, descriptor, place, length, *_ = _ASKED.unpack(asked)
    try:
        with closing(_socket_of(thread, descriptor)) as theirs:
            if number == _SYSTEM_CALLS[os.uname().machine].listen:
                _before_listen(theirs, address)
                done = False
            else:
                done = _instead_of_bind(theirs, _memory(thread, place, min(length, _LONGEST_ADDRESS)), address)
        return _ANSWER.pack(id_, 0, 0, 0 if done else _CONTINUE)
    except OSError as problem:
        return _ANSWER.pack(id_, 0, -(problem.errno or errno.EACCES), 0)


def _before_listen(theirs: socket.socket, address: str) -> None:
    """The kernel would give a server that has no address every one."""
    if theirs.family in _EVERYWHERE and theirs.getsockname()[1] == 0:
        _bind(theirs, theirs.family, address, 0)


def _instead_of_bind(theirs: socket.socket, wanted: bytes, address: str) -> bool:
    """Whether it was bound here; else the kernel is to do as it was asked."""
    family, port = int.from_bytes(wanted[:2], sys.byteorder), int.from_bytes(wanted[2:4], "big")
    everywhere = family in _EVERYWHERE and wanted[_EVERYWHERE[family]].strip(b"\0") == b""
    # A client's datagrams are heard by nobody, and from the loopback they would reach nobody outside.
    if not everywhere or (theirs.type == socket.SOCK_DGRAM and not port):
        return False
    _bind(theirs, family, address, port)
    return True


def _bind(theirs: socket.socket, family: int, address: str, port: int) -> None:
    if family == socket.AF_INET6:
        alone = theirs.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        address = "::1" if alone else f"::ffff:{address}"
    # Before Linux 5.19 a signal breaks the wait, and what was done already is asked again.
    if theirs.getsockname()[0] != address:
        theirs.bind((address, port))


def _memory(thread: int, place: int, length: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(place)
        return memory.read(length)


def _socket_of(thread: int, descriptor: int) -> socket.socket:
    """The very socket that another process has under this number."""
    lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    process = next(int(line.split()[1]) for line in lines if line.startswith("Tgid:"))
    handle = _descriptor(_PIDFD_OPEN, process, 0)
    try:
        return socket.socket(fileno=_descriptor(_PIDFD_GETFD, handle, descriptor, 0))
    finally:
        os.close(handle)


def _descriptor(number: int, *arguments: int) -> int:
    made = int(_libc.syscall(number, *arguments))
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return made
