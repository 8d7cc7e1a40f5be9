"""A pod can neither read nor change the user's files, not even as root with all capabilities."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.paths import CHECKOUT
from tests.emulator.cluster_helpers import NodeProcess
from tests.emulator.node.pods import pod, run_to_end
from tools.kubernetes_client import Api, Object

SECRET = "aws_secret_access_key = planted-by-a-test"

# Each function is one way to reach a file of the machine. An attempt that works prints its name.
ATTACK = """
import ctypes, os, subprocess, sys
libc, files = ctypes.CDLL(None, use_errno=True), sys.argv[1:]

def read():
    return [file for file in files if os.path.exists(file)]

def write():
    for file in files:
        with open(file, "w") as changed:
            changed.write("changed by the pod")
        # A new file of the container at the same path is no harm.
        os.remove(file)

def other_processes():
    paths = [f"/proc/{pid}/{link}{file}" for pid in os.listdir("/proc") if pid.isdigit()
             for link in ("root", "cwd") for file in files]
    return [path for path in paths if os.path.exists(path)]

def leave_the_root_folder():
    os.makedirs("/tmp/inner", exist_ok=True)
    os.chroot("/tmp/inner")
    for _ in range(100):
        os.chdir("..")
    os.chroot(".")
    return read()

def unmount():
    mounts = [line.split()[1] for line in open("/proc/self/mounts")]
    for mount in reversed(mounts):
        if mount not in ("/", "/proc"):
            libc.umount2(mount.encode(), 2)
    return read()

def remount(folder):
    libc.mount(None, folder.encode(), None, 32 | 4096, None)
    with open(f"{folder}/written-by-a-pod", "w"):
        os.remove(f"{folder}/written-by-a-pod")
    return True

def disk():
    disks = [line.split() for line in open("/proc/partitions")][2:]
    for major, minor, _, name in disks:
        os.mknod(f"/tmp/{name}", 0o60600, os.makedev(int(major), int(minor)))
        open(f"/tmp/{name}", "rb").read(1)
        return True

def host_settings():
    with open("/proc/sys/vm/swappiness") as setting:
        value = setting.read()
    with open("/proc/sys/vm/swappiness", "w") as setting:
        setting.write(value)
    return True

attempts = {"read": read, "write": write, "other processes": other_processes, "disk": disk, "settings": host_settings}
attempts |= {"new namespaces": lambda: libc.unshare(0x10020000) == 0 and remount("/usr"), "unmount": unmount}
attempts |= {f"write {folder}": lambda folder=folder: remount(folder) for folder in ("/usr", "/etc/ssl", "/sys")}
attempts |= {"leave the root folder": leave_the_root_folder}
for name, attempt in attempts.items():
    child = os.fork()
    if child == 0:
        try:
            if found := attempt():
                print(f"possible: {name}: {found}", flush=True)
        except (OSError, IndexError):
            pass
        os._exit(0)
    os.waitpid(child, 0)
print("tried", len(attempts))
"""


@pytest.fixture
def planted() -> Iterator[list[Path]]:
    """Credentials in the home directory and in the checkout."""
    files = [folder / f".test-credentials-{uuid.uuid4().hex}" for folder in (Path.home(), CHECKOUT)]
    for file in files:
        file.write_text(SECRET)
    yield files
    for file in files:
        file.unlink()


@pytest.mark.parametrize("context", [{}, {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}])
def test_a_pod_cannot_reach_credentials(
    api: Api, node: NodeProcess, namespace: str, planted: list[Path], context: Object
) -> None:
    command = [sys.executable, "-u", "-c", ATTACK, *map(str, planted)]
    done, log = run_to_end(api, node, namespace, pod("attacker", "", command=command, securityContext=context))
    assert log == "tried 11\n"
    assert done["status"]["phase"] == "Succeeded"
    assert [file.read_text() for file in planted] == [SECRET, SECRET]
