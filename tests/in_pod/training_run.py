"""Runs launchers as processes, each with a Pod in the test's API server, like a small kubelet and Job controller."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.in_pod.api import FakeApi, make_pod

TRAINER = Path(__file__).parents[2] / "workloads" / "in_pod"
STUB = Path(__file__).parent / "stub"
START = (
    "import sys, pathlib, kubernetes_api, launch;"
    " kubernetes_api.ACCOUNT = pathlib.Path(sys.argv.pop(1)); sys.exit(launch.main())"
)


@cache
def network() -> int:
    """A loopback network for the addresses of pods that no other test process uses, nor a sandbox (64 to 127)."""
    for number in range(128, 255):
        # The socket reserves the network until this process ends.
        reserved = socket.socket()
        try:
            reserved.bind((f"127.{number}.255.254", 1164))
        except OSError:
            reserved.close()
            continue
        _RESERVED.append(reserved)
        return number
    raise AssertionError("no loopback network is free")


_RESERVED: list[socket.socket] = []


@dataclass
class Trainer:
    """One pod: its object's name, its process, and what it prints."""

    pod: dict[str, Any]
    process: subprocess.Popen[bytes]
    printed: Path

    def text(self) -> str:
        return self.printed.read_text(errors="replace")


@dataclass
class TrainingRun:
    folder: Path
    api: FakeApi
    account: Path
    trainers: int
    job: str = "job"
    paddle: list[Path] = field(default_factory=lambda: [STUB])
    settings: dict[str, str] = field(default_factory=dict)
    pods: dict[int, Trainer] = field(default_factory=dict)
    all: list[Trainer] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "volume" / self.job

    def prepare(self, code: Path) -> None:
        """Do the work of the data Job: one small shard for each trainer, and the training code."""
        for number in range(self.trainers):
            shard = self.root / "data" / str(number)
            shard.mkdir(parents=True)
            (shard / f"shard-{number}.txt").write_text("1\tgood\n")
        (self.root / "quick_start").mkdir(parents=True)
        (self.root / "quick_start" / code.name).write_bytes(code.read_bytes())

    def address(self, index: int) -> str:
        return f"127.{network()}.{index + 1}.1"

    def environment(self, index: int, pod: dict[str, Any]) -> dict[str, str]:
        """What the training Job gives its containers."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, [TRAINER, *self.paddle])),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.api.port),
            "JOB_NAME": self.job,
            "JOB_PATH": str(self.folder / "volume"),
            "JOB_NAMESPACE": "default",
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_NIC": "lo",
            "CONF_PADDLE_PORT": "7164",
            "CONF_PADDLE_PORTS_NUM": "2",
            "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
            "CONF_PADDLE_GRADIENT_NUM": str(self.trainers),
            "TRAINER_COUNT": str(self.trainers),
            "POD_NAME": pod["metadata"]["name"],
            "POD_IP": self.address(index),
            "POD_UID": pod["metadata"]["uid"],
            "JOB_UID": pod["metadata"]["ownerReferences"][0]["uid"],
            "JOB_COMPLETION_INDEX": str(index),
            "STALL_SECONDS": "0",
            "PASSES": "3",
            "MAX_ATTEMPTS": "3",
            "PEER_TIMEOUT_SECONDS": "120",
            **self.settings,
        }

    def start(
        self,
        index: int,
        arguments: tuple[str, ...] = (),
        pod: dict[str, Any] | None = None,
        under: tuple[str, ...] = (),
    ) -> Trainer:
        """A pod that runs, and its launcher, if need be under another command."""
        pod = pod or make_pod(self.job, index, self.address(index))
        self.api.put(pod)
        return self.launch(index, pod, arguments, under)

    def launch(
        self, index: int, pod: dict[str, Any], arguments: tuple[str, ...] = (), under: tuple[str, ...] = ()
    ) -> Trainer:
        """The launcher of a pod that the API server has."""
        printed = self.folder / f"printed-{len(self.all)}"
        with printed.open("wb") as out:
            process = subprocess.Popen(
                [*under, sys.executable, "-c", START, str(self.account), *arguments],
                env=self.environment(index, pod),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        trainer = Trainer(pod, process, printed)
        self.pods[index] = trainer
        self.all.append(trainer)
        return trainer

    def set_phase(self, trainer: Trainer, phase: str) -> None:
        """Tell the API server how the pod is."""
        if trainer.pod["metadata"]["name"] in self.api.objects:
            trainer.pod["status"]["phase"] = phase
            self.api.put(trainer.pod)

    def tick(self, replace: bool) -> None:
        """What a kubelet and a Job controller do next: note ended containers, and replace failed pods."""
        for index, trainer in list(self.pods.items()):
            status = trainer.process.poll()
            if status is None or trainer.pod["status"]["phase"] != "Running":
                continue
            end_container(trainer)
            self.set_phase(trainer, "Failed" if status else "Succeeded")
            if status and replace:
                self.start(index)

    def wait(self, until: Callable[[], bool], seconds: float = 300, replace: bool = True) -> None:
        """Until the condition holds, or the test fails with what everyone printed."""
        deadline = time.monotonic() + seconds
        while not until():
            self.tick(replace)
            assert time.monotonic() < deadline, "\n".join(f"--- {t.printed.name}\n{t.text()}" for t in self.all)
            time.sleep(0.02)
        self.tick(replace)

    def ended(self) -> bool:
        return all(trainer.process.poll() is not None for trainer in self.pods.values())

    def statuses(self) -> list[int]:
        return [self.pods[index].process.wait() for index in sorted(self.pods)]

    def passes(self) -> list[str]:
        return sorted(path.name for path in (self.root / "output").glob("pass-*"))

    def close(self) -> None:
        for trainer in self.all:
            end_container(trainer)
            trainer.process.wait()


def end_container(trainer: Trainer) -> None:
    """SIGKILL to whatever the pod still runs, as when a container ends."""
    mark = f"POD_UID={trainer.pod['metadata']['uid']}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
