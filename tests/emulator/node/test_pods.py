"""Pods run as processes of this machine, with a real API server."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import build
from sandbox.cluster.control_plane import ControlPlane, WorkerNode
from sandbox.processes import free_ports
from tests.emulator.cluster_helpers import NodeProcess, eventually
from tests.emulator.node.pods import create, pid, pod, run_to_end, started, terminated, wait_for_phase, waiting_message
from tools.kubernetes_client import (
    CONFIG_MAP,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    Api,
    Object,
)

SLEEP = "trap 'echo stopping; exit 0' TERM; echo up; while :; do sleep 0.05; done"
# A command line that no other process of this machine has.
SLEEP_OF_THIS_RUN = f"sleep {random.randrange(10**6, 10**9)}"


def processes_with(text: str) -> list[int]:
    """The processes that have this text in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# The environment of a container.


def test_the_command_and_the_variables_are_resolved(api: Api, node: NodeProcess, namespace: str, network: int) -> None:
    manifest = pod("vars", "")
    main = manifest["spec"]["containers"][0]
    show = 'printf "%s\n" "$0" "$@" "$NAME" "$LABEL" "$IP" "$EMPTY-"; pwd; hostname -i'
    main["command"] = ["sh", "-c", show, "$(GREETING)", "$(NAME)!", "$$(NAME)", "$(NOBODY)"]
    fields = {"NAME": "metadata.name", "IP": "status.podIP", "LABEL": "metadata.labels['a/b']"}
    main["env"] = [{"name": k, "valueFrom": {"fieldRef": {"fieldPath": path}}} for k, path in fields.items()]
    main["env"] += [{"name": "GREETING", "value": "hello $(NAME)"}, {"name": "EMPTY", "value": ""}]
    manifest["metadata"]["labels"] = {"a/b": "c"}
    done, log = run_to_end(api, node, namespace, manifest)
    address = done["status"]["podIP"]
    assert address.startswith(f"127.{network}.{done['spec']['nodeName'].removeprefix('node-')}.")
    values = ["hello vars", "vars!", "$(NAME)", "$(NOBODY)", "vars", "c", address, "-", "/", address]
    assert log.splitlines() == values


def test_a_container_gets_no_variable_of_the_machine(api: Api, node: NodeProcess, namespace: str) -> None:
    _, log = run_to_end(api, node, namespace, pod("env", "env; command -v python3"))
    *variables, python = log.splitlines()
    names = {line.partition("=")[0] for line in variables}
    expected = {"HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHLVL", "_"}
    assert {name for name in names if not name.startswith("KUBERNETES_")} <= expected
    assert python == str(Path(sys.executable).parent.resolve() / "python3")
    assert "HOME=/root" in variables


