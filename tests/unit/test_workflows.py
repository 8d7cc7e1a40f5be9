"""What actionlint cannot know of the workflows: who may do what, and whose code runs where."""

import re
from typing import Any

import pytest
import yaml

from infra.settings import PROJECT

FOLDER = PROJECT / ".github/workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))
# All that a job may ask for, and no more.
GRANTED = {
    ("test.yml", "test"): {"contents": "read"},
    ("preview.yml", "changed"): {"contents": "read"},
    ("preview.yml", "preview"): {"contents": "read", "id-token": "write", "pull-requests": "write"},
    ("deploy.yml", "changed"): {"contents": "read"},
    ("deploy.yml", "deploy"): {"contents": "read", "id-token": "write"},
}


def text(file: str) -> str:
    return (FOLDER / file).read_text()


def workflow(file: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    loaded: dict[Any, Any] = yaml.safe_load(text(file))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def jobs() -> dict[tuple[str, str], dict[str, Any]]:
    return {(file, name): job for file in FILES for name, job in workflow(file)["jobs"].items()}


@pytest.mark.parametrize("file", FILES)
def test_every_action_is_pinned_by_commit_and_says_its_version(file: str) -> None:
    used = [line.strip() for line in text(file).splitlines() if "uses:" in line]
    assert used
    for line in used:
        assert re.fullmatch(r"- uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_one_commit_for_one_action() -> None:
    pins: dict[str, set[str]] = {}
    for file in FILES:
        for action, pin in re.findall(r"uses: ([\w/-]+)@(.*)", text(file)):
            pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


def test_permissions_are_these_and_no_others() -> None:
    assert {key: job.get("permissions", workflow(key[0])["permissions"]) for key, job in jobs().items()} == GRANTED


@pytest.mark.parametrize("file", FILES)
def test_there_are_no_keys(file: str) -> None:
    assert "secrets." not in text(file)
    assert "aws-access-key-id" not in text(file)


@pytest.mark.parametrize("file", FILES)
def test_nothing_that_a_stranger_writes_reaches_a_shell(file: str) -> None:
    scripts = [step["run"] for job in workflow(file)["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_no_workflow_runs_a_forks_code_with_rights() -> None:
    for file in FILES:
        assert "pull_request_target" not in workflow(file)["on"]
    changed = workflow("preview.yml")["jobs"]["changed"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in changed["if"]
    assert workflow("preview.yml")["jobs"]["preview"]["needs"] == "changed"


@pytest.mark.parametrize(("file", "name"), [("preview.yml", "preview"), ("deploy.yml", "deploy")])
def test_a_stack_is_worked_on_once_at_a_time_and_never_cut_off(file: str, name: str) -> None:
    concurrency = jobs()[file, name]["concurrency"]
    assert "${{ matrix.stack }}" in concurrency["group"]
    assert concurrency["cancel-in-progress"] is False


def test_a_deployment_waits_for_its_environment() -> None:
    deploy = jobs()["deploy.yml", "deploy"]
    assert deploy["environment"] == "${{ matrix.stack }}"
    assert workflow("deploy.yml")["on"]["push"] == {"branches": ["main"]}
    (login,) = (step for step in deploy["steps"] if "configure-aws-credentials" in step.get("uses", ""))
    assert login["with"]["role-duration-seconds"] == deploy["timeout-minutes"] * 60


def test_pulumi_is_the_version_of_its_package() -> None:
    (pinned,) = re.findall(r"^pulumi==(.*)$", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    for file in ("preview.yml", "deploy.yml"):
        assert re.findall(r"pulumi-version: (.*)", text(file)) == [pinned]
