"""The process that runs the pods of one stack's worker nodes: started, found again, stopped."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes
from sandbox.errors import SandboxError


@dataclass(frozen=True)
class Workers:
    """What the kubelets of one stack's nodes do: run the pods that are bound to them."""

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
        """Why pods cannot run as processes of this machine; empty when they can."""
        command = [str(self.python), "-m", "sandbox.node", "--check"]
        tried = subprocess.run(command, env=processes.module_environment(), capture_output=True, text=True, check=False)
        return tried.stderr.strip() if tried.returncode else ""

    def running(self) -> processes.Process | None:
        return processes.find(self.folder / "run", self.name)

    def start(self, kubeconfig: Path, endpoint: str) -> None:
        if self.running():
            return
        command = [str(self.python), "-m", "sandbox.node", "--kubeconfig", str(kubeconfig), "--root", str(self.root)]
        environment = processes.module_environment() | {"AWS_ENDPOINT_URL": endpoint}
        log = self.folder / f"logs/{self.name}.log"
        process = processes.start(self.folder / "run", self.name, command, 0, log, environment)
        if processes.wait(lambda: not process.alive, 1):
            raise SandboxError(f"the workers ended at once; {log} ends:\n{processes.last_lines(log)}")

    def stop(self) -> None:
        processes.stop(self.folder / "run", self.name)
        # Workers that were killed have left their pods running.
        command = [str(self.python), "-m", "sandbox.node", "--clean", "--root", str(self.root)]
        subprocess.run(command, env=processes.module_environment(), check=False)
