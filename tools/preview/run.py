"""Previews one stack for a pull request: `python -m tools.preview.run STACK` prints the comment as Markdown.

The exit code is 1 if the preview failed or the change violates a mandatory policy rule.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from settings.secure import is_encrypted, leaves
from settings.stack_file import StackFileError, stack_settings
from tools.preview.markdown import redact, render, summarise, without
from tools.price.cost import difference, estimate, summary

PROJECT = Path(__file__).resolve().parents[2]
POLICY = PROJECT / "policy"


def preview(stack: str, checkout: Path) -> tuple[int, list[dict[str, Any]], str, str]:
    """Run the engine. Returns its exit code, its events, the diff, and its error output."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events.json"
        command = [
            "pulumi",
            "preview",
            "--stack",
            stack,
            "--policy-pack",
            str(POLICY),
            "--diff",
            "--event-log",
            str(log),
        ]
        # The engine accepts --event-log only together with its debugging commands.
        environment = {**os.environ, "PULUMI_DEBUG_COMMANDS": "true"}
        done = subprocess.run(
            [*command, "--non-interactive", "--color", "never"],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return done.returncode, events, done.stdout, done.stderr


def secret_values(encrypted: Any, plain: Any) -> list[str]:
    """The decrypted value of each `secure:` entry in a stack file."""
    shown = leaves(plain)
    found = [shown[path] for path, leaf in leaves(encrypted).items() if is_encrypted(leaf)]
    return [value if isinstance(value, str) else json.dumps(value) for value in found]


def secrets(stack: str, checkout: Path) -> list[str]:
    """The secret settings of the stack. The program reads them as plain text, so the engine cannot hide all of them."""
    encrypted = yaml.safe_load((checkout / f"Pulumi.{stack}.yaml").read_text()).get("config") or {}
    if not any(map(is_encrypted, leaves(encrypted).values())):
        return []
    command = ["pulumi", "config", "--stack", stack, "--show-secrets", "--json"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"Cannot decrypt the secrets of stack {stack}. The preview could show them, so it does not run: "
            f"{done.stderr.strip()}"
        )
    shown = {key: entry.get("objectValue", entry.get("value")) for key, entry in json.loads(done.stdout).items()}
    return secret_values(encrypted, shown)


def price(stack: str, checkout: Path, base: str) -> str:
    """What the stack costs, compared with the base commit."""
    try:
        after = estimate(stack_settings(stack, checkout))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("Pulumi.yaml", f"Pulumi.{stack}.yaml"):
                done = subprocess.run(["git", "show", f"{base}:{name}"], cwd=checkout, capture_output=True, check=False)
                if done.returncode:
                    return f"{summary(after)}; the base has no such stack"
                (Path(folder) / name).write_bytes(done.stdout)
            return difference(estimate(stack_settings(stack, Path(folder))), after)
    except StackFileError as error:
        return f"unknown: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.preview.run", description=__doc__)
    parser.add_argument("stack")
    parser.add_argument("--checkout", type=Path, default=PROJECT, help="the program to preview, if it is another one")
    parser.add_argument("--base", default="", help="the commit to compare the price with")
    parser.add_argument("--commit", default="", help="the commit to name in the comment")
    given = parser.parse_args()
    hidden = secrets(given.stack, given.checkout)
    exit_code, events, diff, complaint = preview(given.stack, given.checkout)
    found = without(hidden, summarise(events, exit_code, complaint))
    cost = redact(price(given.stack, given.checkout, given.base), hidden)
    print(render(given.stack, given.commit, found, cost, redact(diff, hidden)), end="")
    sys.exit(not found.passed)


if __name__ == "__main__":
    main()
