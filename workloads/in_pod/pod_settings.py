"""What the training Job tells its pods, read once and checked whole."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping


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
        return self.root / "output"

    @property
    def gang(self) -> Path:
        """Where the launchers leave word for each other."""
        return self.root / ".gang"


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

    root = Path(text("JOB_PATH")) / text("JOB_NAME")
    nics = [name for _, name in socket.if_nameindex()]
    if text("CONF_PADDLE_NIC") not in nics:
        raise LaunchError(f"CONF_PADDLE_NIC is {env['CONF_PADDLE_NIC']!r}, but this pod has only {', '.join(nics)}")
    return Settings(
        job=text("JOB_NAME"),
        namespace=text("JOB_NAMESPACE"),
        root=root,
        code=root / text("TRAIN_CONFIG_DIR"),
        trainers=number("CONF_PADDLE_GRADIENT_NUM", 1),
        threads=number("TRAINER_COUNT", 1),
        nic=text("CONF_PADDLE_NIC"),
        port=number("CONF_PADDLE_PORT", 1),
        ports=number("CONF_PADDLE_PORTS_NUM", 1),
        ports_sparse=number("CONF_PADDLE_PORTS_NUM_SPARSE"),
        pod_uid=text("POD_UID"),
        pod_ip=text("POD_IP"),
        index=number("JOB_COMPLETION_INDEX") if env.get("JOB_COMPLETION_INDEX") else None,
        passes=number("PASSES", 1),
        max_attempts=number("MAX_ATTEMPTS", 1),
        peer_timeout=number("PEER_TIMEOUT_SECONDS", 1),
        arguments=tuple(arguments),
    )
