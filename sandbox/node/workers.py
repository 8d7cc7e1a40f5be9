"""Starts, finds and stops the process that runs the pods of one stack (`python -m sandbox.node`)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT


@dataclass(frozen=True)
class Workers:
    """The worker nodes of one stack: one process runs the pods of all of them."""

    python: Path
    folder: Path
    stack: str

    @property
    def name(self) -> str:
        return f"workers-{self.stack}"

    @property
    def root(self) -> Path:
        return self.folder / "stacks" / self.stack / "workers"

    def why_not(self) -> str:
        """The reason why pods cannot run as processes of this machine; empty if they can."""
        command = [str(self.python), "-m", "sandbox.node", "--check"]
        check = subprocess.run(command, env=processes.module_environment(), capture_output=True, text=True, check=False)
        return check.stderr.strip() if check.returncode else ""

    def running(self) -> processes.Process | None:
        return processes.find(self.folder / "run", self.name)

    def start(self, kubeconfig: Path, endpoint: str) -> None:
        if process := self.running():
            # Each container starts with the code of the checkout, which must fit the code of this process.
            if processes.runs_current_code(process, self.python, CHECKOUT / "sandbox/node"):
                return
            self.stop()
        command = [str(self.python), "-m", "sandbox.node", "--kubeconfig", str(kubeconfig), "--root", str(self.root)]
        environment = processes.module_environment() | {"AWS_ENDPOINT_URL": endpoint}
        log = self.folder / f"logs/{self.name}.log"
        process = processes.start(self.folder / "run", self.name, command, 0, log, environment)
        if processes.wait(lambda: not process.alive, 1):
            raise SandboxError(
                f"the workers stopped right after the start; the last lines of {log}:\n{processes.last_lines(log)}"
            )

    def stop(self) -> None:
        processes.stop(self.folder / "run", self.name)
        # If the process was killed, its pods still run.
        command = [str(self.python), "-m", "sandbox.node", "--clean", "--root", str(self.root)]
        subprocess.run(command, env=processes.module_environment(), check=False)
