"""Which stacks a pull request previews: too many costs minutes, too few costs a surprise on main."""

import subprocess
import sys
from pathlib import Path

import pytest

from preview.changed import ASIDE, changed
from settings.schema import PROJECT

STACKS = ["dev", "prod"]
# What a stack is made of; a new entry at the top of the checkout belongs here or in preview.changed.ASIDE.
PROGRAM = {
    "__main__.py",
    "Pulumi.yaml",
    "constraints.txt",
    "infra",
    "policy",
    "price",
    "requirements.txt",
    "settings",
    "workloads",
}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], []),
        (["README.md", "docs/architecture.md", "tests/unit/test_graph.py", "sandbox/build.py", "Makefile"], []),
        (["Pulumi.prod.yaml"], ["prod"]),
        (["Pulumi.tutorial.yaml"], []),
        (["Pulumi.yaml"], STACKS),
        (["infra/storage.py"], STACKS),
        (["workloads/in_pod/launch.py", "Pulumi.dev.yaml"], STACKS),
        (["requirements.txt"], STACKS),
        (["policy/rules.py"], STACKS),
        (["my-training-code/train.py"], STACKS),
        (["infra/README.md"], STACKS),
        (["bootstrap/Pulumi.dev.yaml"], []),
    ],
)
def test_stacks_of_paths(paths: list[str], expected: list[str]) -> None:
    assert changed(paths, STACKS) == expected


def test_every_file_of_the_checkout_is_known_for_program_or_not() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.split("\0") if path and not path.startswith("Pulumi.")]
    program = {path.partition("/")[0] for path in paths if not ASIDE.match(path)}
    assert program == PROGRAM - {"Pulumi.yaml"}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(PROJECT)}
    )
    return done.stdout


def test_the_command_asks_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        return run(tmp_path, "/usr/bin/env", "git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments).strip()

    git("init", "--quiet")
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/old.py").write_text("x = 1\n" * 50)
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    first = git("rev-parse", "HEAD")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "two")
    second = git("rev-parse", "HEAD")
    (tmp_path / "docs").mkdir()
    git("mv", "infra/old.py", "docs/old.py")
    git("commit", "--quiet", "--message", "three")

    def asked(base: str) -> str:
        return run(tmp_path, sys.executable, "-m", "preview.changed", base, *STACKS).strip()

    assert asked("HEAD") == "[]"
    assert asked(second) == '["dev", "prod"]', "a file moved out of the program changes it"
    git("reset", "--quiet", "--hard", second)
    assert asked(first) == '["dev"]'
    assert asked("0" * 40) == '["dev", "prod"]', "a branch's first push has nothing to compare with"
    assert asked("") == '["dev", "prod"]', "a run started by hand means every stack"