def test_a_container_is_root_with_the_capabilities_of_its_security_context(
    api: Api, node: NodeProcess, namespace: str
) -> None:
    script = "id -u; grep -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/self/status"
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    _, log = run_to_end(api, node, namespace, pod("confined", script, securityContext=confined))
    assert log.split() == ["0", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    _, log = run_to_end(api, node, namespace, pod("free", f"{script}; mount -t tmpfs none /tmp && echo mounted"))
    assert log.splitlines()[-2:] == ["NoNewPrivs:\t0", "mounted"]


def test_a_read_only_root_leaves_only_volumes_writable(api: Api, node: NodeProcess, namespace: str) -> None:
    script = "for file in /new /tmp/new /root/new /scratch/new; do touch $file && echo $file; done 2>/dev/null; true"
    for readonly, writable in ((False, ["/new", "/tmp/new", "/root/new", "/scratch/new"]), (True, ["/scratch/new"])):
        manifest = pod(
            f"readonly-{readonly}".lower(),
            script,
            securityContext={"readOnlyRootFilesystem": readonly},
            volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        )
        manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        _, log = run_to_end(api, node, namespace, manifest)
        assert log.split() == writable


def test_volumes_are_mounted_at_their_paths(api: Api, node: NodeProcess, namespace: str) -> None:
    data = {"data": {"run.sh": "echo from the map", "deep.txt": "deep"}}
    api.request("POST", CONFIG_MAP.path(namespace), {"metadata": {"name": "scripts"}} | data)
    items = [{"key": "run.sh", "path": "run.sh"}, {"key": "deep.txt", "path": "sub/deep.txt"}]
    manifest = pod(
        "volumes",
        "sh /paddle-job/run.sh; cat /paddle-job/sub/deep.txt; echo; cat /home/shared/from-init; "
        "touch /paddle-job/new 2>/dev/null || echo read-only; echo mine > /home/shared/mine; "
        "cut -d. -f2 /run/aws/token | base64 -d 2>/dev/null",
        volumeMounts=[
            {"name": "scripts", "mountPath": "/paddle-job"},
            {"name": "shared", "mountPath": "/home/shared"},
            {"name": "aws", "mountPath": "/run/aws"},
        ],
    )
    token = {"audience": "sts.amazonaws.com", "expirationSeconds": 3600, "path": "token"}
    manifest["spec"]["volumes"] = [
        {"name": "scripts", "configMap": {"name": "scripts", "items": items}},
        {"name": "shared", "emptyDir": {}},
        {"name": "aws", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    first: Object = {"name": "first", "image": "busybox", "command": ["sh", "-c", "echo from init > /other/from-init"]}
    first["volumeMounts"] = [{"name": "shared", "mountPath": "/other"}]
    manifest["spec"]["initContainers"] = [first]
    *lines, claims = run_to_end(api, node, namespace, manifest)[1].splitlines()
    assert lines == ["from the map", "deep", "from init", "read-only"]
    assert '"aud":["sts.amazonaws.com"]' in claims
    for folder in ("/paddle-job", "/home/shared", "/run/aws", "/other"):
        assert not Path(folder).exists()


def test_a_volume_above_the_tools_does_not_hide_them(api: Api, node: NodeProcess, namespace: str) -> None:
    tools = Path(sys.prefix).resolve()
    mounts = [{"name": "above", "mountPath": str(tools.parent)}]
    manifest = pod("above", "python3 -c 'import yaml; print(yaml.__file__)'", volumeMounts=mounts)
    manifest["spec"]["volumes"] = [{"name": "above", "emptyDir": {}}]
    _, log = run_to_end(api, node, namespace, manifest)
    assert log.startswith(f"{tools}/")


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ({"nfs": {"server": "fs-0abc.efs.us-west-2.amazonaws.com", "path": "/"}}, "fs-0abc"),
        ({"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-0def::fsap-0123"}}, "fs-0def/fsap-0123"),
    ],
    ids=["nfs", "csi"],
)
def test_a_pod_waits_for_its_persistent_volume_and_writes_into_the_shared_file_system(
    api: Api, node: NodeProcess, namespace: str, source: Object, folder: str
) -> None:
    access: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {**access, **source, "capacity": {"storage": "1Gi"}}
    api.request("POST", PERSISTENT_VOLUME.path(), {"metadata": {"name": namespace}, "spec": spec})
    manifest = pod("writer", "echo written > /efs/file", volumeMounts=[{"name": "efs", "mountPath": "/efs"}])
    manifest["spec"]["volumes"] = [{"name": "efs", "persistentVolumeClaim": {"claimName": "efs"}}]
    create(api, namespace, manifest)
    wanted = {**access, "volumeName": namespace, "resources": {"requests": {"storage": "1Gi"}}}
    api.request("POST", PERSISTENT_VOLUME_CLAIM.path(namespace), {"metadata": {"name": "efs"}, "spec": wanted})
    wait_for_phase(api, namespace, "writer", "Succeeded")
    assert (node.root / "volumes" / folder / "file").read_text() == "written\n"
    api.request("DELETE", PERSISTENT_VOLUME.path("", namespace))


# Start and end.


