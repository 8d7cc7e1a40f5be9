"""The settings of a training pod, read from its environment and checked."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

import contract
from contract import Env


class LaunchError(Exception):
    """An error that a person has to correct. It is printed as one line."""


@dataclass(frozen=True)
class TrainerSettings:
    """The environment of one training pod."""

    job: str
    job_uid: str
    namespace: str
    job_folder: Path
    code: Path
    trainers: int
    trainer: int
    nic: str
    port: int
    ports: int
    ports_sparse: int
    pod_uid: str
    pod_ip: str
    passes: int
    max_attempts: int
    peer_timeout: float
    stall_timeout: float
    arguments: tuple[str, ...]

    @property
    def output(self) -> Path:
        """The folder of the checkpoints and logs."""
        return self.job_folder / contract.OUTPUT


def log(message: str) -> None:
    """Print the message with the time."""
    # A file name in a checkpoint can have characters that the output cannot encode.
    line = contract.launcher_line(message).encode(sys.stdout.encoding, "backslashreplace")
    print(line.decode(sys.stdout.encoding), flush=True)


def read_settings(env: Mapping[str, str], arguments: list[str]) -> TrainerSettings:
    """The settings; a LaunchError names the first variable that is missing or wrong."""

    def text(name: str) -> str:
        if not env.get(name):
            raise LaunchError(f"{name} is not set: the training Job must set it")
        return env[name]

    def number(name: str, least: int = 0) -> int:
        if not text(name).isdigit() or int(env[name]) < least:
            raise LaunchError(f"{name} is {env[name]!r}: it must be a whole number of at least {least}")
        return int(env[name])

    job_folder = Path(text(Env.JOB_PATH)) / text(Env.JOB_NAME)
    nics = [name for _, name in socket.if_nameindex()]
    if text(Env.NIC) not in nics:
        raise LaunchError(f"{Env.NIC} is {env[Env.NIC]!r}, but the network interfaces here are {', '.join(nics)}")
    trainers, trainer = number(Env.TRAINERS, 1), number(Env.COMPLETION_INDEX)
    if trainer >= trainers:
        raise LaunchError(f"{Env.COMPLETION_INDEX} is {trainer}: it must be less than {Env.TRAINERS}, {trainers}")
    return TrainerSettings(
        job=text(Env.JOB_NAME),
        job_uid=text(Env.JOB_UID),
        namespace=text(Env.JOB_NAMESPACE),
        job_folder=job_folder,
        code=job_folder / text(Env.TRAIN_CONFIG_DIR),
        trainers=trainers,
        trainer=trainer,
        nic=text(Env.NIC),
        port=number(Env.PORT, 1),
        ports=number(Env.PORTS, 1),
        ports_sparse=number(Env.SPARSE_PORTS),
        pod_uid=text(Env.POD_UID),
        pod_ip=text(Env.POD_IP),
        passes=number(Env.PASSES, 1),
        max_attempts=number(Env.MAX_ATTEMPTS, 1),
        peer_timeout=number(Env.PEER_TIMEOUT_SECONDS, 1),
        stall_timeout=number(Env.STALL_SECONDS),
        arguments=tuple(arguments),
    )
