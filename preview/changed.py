"""Which stacks a commit range changes: `python -m preview.changed BASE STACK...` prints them as a JSON list."""

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Sequence

# What no stack is made of. Anything else may be part of the program, so a new folder counts until it is named here.
ASIDE = re.compile(
    r"(\.github|\.ci|\.devcontainer|bench|bootstrap|preview|docs|kube|sandbox|tests|watch)/"
    r"|[^/]*\.md$|LICENSE$|Makefile$|pyproject\.toml$|requirements-dev\.txt$|\.gitignore$|\.pre-commit-config\.yaml$"
)
STACK_FILE = re.compile(r"Pulumi\.([^/]+)\.yaml")


def changed(paths: Iterable[str], stacks: Sequence[str]) -> list[str]:
    """Those stacks whose own file is among the paths, or all of them when the program is."""
    program, own = False, set()
    for path in paths:
        if file := STACK_FILE.fullmatch(path):
            own.add(file[1])
        elif not ASIDE.match(path):
            program = True
    return [stack for stack in stacks if program or stack in own]


def paths_since(base: str) -> list[str] | None:
    """Every path that differs from the base, None when there is no such commit, as before a branch's first push."""
    if subprocess.run(["git", "cat-file", "-e", f"{base}^{{commit}}"], capture_output=True, check=False).returncode:
        return None
    # Without renames, a file that moved out of the program is still seen to leave it.
    command = ["git", "diff", "--name-only", "--no-renames", "-z", base, "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m preview.changed", description=__doc__)
    parser.add_argument("base", help="the commit to compare HEAD with")
    parser.add_argument("stacks", nargs="*", help="the stacks to choose from")
    given = parser.parse_args()
    paths = paths_since(given.base)
    print(json.dumps(given.stacks if paths is None else changed(paths, given.stacks)))


if __name__ == "__main__":
    main()
