"""Limits the servers of a container to its pod's address: a server that binds to all addresses gets only that one.

All pods share this machine's network. Without this, a server that binds to all addresses would take the port in every
pod and be reachable from outside. So the kernel (seccomp) stops each `bind` and `listen` of a container until the
watcher of the container has answered.
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
    """The id of a processor architecture, and its numbers of the system calls."""

    architecture: int
    seccomp: int
    bind: int
    listen: int


_SYSTEM_CALLS = {"x86_64": _Numbers(0xC000003E, 317, 49, 50), "aarch64": _Numbers(0xC00000B7, 277, 200, 201)}
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
# id, pid, flags; number, architecture, instruction; arguments: socket, address, length of the address, three more.
_REQUEST, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=Qqii")
_MAX_ADDRESS_BYTES = 128
# The position of the host in an address of each family. Only zeros mean all addresses.
_HOST = {int(socket.AF_INET): slice(4, 8), int(socket.AF_INET6): slice(8, 24)}
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install() -> int:
    """Stop each `bind` and `listen` of this process and its children from now on; returns the filter for `answer`."""
    try:
        numbers = _SYSTEM_CALLS[os.uname().machine]
    except KeyError as unknown:
        raise OSError(errno.ENOSYS, f"seccomp: the system call numbers of {unknown} are not known") from None
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_JUMP_IF, 0, 4, numbers.architecture),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
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
    """Answer the stopped calls until the first process of the container ends."""
    handle = _descriptor(_PIDFD_OPEN, child, 0)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(handle, select.POLLIN)
    while handle not in dict(poll.poll()):
        request = bytearray(_REQUEST.size)
        # The caller may be killed at any time.
        with suppress(OSError):
            fcntl.ioctl(listener, _RECEIVE, request)
            fcntl.ioctl(listener, _SEND, _answer(bytes(request), address))
    os.close(handle)


def _answer(request: bytes, address: str) -> bytes:
    id_, thread, _, number, _, _, descriptor, pointer, length, *_ = _REQUEST.unpack(request)
    try:
        with closing(_socket_of(thread, descriptor)) as server:
            if number == _SYSTEM_CALLS[os.uname().machine].listen:
                _bind_before_listen(server, address)
                done = False
            else:
                done = _bind_instead(server, _memory(thread, pointer, min(length, _MAX_ADDRESS_BYTES)), address)
        return _ANSWER.pack(id_, 0, 0, 0 if done else _CONTINUE)
    except OSError as problem:
        return _ANSWER.pack(id_, 0, -(problem.errno or errno.EACCES), 0)


def _bind_before_listen(server: socket.socket, address: str) -> None:
    """A server that listens without `bind` would get all addresses from the kernel."""
    if server.family in _HOST and server.getsockname()[1] == 0:
        _bind(server, server.family, address, 0)


def _bind_instead(server: socket.socket, wanted: bytes, address: str) -> bool:
    """Bind a server that asks for all addresses; returns False if the kernel shall execute the call unchanged."""
    family, port = int.from_bytes(wanted[:2], sys.byteorder), int.from_bytes(wanted[2:4], "big")
    all_addresses = family in _HOST and wanted[_HOST[family]].strip(b"\0") == b""
    # A UDP socket without a port is a client. If it were bound to the loopback, it could not send to other machines.
    if not all_addresses or (server.type == socket.SOCK_DGRAM and not port):
        return False
    _bind(server, family, address, port)
    return True


def _bind(server: socket.socket, family: int, address: str, port: int) -> None:
    if family == socket.AF_INET6:
        v6_only = server.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        address = "::1" if v6_only else f"::ffff:{address}"
    # Before Linux 5.19 a signal can repeat a call that was already answered.
    if server.getsockname()[0] != address:
        server.bind((address, port))


def _memory(thread: int, pointer: int, length: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(pointer)
        return memory.read(length)


def _socket_of(thread: int, descriptor: int) -> socket.socket:
    """The socket that another process has under this number."""
    lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    process = next(int(line.split()[1]) for line in lines if line.startswith("Tgid:"))
    handle = _descriptor(_PIDFD_OPEN, process, 0)
    try:
        return socket.socket(fileno=_descriptor(_PIDFD_GETFD, handle, descriptor, 0))
    finally:
        os.close(handle)


def _descriptor(number: int, *arguments: int) -> int:
    descriptor = int(_libc.syscall(number, *arguments))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor
