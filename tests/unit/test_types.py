"""mypy reads each module of the provider SDKs that the program uses. It does not check what comes from the others."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def used(package: str, alias: str) -> set[str]:
    """The modules of a package that the files of this project use, in files that import it under this alias."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=PROJECT, capture_output=True, text=True, check=True)
    texts = [(PROJECT / name).read_text() for name in listed.stdout.split()]
    trees = [ast.parse(text) for text in texts if re.search(rf"^import {package} as {alias}$", text, re.MULTILINE)]
    found = [each for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Attribute)]
    return {each.attr for each in found if isinstance(each.value, ast.Name) and each.value.id == alias}


@pytest.mark.parametrize(("package", "alias"), [("pulumi_aws", "aws"), ("pulumi_kubernetes", "k8s")])
def test_mypy_reads_each_module_that_the_program_uses(package: str, alias: str) -> None:
    settings = (PROJECT / "pyproject.toml").read_text()
    read = set(re.findall(rf'^    "{package}\.(\w+)', settings, re.MULTILINE))
    # The package itself exports classes, and functions from modules of the same name.
    modules = {name.removesuffix("_output") for name in used(package, alias) if name.islower()}
    assert len(modules) > 4
    assert modules - read == set(), "add these modules to pyproject.toml"