def test_init_containers_run_in_order_and_a_failed_one_fails_the_pod(
    api: Api, node: NodeProcess, namespace: str
) -> None:
    mount: Object = {"volumeMounts": [{"name": "w", "mountPath": "/w"}]}
    manifest = pod("order", "cat /w/log", **mount)
    manifest["spec"]["volumes"] = [{"name": "w", "emptyDir": {}}]
    manifest["spec"]["initContainers"] = [
        {"name": name, "image": "x", "command": ["sh", "-c", f"{wait}; echo {name} >> /w/log"], **mount}
        for name, wait in (("one", "sleep 0.3"), ("two", "true"))
    ]
    assert run_to_end(api, node, namespace, manifest)[1] == "one\ntwo\n"
    manifest["metadata"]["name"] = "broken"
    manifest["spec"]["initContainers"][0]["command"] = ["sh", "-c", "exit 4"]
    create(api, namespace, manifest)
    status = wait_for_phase(api, namespace, "broken", "Failed")["status"]
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert "waiting" in status["containerStatuses"][0]["state"]


@pytest.mark.parametrize(
    ("command", "policy", "code", "reason", "message"),
    [
        (["true"], "File", 0, "Completed", ""),
        (["sh", "-c", "echo last words; exit 7"], "File", 7, "Error", ""),
        (["sh", "-c", "echo last words; exit 7"], "FallbackToLogsOnError", 7, "Error", "last words"),
        (["no-such-command"], "File", 128, "StartError", "no-such-command"),
    ],
)
def test_the_status_has_exit_code_reason_and_message(
    api: Api, node: NodeProcess, namespace: str, command: list[str], policy: str, code: int, reason: str, message: str
) -> None:
    create(api, namespace, pod("end", "", command=command, terminationMessagePolicy=policy))
    wait_for_phase(api, namespace, "end", "Failed" if code else "Succeeded")
    state = terminated(api, namespace, "end")
    assert (state["exitCode"], state["reason"]) == (code, reason)
    assert message in state.get("message", "")
    assert bool(state.get("message")) is bool(message)


UNSUPPORTED: dict[str, tuple[Object, Object, str]] = {
    "path": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {}, "volume v: hostPath is not supported"),
    "down": ({"volumes": [{"name": "v", "downwardAPI": {}}]}, {}, "volume v: downwardAPI is not supported"),
    "network": ({"hostNetwork": True}, {}, "pod: hostNetwork is not supported"),
    "aliases": ({"hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a"]}]}, {}, "pod: hostAliases is not supported"),
    "again": ({"restartPolicy": "OnFailure"}, {}, "pod: restartPolicy OnFailure is not supported"),
    "group": ({"securityContext": {"fsGroup": 1}}, {}, "pod: securityContext: fsGroup is not supported"),
    "hook": ({}, {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, "container main: lifecycle is not supported"),
    "all": ({}, {"envFrom": [{"secretRef": {"name": "a"}}]}, "container main: envFrom is not supported"),
    "user": ({}, {"securityContext": {"runAsUser": 65534}}, "securityContext: runAsUser is not supported"),
    "adds": ({}, {"securityContext": {"capabilities": {"add": ["CHOWN"]}}}, "capabilities other than drop: [ALL]"),
    "entry": ({}, {"command": []}, "set `command`"),
    "part": (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}]},
        "volumeMount v: subPath is not supported",
    ),
}


def test_a_pod_that_needs_an_unsupported_feature_waits_and_names_it(
    api: Api, node: NodeProcess, namespace: str
) -> None:
    for name, (spec, container, _) in UNSUPPORTED.items():
        manifest = pod(name, "true", **container)
        manifest["spec"] |= spec
        create(api, namespace, manifest)
    for name, (_, _, message) in UNSUPPORTED.items():
        eventually(lambda name=name, message=message: message in waiting_message(api, namespace, name))  # type: ignore[misc]


def test_a_pod_waits_for_a_missing_secret(api: Api, node: NodeProcess, namespace: str) -> None:
    manifest = pod("patient", "echo $A")
    source = {"secretKeyRef": {"name": "late", "key": "a"}}
    manifest["spec"]["containers"][0]["env"] = [{"name": "A", "valueFrom": source}]
    create(api, namespace, manifest)
    eventually(lambda: "Secret late does not exist" in waiting_message(api, namespace, "patient"))
    api.request("POST", SECRET.path(namespace), {"metadata": {"name": "late"}, "stringData": {"a": "here"}})
    assert node.log(wait_for_phase(api, namespace, "patient", "Succeeded"), "main") == "here\n"


def test_deleting_a_pod_sends_sigterm_and_then_sigkill(api: Api, node: NodeProcess, namespace: str) -> None:
    polite = started(api, node, namespace, pod("polite", SLEEP))
    deaf = pod("deaf", "trap '' TERM; echo up; sleep 60")
    deaf["spec"]["terminationGracePeriodSeconds"] = 1
    stubborn = started(api, node, namespace, deaf)
    for name in ("polite", "deaf"):
        api.request("DELETE", POD.path(namespace, name))
    for each in (polite, stubborn):
        eventually(lambda each=each: api.find(POD, namespace, each["metadata"]["name"]) is None)  # type: ignore[misc]
        assert not is_alive(pid(each))
    assert node.log(polite, "main") == "up\nstopping\n"


def test_killing_the_process_fails_the_pod_and_kills_its_children(api: Api, node: NodeProcess, namespace: str) -> None:
    running = started(api, node, namespace, pod("victim", f"{SLEEP_OF_THIS_RUN} & echo up; wait"))
    os.kill(pid(running), signal.SIGKILL)
    assert wait_for_phase(api, namespace, "victim", "Succeeded", "Failed")["status"]["phase"] == "Failed"
    state = terminated(api, namespace, "victim")
    assert (state["exitCode"], state["signal"]) == (137, 9)
    assert processes_with(SLEEP_OF_THIS_RUN) == []


SERVERS = """
import socket, subprocess, sys
port, other_port = int(sys.argv[1]), int(sys.argv[2])
v4, v6, stream, datagram = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
def bound(family, kind, *address, only=0):
    server = socket.socket(family, kind)
    if family == v6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    if address:
        server.bind(address)
    if kind == stream:
        server.listen()
    held.append(server)
    return server.getsockname()[0]
held = []
print(bound(v4, stream, "", port), bound(v6, stream, "::", other_port))
print(bound(v6, stream, "::", 0, only=1), bound(v4, stream))
print(bound(v4, datagram, "", port), bound(v4, datagram, "", 0), bound(v4, stream, "127.0.0.1", 0))
print(subprocess.run([sys.executable, "-c", f"import socket; socket.socket().bind(('', {port}))"], capture_output=True)
    .stderr.decode().splitlines()[-1])
print("up")
while True:
    held[0].accept()[0].send(b"here")
"""


def test_a_server_on_all_addresses_gets_only_the_pods_address(api: Api, node: NodeProcess, namespace: str) -> None:
    port, other_port = free_ports(2)
    logs = {}
    for name in ("one", "two"):
        # Both pods use the same port.
        script = [sys.executable, "-u", "-c", SERVERS, str(port), str(other_port)]
        running = started(api, node, namespace, pod(name, "", command=script))
        logs[running["status"]["podIP"]] = node.log(running, "main").splitlines()[:4]
    assert len(logs) == 2
    for address, lines in logs.items():
        assert lines == [
            f"{address} ::ffff:{address}",
            f"::1 {address}",
            # UDP clients and servers with an explicit address stay as they are.
            f"{address} 0.0.0.0 127.0.0.1",
            "OSError: [Errno 98] Address already in use",
        ]
        with socket.create_connection((address, port), 5) as client:
            assert client.recv(10) == b"here"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_a_new_node_runs_pods_that_are_already_bound_to_it(
    api: Api, node: NodeProcess, namespace: str, network: int
) -> None:
    manifest = pod("early", "echo here")
    manifest["spec"]["nodeName"] = "node-9"
    create(api, namespace, manifest)
    api.request("POST", NODE.path(), WorkerNode(9, "us-west-2a", "c5.xlarge", network).manifest())
    try:
        done = wait_for_phase(api, namespace, "early", "Succeeded")
        assert done["status"]["podIP"] == f"127.{network}.9.1"
    finally:
        api.request("DELETE", NODE.path("", "node-9"))


