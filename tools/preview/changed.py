"""Lists the stacks that commits change: `python -m tools.preview.changed BASE STACK...` prints a JSON list."""

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

# Paths that never affect a deployed stack; a folder ends with a slash. Every other path may be part of the program.
UNRELATED = (
    ".ci/",
    ".devcontainer/",
    ".github/",
    ".gitignore",
    ".pre-commit-config.yaml",
    "LICENSE",
    "Makefile",
    "bootstrap/",
    "docs/",
    "pyproject.toml",
    "requirements-dev.txt",
    "sandbox/",
    "tests/",
    "tools/",
)
FOLDERS = tuple(path for path in UNRELATED if path.endswith("/"))
STACK_FILE = re.compile(r"Pulumi\.([^/]+)\.yaml")


def is_unrelated(path: str) -> bool:
    """Whether the path never affects a deployed stack."""
    top_level = "/" not in path
    return path in UNRELATED or path.startswith(FOLDERS) or (top_level and path.endswith(".md"))


def changed(paths: Iterable[str], stacks: Sequence[str]) -> list[str]:
    """The stacks whose own file is among the paths, or all stacks if a file of the program is."""
    program, own = False, set()
    for path in paths:
        if file := STACK_FILE.fullmatch(path):
            own.add(file[1])
        elif not is_unrelated(path):
            program = True
    return [stack for stack in stacks if program or stack in own]


def paths_since(base: str, checkout: Path) -> list[str] | None:
    """Every path that differs from the base. None if the base does not exist, as in the first push of a branch."""
    known = ["git", "cat-file", "-e", f"{base}^{{commit}}"]
    if subprocess.run(known, cwd=checkout, capture_output=True, check=False).returncode:
        return None
    # With rename detection, git would not list the old path of a file that moved out of the program.
    command = ["git", "diff", "--name-only", "--no-renames", "-z", base, "HEAD"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.preview.changed", description=__doc__)
    parser.add_argument("base", help="the commit to compare HEAD with")
    parser.add_argument("--checkout", type=Path, default=Path(), help="the checkout of HEAD, if it is another one")
    parser.add_argument("stacks", nargs="*", help="the stacks to choose from")
    given = parser.parse_args()
    paths = paths_since(given.base, given.checkout)
    print(json.dumps(given.stacks if paths is None else changed(paths, given.stacks)))


if __name__ == "__main__":
    main()
