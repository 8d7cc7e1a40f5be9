"""The parts of the program import each other only in the direction that CONTRIBUTING.md describes."""

import ast
import re
import sys
from pathlib import Path

import pytest

from settings.schema import PROJECT

CONTRACT = "workloads.in_pod.contract"
# What each part of the program may import, apart from public packages.
MAY_IMPORT = {
    "settings": {"settings", CONTRACT},
    "infra": {"infra", "settings", CONTRACT},
    "workloads": {"workloads", "infra", "settings"},
    "__main__.py": {"workloads", "infra", "settings"},
}
READS_CONFIGURATION = re.compile(r"\bpulumi\.(Config\b|config\b|runtime\.get_config)|import Config\b")


def files(part: str) -> list[Path]:
    path = PROJECT / part
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def imports(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    assert all(node.level == 0 for node in named), "relative imports are not checked"
    return plain | {f"{node.module}.{alias.name}" for node in named for alias in node.names}


def is_in(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_each_part_imports_only_the_parts_below_it(part: str) -> None:
    ours = {path.name for path in PROJECT.iterdir() if path.is_dir()}
    found = {(file, name) for file in files(part) for name in imports(file) if name.partition(".")[0] in ours}
    assert found
    assert {each for each in found if not any(is_in(each[1], below) for below in MAY_IMPORT[part])} == set()


def test_the_contract_imports_only_the_standard_library() -> None:
    found = {name.partition(".")[0] for name in imports(PROJECT / f"{CONTRACT.replace('.', '/')}.py")}
    assert found - sys.stdlib_module_names == set()


def test_only_the_settings_and_infra_use_the_aws_provider() -> None:
    assert [file for file in files("workloads") if any(is_in(name, "pulumi_aws") for name in imports(file))] == []


def test_only_the_schema_reads_the_pulumi_configuration() -> None:
    program = [file for part in MAY_IMPORT for file in files(part)]
    assert [file for file in program if READS_CONFIGURATION.search(file.read_text())] == [
        PROJECT / "settings/schema.py"
    ]


def test_no_test_module_imports_from_another() -> None:
    found = [(file.name, name) for file in files("tests") for name in imports(file)]
    assert found
    assert [each for each in found if re.match(r"tests\.(\w+\.)*test_", each[1])] == []