def test_kubectl_logs(cluster: ControlPlane, api: Api, node: NodeProcess, namespace: str) -> None:
    started(api, node, namespace, pod("talker", "echo up; echo two; sleep 60"))
    command = [str(build.control_plane() / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "logs"]

    def output(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=20, check=False)
        return done.stdout or done.stderr

    assert output("talker") == "up\ntwo\n"
    assert output("talker", "--tail=1") == "two\n"
    follower = subprocess.Popen([*command, "-f", "talker"], stdout=subprocess.PIPE, text=True)
    assert follower.stdout
    assert follower.stdout.readline() == "up\n"
    api.request("DELETE", POD.path(namespace, "talker"), {"gracePeriodSeconds": 0})
    assert follower.stdout.read() == "two\n"
    assert follower.wait(20) == 0


# Stop and start of the node process.


def test_a_node_process_that_was_killed_finds_its_containers_again(api: Api, node: NodeProcess, namespace: str) -> None:
    pods = {}
    for name in ("kept", "short", "gone"):
        mounts = [{"name": "w", "mountPath": "/w"}]
        manifest = pod(name, "echo up; until test -e /w/go; do sleep 0.05; done; exit 5", volumeMounts=mounts)
        manifest["spec"]["volumes"] = [{"name": "w", "emptyDir": {}}]
        pods[name] = started(api, node, namespace, manifest)
    go = {name: node.root / "pods" / each["metadata"]["uid"] / "volumes/w/go" for name, each in pods.items()}
    node.end(kill=True)
    api.request("DELETE", POD.path(namespace, "gone"), {"gracePeriodSeconds": 0})
    go["short"].touch()
    eventually(lambda: not is_alive(pid(pods["short"])))
    assert is_alive(pid(pods["kept"]))
    assert is_alive(pid(pods["gone"]))
    node.start()
    wait_for_phase(api, namespace, "short", "Failed")
    assert terminated(api, namespace, "short")["exitCode"] == 5
    eventually(lambda: not is_alive(pid(pods["gone"])))
    kept = api.get(POD, namespace, "kept")
    assert (pid(kept), kept["status"]["podIP"]) == (pid(pods["kept"]), pods["kept"]["status"]["podIP"])
    go["kept"].touch()
    wait_for_phase(api, namespace, "kept", "Failed")
    assert terminated(api, namespace, "kept")["exitCode"] == 5


def test_a_stopped_node_process_leaves_no_process_and_no_mount(api: Api, node: NodeProcess, namespace: str) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    polite = started(api, node, namespace, pod("polite", SLEEP))
    started(api, node, namespace, pod("deaf", f"echo up; {SLEEP_OF_THIS_RUN} & wait"))
    assert Path("/proc/self/mounts").read_text() == mounts
    node.end()
    assert processes_with(SLEEP_OF_THIS_RUN) == []
    assert processes_with(str(node.root)) == []
    assert node.log(polite, "main") == "up\nstopping\n"
    assert Path("/proc/self/mounts").read_text() == mounts
    node.start()
    wait_for_phase(api, namespace, "deaf", "Failed")


CHECK = [sys.executable, "-m", "sandbox.node", "--check"]
NO_MOUNT_NAMESPACE = ["sh", "-c", f"echo 0 > /proc/sys/user/max_mnt_namespaces && exec {shlex.join(CHECK)}"]
# A process can have only one filter that asks another process.
FILTER_INSTALLED = f"""
import os
from sandbox.node import bind_filter
os.set_inheritable(bind_filter.install(), True)
os.execv({CHECK[0]!r}, {CHECK!r})
"""


def test_pods_can_run_here() -> None:
    assert subprocess.run(CHECK, check=False).returncode == 0


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (NO_MOUNT_NAMESPACE, ": unshare: "),
        ([sys.executable, "-c", FILTER_INSTALLED], ": seccomp: Device or resource busy)"),
    ],
    ids=["no mount namespace", "no seccomp"],
)
def test_the_check_gives_the_reason_why_pods_cannot_run(command: list[str], reason: str) -> None:
    done = subprocess.run(["unshare", "-Ur", *command], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "this machine does not isolate them" in done.stderr
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
