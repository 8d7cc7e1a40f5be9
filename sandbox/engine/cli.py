"""The Pulumi engine with a home, a state and plugins of its own: nothing of the person's Pulumi is read or touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import processes
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT

# The engine's commands that take a stack file.
CONFIGURED = ("up", "preview", "refresh", "destroy", "config", "import")
SECONDS_BETWEEN_LOOKS = 2.0


@dataclass(frozen=True)
class Engine:
    """One stack of one checkout. `path` is what is searched for the engine, its language host and its plugins."""

    folder: Path
    path: Sequence[Path]
    stack: str
    config: Path

    @property
    def environment(self) -> dict[str, str]:
        home = self.folder / "home"
        return processes.isolated_environment(os.environ) | {
            "HOME": str(home),
            "PATH": os.pathsep.join([*map(str, self.path), os.environ.get("PATH", os.defpath)]),
            "PULUMI_HOME": str(home / ".pulumi"),
            "PULUMI_BACKEND_URL": f"file://{self.state}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def salt(self) -> Path:
        """What the engine wants to find in the stack file to read its own secrets again."""
        return self.config.with_name("salt.yaml")

    def select(self) -> None:
        """Make the stack if it is not there."""
        self.state.mkdir(parents=True, exist_ok=True)
        (self.folder / "home").mkdir(exist_ok=True)
        if self._checkpoint().exists():
            return
        # `stack init` writes a stack file beside Pulumi.yaml, which is the person's; so it runs beside a copy.
        beside = self.folder / "init"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        shutil.copy(CHECKOUT / "Pulumi.yaml", beside)
        self.ask("stack", "init", self.stack, "--no-select", "--secrets-provider", "passphrase", folder=beside)
        self.salt.parent.mkdir(parents=True, exist_ok=True)
        (beside / f"Pulumi.{self.stack}.yaml").replace(self.salt)

    def ask(self, *arguments: str, folder: Path = CHECKOUT) -> str:
        """Run a command of the engine for its output."""
        done = subprocess.run(
            self._command(*arguments), cwd=folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SandboxError(f"`pulumi {' '.join(arguments)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def show(self, *arguments: str, meanwhile: Callable[[], None]) -> int:
        """Run a command of the engine before the person's eyes; Ctrl-C lets it finish what it does, then counts."""
        started = processes.start_attached(
            self.folder / "run", "engine", self._command(*arguments), CHECKOUT, self.environment
        )
        interrupted = False
        while started.returncode is None:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(timeout=SECONDS_BETWEEN_LOOKS)
                meanwhile()
            except KeyboardInterrupt:
                interrupted = True
                print("        stopping when what is under way is done; Ctrl-C again ends it at once", file=sys.stderr)
                started.send_signal(signal.SIGINT)
        if interrupted and started.returncode:
            raise KeyboardInterrupt
        return started.returncode

    def heal(self) -> None:
        """End an engine that an earlier, killed command left behind, and remove the lock it held."""
        processes.stop(self.folder / "run", "engine")
        for lock in self.state.glob(f".pulumi/locks/**/{self.stack}/*.json"):
            lock.unlink()

    def checkpoint(self) -> Mapping[str, Any]:
        """The stack's last recorded state; empty when there is none."""
        try:
            deployment: Mapping[str, Any] = json.loads(self._checkpoint().read_text())["checkpoint"]["latest"] or {}
        except FileNotFoundError:
            return {}
        return deployment

    def resources(self) -> int:
        return sum(bool(entry.get("custom")) for entry in self.checkpoint().get("resources") or [])

    def unfinished(self) -> list[Mapping[str, Any]]:
        """The resources whose making was under way when an engine was killed, as far as it had recorded them."""
        pending = self.checkpoint().get("pending_operations") or []
        return [operation["resource"] for operation in pending if operation["type"] == "creating"]

    def last_changes(self) -> dict[str, int]:
        """What the last update did, by kind of step."""
        history = json.loads(self.ask("stack", "history", "--json", "--page-size", "1"))
        changes: dict[str, int] = history[0].get("resourceChanges") or {}
        return changes

    def outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = json.loads(self.ask("stack", "output", "--json"))
        return outputs

    def _command(self, *arguments: str) -> list[str]:
        named = [] if arguments[:2] == ("stack", "init") else ["--stack", self.stack]
        configured = ["--config-file", str(self.config)] if arguments[0] in CONFIGURED else []
        return ["pulumi", *arguments, *named, *configured]

    def _checkpoint(self) -> Path:
        return next(iter(self.state.glob(f".pulumi/stacks/*/{self.stack}.json")), self.state / f"no stack {self.stack}")
