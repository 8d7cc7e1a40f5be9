"""The text at the end of `make sandbox`: the outputs of the stack, the model, and commands that work in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workloads.in_pod import contract

# The workers of the sandbox are processes: they have no shell, and no terminal in a pod.
ONLY_ON_AWS = ("lookIntoVolume", "shellOnWorker")


def output_lines(outputs: Mapping[str, Any]) -> list[str]:
    """The outputs of the program. `next_steps` prints the commands."""
    return [f"  {key}: {value}" for key, value in outputs.items() if key not in ("model", "nextSteps")]


def model_lines(model: str, folder: Path) -> list[str]:
    """The location and the numbers of the newest checkpoint. `model` has all results; `folder` has copies of some."""
    try:
        newest = (folder / contract.NEWEST_FILE).read_text().strip()
        done = json.loads((folder / newest.removeprefix(model) / contract.DONE_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        newest, done = model, {}
    lines = [f"  location: {newest}"]
    given = done.items() if isinstance(done, dict) else ()
    numbers = {key: value for key, value in given if type(value) in (int, float)}
    lines += [f"  {key}: {value}" for key, value in numbers.items() if key != "pass"]
    report = folder / contract.REPORT_FILE
    return [*lines, f"  report: {report}"] if report.exists() else lines


def next_steps(steps: Mapping[str, str], sandbox_command: str) -> list[str]:
    """The commands in the output `nextSteps`, each as it works in the sandbox."""
    # The endpoint of the emulated EKS is not a Kubernetes API. `run` selects the cluster of the sandbox instead.
    replaced = {"useCluster": "run kubectl get pods --all-namespaces", "deleteStackAndData": "down"}
    here = {name: replaced.get(name, f"run {command}") for name, command in steps.items() if name not in ONLY_ON_AWS}
    return [line for name, command in here.items() for line in (f"  {name}:", f"    {sandbox_command} {command}")]


def text(sections: Mapping[str, Sequence[str]]) -> str:
    """The sections that have lines, each with its title."""
    return "\n\n".join("\n".join([title, *lines]) for title, lines in sections.items() if lines)
