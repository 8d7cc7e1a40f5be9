"""Which stacks a pull request previews. One too many costs minutes. A missing one hides a change."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from settings.schema import PROJECT
from tools.preview.changed import UNRELATED, changed, is_unrelated

STACKS = ["dev", "prod"]


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


def imported(file: Path) -> set[Path]:
    """The modules of this project that a module imports, and the modules that those import."""
    found, front = set[Path](), [file]
    while front:
        module = front.pop()
        if module in found or not module.exists():
            continue
        found.add(module)
        for node in ast.walk(ast.parse(module.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            front += [PROJECT / f"{name.replace('.', '/')}.py" for name in names]
    return found


def program_modules() -> set[str]:
    starts = [PROJECT / name for name in ("__main__.py", "policy/__main__.py")]
    return {module.relative_to(PROJECT).as_posix() for start in starts for module in imported(start)}


def test_no_module_of_the_program_is_unrelated() -> None:
    program = program_modules()
    assert {"settings/schema.py", "infra/network.py", "workloads/training_job.py", "policy/rules.py"} <= program
    assert [module for module in sorted(program) if is_unrelated(module)] == []


def test_every_other_path_is_unrelated() -> None:
    """A new folder that is not part of the program would make each pull request preview every stack."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    related = {path.partition("/")[0] for path in listed.stdout.split("\0")[:-1] if not is_unrelated(path)}
    stacks = {path.name for path in PROJECT.glob("Pulumi.*yaml")}
    program = {module.partition("/")[0] for module in program_modules()}
    assert related - stacks == program | {"requirements.txt", "requirements.lock", "constraints.txt"}


def test_every_unrelated_path_exists() -> None:
    assert [path for path in UNRELATED if not (PROJECT / path).exists()] == []


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

    def result(base: str) -> str:
        return run(tmp_path, sys.executable, "-m", "tools.preview.changed", base, *STACKS).strip()

    assert result("HEAD") == "[]"
    assert result(second) == '["dev", "prod"]', "a file that moves out of the program changes the program"
    git("reset", "--quiet", "--hard", second)
    assert result(first) == '["dev"]'
    assert result("0" * 40) == '["dev", "prod"]', "the first push of a branch has no base"
    assert result("") == '["dev", "prod"]', "a manual run deploys every stack"
