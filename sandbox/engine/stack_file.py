"""Reads a stack's settings and writes the stack file that the sandbox gives to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sandbox.cloud.services import SERVICES
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT

T = TypeVar("T")


@dataclass(frozen=True)
class Stack:
    """The settings of a stack: Pulumi.<name>.yaml with the defaults of Pulumi.yaml."""

    name: str
    project: str
    defaults: Mapping[str, Any]
    config: Mapping[str, Any]

    def setting(self, path: str) -> Any:
        """A setting by its dotted name, or its default."""
        value: Any = self.config
        for depth, part in enumerate(path.split(".")):
            value = value.get(part if depth else f"{self.project}:{part}") if isinstance(value, Mapping) else None
        return self.defaults[path] if value is None else value

    def setting_or_default(self, path: str, kind: type[T]) -> T:
        """A setting if it has this type, otherwise its default. The program itself reports the wrong type."""
        value, default = self.setting(path), self.defaults[path]
        assert isinstance(default, kind)
        return value if isinstance(value, kind) else default

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
    declared = project.get("config") or {}
    return Stack(name, project["name"], {key: entry.get("default") for key, entry in declared.items()}, config)


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
        "aws:endpoints": json.dumps([dict.fromkeys(SERVICES, endpoint)]),
        f"{stack.project}:kubeconfig": str(kubeconfig),
        pserver: {**given, "nic": "lo"} if isinstance(given, Mapping) else given,
    }
    written = {"config": {**stack.config, **replaced}, **yaml.safe_load(salt.read_text())}
    file.write_text(yaml.safe_dump(written, sort_keys=False))
