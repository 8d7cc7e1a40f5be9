"""A stack's settings as the sandbox needs them, and the stack file that it gives the engine."""

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
    """What Pulumi.yaml and Pulumi.<name>.yaml say together."""

    name: str
    project: str
    defaults: Mapping[str, Any]
    config: Mapping[str, Any]

    def setting(self, path: str) -> Any:
        """A setting of the program by its dotted name, its default where the stack is silent."""
        value: Any = self.config
        for depth, part in enumerate(path.split(".")):
            value = value.get(part if depth else f"{self.project}:{part}") if isinstance(value, Mapping) else None
        return self.defaults[path] if value is None else value

    def usable(self, path: str, kind: type[T]) -> T:
        """A setting if it is of this kind, else its default: what is wrong with it, the program tells."""
        told, default = self.setting(path), self.defaults[path]
        assert isinstance(default, kind)
        return told if isinstance(told, kind) else default

    @property
    def region(self) -> str:
        return str(self.config.get("aws:region", ""))


def load(name: str) -> Stack:
    """Read a stack by name from the checkout."""
    project = yaml.safe_load((CHECKOUT / "Pulumi.yaml").read_text())
    file = CHECKOUT / f"Pulumi.{name}.yaml"
    try:
        config = yaml.safe_load(file.read_text()).get("config") or {}
    except FileNotFoundError:
        raise SandboxError(f"there is no {file.name} in {CHECKOUT}: name a stack that has a file") from None
    if not config.get("aws:region"):
        raise SandboxError(f"{file.name} names no aws:region: add one, such as `aws:region: us-west-2`")
    declared = project.get("config") or {}
    return Stack(name, project["name"], {key: entry.get("default") for key, entry in declared.items()}, config)


def write(stack: Stack, file: Path, endpoint: str, kubeconfig: Path, salt: Path) -> None:
    """The stack's own file with AWS, Kubernetes and the trainers' network on this machine in place of the real ones."""
    pserver = f"{stack.project}:pserver"
    given = stack.config.get(pserver) or {}
    ours = {
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
    written = {"config": {**stack.config, **ours}, **yaml.safe_load(salt.read_text())}
    file.write_text(yaml.safe_dump(written, sort_keys=False))
