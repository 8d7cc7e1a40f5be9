"""Runs the `pulumi` command with its own home, state and plugins. The user's own Pulumi is not read or changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import build, processes
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT, FOLDER
from tools import pulumi_state
from tools.pulumi_state import Deployment

# The commands that accept --config-file.
COMMANDS_WITH_CONFIG = ("up", "preview", "refresh", "destroy", "import")
SECONDS_BETWEEN_CHECKS = 2.0


def in_sandbox(stack: str) -> bool:
    """Whether the stack was started in the sandbox of this checkout."""
    return (FOLDER / "stacks" / stack).is_dir()


def environment(folder: Path = FOLDER) -> dict[str, str]:
    """The environment in which `pulumi` finds the stacks of a sandbox. Builds nothing."""
    engine = build.own_engine()
    return processes.isolated_environment(os.environ) | {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join([*([str(engine)] if engine else []), os.environ.get("PATH", os.defpath)]),
        "PULUMI_HOME": str(folder / "home/.pulumi"),
        "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # The engine writes a log of 3 MB for each command. Its default limit is 500 MB.
        "PULUMI_LOG_ROTATION_MAX_TOTAL_MB": "30",
    }


@dataclass(frozen=True)
class PulumiCli:
    """The `pulumi` command for one stack.

    `config` is the stack file of the sandbox, a copy of the user's `stack_file` with other addresses. `pulumi config`
    works on the user's file.
    """

    folder: Path
    stack: str
    config: Path
    stack_file: Path

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def salt(self) -> Path:
        """The stack's encryption salt. The engine needs it in the stack file to decrypt its secrets."""
        return self.config.with_name("salt.yaml")

    def create_stack(self) -> None:
        """Create the stack if it does not exist."""
        self.state.mkdir(parents=True, exist_ok=True)
        if self._state_file().exists():
            return
        # `stack init` writes a stack file next to Pulumi.yaml. Use a copy, to keep the user's file unchanged.
        copy = self.folder / "init"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        shutil.copy(CHECKOUT / "Pulumi.yaml", copy)
        self.output_of("stack", "init", self.stack, "--no-select", "--secrets-provider", "passphrase", folder=copy)
        self.salt.parent.mkdir(parents=True, exist_ok=True)
        (copy / f"Pulumi.{self.stack}.yaml").replace(self.salt)

    def output_of(self, *arguments: str, folder: Path = CHECKOUT) -> str:
        """Run a command and return its standard output."""
        done = subprocess.run(
            self._command(*arguments), cwd=folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SandboxError(f"`pulumi {' '.join(arguments)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def run(self, *arguments: str, every_check: Callable[[], None]) -> int:
        """Run a command in the user's terminal and return its exit code. Ctrl-C lets running operations finish."""
        started = processes.start_attached(
            self.folder / "run", "engine", self._command(*arguments), CHECKOUT, self.environment
        )
        interrupted = False
        while started.returncode is None:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(timeout=SECONDS_BETWEEN_CHECKS)
                every_check()
            except KeyboardInterrupt:
                interrupted = True
                print(
                    "        stopping after the operations that are running now; press Ctrl-C again to stop at once",
                    file=sys.stderr,
                )
                started.send_signal(signal.SIGINT)
        if interrupted and started.returncode:
            raise KeyboardInterrupt
        return started.returncode

    def clean_up_after_kill(self) -> None:
        """Stop an engine that survived a killed command, and remove its lock and incomplete files."""
        processes.stop(self.folder / "run", "engine")
        for lock in self.state.glob(f".pulumi/locks/**/{self.stack}/*.json"):
            lock.unlink()
        # The engine does not replace these files as a whole. It cannot read the state if one is incomplete.
        for attributes in self.state.glob(".pulumi/**/*.attrs"):
            try:
                json.loads(attributes.read_text())
            except ValueError:
                attributes.unlink()

    def deployment(self) -> Deployment:
        """The stack's recorded state. Empty if there is none."""
        try:
            latest: Deployment | None = json.loads(self._state_file().read_text())["checkpoint"]["latest"]
        except FileNotFoundError:
            return {}
        return latest or {}

    def resource_count(self) -> int:
        return pulumi_state.resource_count(self.deployment())

    def last_changes(self) -> dict[str, int]:
        """The number of operations of the last update, by kind: create, update, replace, delete, same."""
        # From the file: each run of `pulumi` takes half a second.
        *_, newest = sorted(self.state.glob(f".pulumi/history/*/{self.stack}/*.history.json"))
        changes: dict[str, int] = json.loads(newest.read_text()).get("resourceChanges") or {}
        return changes

    def stack_outputs(self) -> dict[str, Any]:
        """The outputs of the stack. A secret is replaced, as by `pulumi stack output`."""
        outputs = pulumi_state.stack_outputs(self.deployment())
        return {name: pulumi_state.without_secrets(value) for name, value in outputs.items()}

    def _command(self, *arguments: str) -> list[str]:
        stack = [] if arguments[:2] == ("stack", "init") else ["--stack", self.stack]
        file = self.config if arguments[0] in COMMANDS_WITH_CONFIG else None
        file = self.stack_file if arguments[0] == "config" else file
        return ["pulumi", *arguments, *stack, *(["--config-file", str(file)] if file else [])]

    def _state_file(self) -> Path:
        return next(iter(self.state.glob(f".pulumi/stacks/*/{self.stack}.json")), self.state / f"no stack {self.stack}")
