"""Reads a stack's settings and writes the stack file that the sandbox gives to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox.cloud.services import EMULATED_SERVICES
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT
from settings.schema import Settings, read


@dataclass(frozen=True)
class Stack:
    """A stack of the checkout with the contents of its file."""

    name: str
    project: str
    config: Mapping[str, Any]

    @property
    def settings(self) -> Settings:
        """The settings of the program, with the default for each invalid one. The program itself reports those."""
        prefix = f"{self.project}:"
        given = {key.removeprefix(prefix): value for key, value in self.config.items() if key.startswith(prefix)}
        return read(given)[0]

    @property
    def file(self) -> Path:
        return CHECKOUT / f"Pulumi.{self.name}.yaml"

    @property
    def region(self) -> str:
        return str(self.config.get("aws:region", ""))


def load(name: str) -> Stack:
    """Read a stack of the checkout."""
    project = yaml.safe_load((CHECKOUT / "Pulumi.yaml").read_text())
    file = CHECKOUT / f"Pulumi.{name}.yaml"
    try:
        config = yaml.safe_load(file.read_text()).get("config") or {}
    except FileNotFoundError:
        raise SandboxError(f"--stack {name}: {file} does not exist. Use the name of a stack that has a file.") from None
    if not config.get("aws:region"):
        raise SandboxError(f"{file.name}: aws:region is missing. Add it, for example `aws:region: us-west-2`.")
    return Stack(name, project["name"], config)


def write_for_engine(stack: Stack, file: Path, endpoint: str, kubeconfig: Path, salt: Path) -> None:
    """Write the stack's settings with the addresses of the emulated AWS and Kubernetes."""
    pserver = f"{stack.project}:pserver"
    given = stack.config.get(pserver) or {}
    replaced = {
        "aws:accessKey": "sandbox",
        "aws:secretKey": "sandbox",
        "aws:skipCredentialsValidation": True,
        "aws:skipMetadataApiCheck": True,
        "aws:skipRequestingAccountId": True,
        "aws:s3UsePathStyle": True,
        "aws:endpoints": json.dumps([dict.fromkeys(EMULATED_SERVICES, endpoint)]),
        f"{stack.project}:kubeconfig": str(kubeconfig),
        pserver: {**given, "nic": "lo"} if isinstance(given, Mapping) else given,
    }
    config = {key: value for key, value in stack.config.items() if key != f"{pserver}.nic"}
    written = {"config": {**config, **replaced}, **yaml.safe_load(salt.read_text())}
    file.write_text(yaml.safe_dump(written, sort_keys=False))
