"""What the training Job tells its pods, read once and checked whole."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

import contract
from contract import Env


class LaunchError(Exception):
    """What a person has to put right; printed as one line."""


@dataclass(frozen=True)
class Settings:
    """The training pod's environment."""

    job: str
    namespace: str
    root: Path
    code: Path
    trainers: int
    threads: int
    nic: str
    port: int
    ports: int
    ports_sparse: int
    pod_uid: str
    pod_ip: str
    index: int | None
    passes: int
    max_attempts: int
    peer_timeout: float
    arguments: tuple[str, ...]

    @property
    def output(self) -> Path:
        """Where passes and logs go."""
        return self.root / contract.OUTPUT

    @property
    def launchers(self) -> Path:
        """Where the launchers leave word for each other."""
        return self.root / contract.LAUNCHERS


def say(message: str) -> None:
    """Print at once, with the time."""
    print(f"{time.strftime('%H:%M:%S')} launch: {message}", flush=True)


def read_settings(env: Mapping[str, str], arguments: list[str]) -> Settings:
    """The settings, or a LaunchError that names the variable."""

    def text(name: str) -> str:
        if not env.get(name):
            raise LaunchError(f"{name} is not set: the training Job must give it")
        return env[name]

    def number(name: str, least: int = 0) -> int:
        if not text(name).isdigit() or int(env[name]) < least:
            raise LaunchError(f"{name} is {env[name]!r}: it must be a whole number of at least {least}")
        return int(env[name])

    root = Path(text(Env.JOB_PATH)) / text(Env.JOB_NAME)
    nics = [name for _, name in socket.if_nameindex()]
    if text(Env.NIC) not in nics:
        raise LaunchError(f"{Env.NIC} is {env[Env.NIC]!r}, but this pod has only {', '.join(nics)}")
    return Settings(
        job=text(Env.JOB_NAME),
        namespace=text(Env.JOB_NAMESPACE),
        root=root,
        code=root / text(Env.TRAIN_CONFIG_DIR),
        trainers=number(Env.TRAINERS, 1),
        threads=number(Env.TRAINER_COUNT, 1),
        nic=text(Env.NIC),
        port=number(Env.PORT, 1),
        ports=number(Env.PORTS, 1),
        ports_sparse=number(Env.SPARSE_PORTS),
        pod_uid=text(Env.POD_UID),
        pod_ip=text(Env.POD_IP),
        index=number(Env.COMPLETION_INDEX) if env.get(Env.COMPLETION_INDEX) else None,
        passes=number(Env.PASSES, 1),
        max_attempts=number(Env.MAX_ATTEMPTS, 1),
        peer_timeout=number(Env.PEER_TIMEOUT_SECONDS, 1),
        arguments=tuple(arguments),
    )
