"""The workflows: actionlint, and what it cannot check: permissions, roles, and whose code runs where."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import build
from settings.schema import PROJECT

FOLDER = PROJECT / ".github/workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))
# The permissions of each job.
GRANTED = {
    ("test.yml", "test"): {"contents": "read"},
    ("test.yml", "unit"): {"contents": "read"},
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


def test_actionlint_finds_nothing() -> None:
    module = PROJECT / ".github/actionlint"
    command = [str(build.go(module)), "-C", str(module), "tool", "actionlint"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES)
def test_every_action_is_pinned_by_commit_and_names_its_version(file: str) -> None:
    used = [line.strip() for line in text(file).splitlines() if "uses:" in line]
    assert used
    for line in used:
        assert re.fullmatch(r"- uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_each_action_has_one_commit() -> None:
    pins: dict[str, set[str]] = {}
    for file in FILES:
        for action, pin in re.findall(r"uses: ([\w/-]+)@(.*)", text(file)):
            pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


def test_the_events_that_start_the_workflows() -> None:
    main = {"branches": ["main"]}
    assert {file: workflow(file)["on"] for file in FILES} == {
        "deploy.yml": {"push": main, "workflow_dispatch": None},
        "preview.yml": {"pull_request": None},
        "test.yml": {"pull_request": None, "push": main, "workflow_dispatch": None},
    }


def test_the_permissions_of_the_jobs() -> None:
    # A new job starts without permissions.
    assert workflow("preview.yml")["permissions"] == workflow("deploy.yml")["permissions"] == {}
    assert {key: job.get("permissions", workflow(key[0])["permissions"]) for key, job in jobs().items()} == GRANTED


def with_of(job: dict[str, Any], action: str) -> dict[str, Any]:
    (step,) = (step for step in job["steps"] if step.get("uses", "").startswith(f"{action}@"))
    found: dict[str, Any] = step["with"]
    return found


def test_there_are_no_keys_and_each_job_has_its_own_role() -> None:
    assert not [file for file in FILES if "secrets." in text(file)]
    login = "aws-actions/configure-aws-credentials"
    here = {
        "audience": "${{ vars.AWS_AUDIENCE || 'sts.amazonaws.com' }}",
        "aws-region": "${{ vars.AWS_REGION }}",
    }
    preview, deploy = jobs()["preview.yml", "preview"], jobs()["deploy.yml", "deploy"]
    assert with_of(preview, login) == {**here, "role-to-assume": "${{ vars.PREVIEW_ROLE }}"}
    assert with_of(deploy, login) == {
        **here,
        "role-to-assume": "${{ vars.DEPLOY_ROLE }}${{ matrix.stack }}",
        "role-duration-seconds": deploy["timeout-minutes"] * 60,
    }


def test_no_checkout_keeps_its_token() -> None:
    for job in jobs().values():
        assert with_of(job, "actions/checkout")["persist-credentials"] is False


@pytest.mark.parametrize("file", FILES)
def test_no_script_contains_an_expression(file: str) -> None:
    scripts = [step["run"] for job in workflow(file)["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_no_workflow_gives_permissions_to_the_code_of_a_fork() -> None:
    changed = workflow("preview.yml")["jobs"]["changed"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in changed["if"]
    assert workflow("preview.yml")["jobs"]["preview"]["needs"] == "changed"


@pytest.mark.parametrize(("file", "name"), [("preview.yml", "preview"), ("deploy.yml", "deploy")])
def test_one_run_per_stack_and_none_is_cancelled(file: str, name: str) -> None:
    concurrency = jobs()[file, name]["concurrency"]
    assert "${{ matrix.stack }}" in concurrency["group"]
    assert concurrency["cancel-in-progress"] is False


def test_a_deployment_uses_the_environment_of_its_stack() -> None:
    deploy = jobs()["deploy.yml", "deploy"]
    assert deploy["environment"] == "${{ matrix.stack }}"
    assert deploy["steps"][-1]["run"] == 'pulumi up --stack "$STACK" --policy-pack policy --yes --non-interactive'


def test_a_variable_selects_the_runner_of_each_stack() -> None:
    """Only where a job reaches the cluster. The other jobs, and stacks without an entry, use GitHub's runners."""
    selected = {key: job["runs-on"] for key, job in jobs().items() if job["runs-on"] != "ubuntu-24.04"}
    by_stack = "${{ fromJSON(vars.RUNNERS || '{}')[matrix.stack] || 'ubuntu-24.04' }}"
    assert selected == {("preview.yml", "preview"): by_stack, ("deploy.yml", "deploy"): by_stack}


def test_only_main_is_deployed() -> None:
    assert "github.ref == 'refs/heads/main'" in workflow("deploy.yml")["jobs"]["changed"]["if"]
    assert workflow("deploy.yml")["jobs"]["deploy"]["needs"] == "changed"


def test_the_pulumi_version_is_that_of_the_python_package() -> None:
    (pinned,) = re.findall(r"^pulumi==(.*)$", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    for file in ("preview.yml", "deploy.yml"):
        assert re.findall(r"pulumi-version: (.*)", text(file)) == [pinned]


def test_the_test_job_runs_all_tests() -> None:
    assert jobs()["test.yml", "test"]["steps"][-1] == {"run": "make test"}


def test_a_failed_preview_is_commented_too() -> None:
    preview, comment = jobs()["preview.yml", "preview"]["steps"][-2:]
    assert '.venv/bin/python -m preview.run "$STACK" ' in preview["run"]
    assert 'python3 -m preview.comment "$NUMBER"' in comment["run"]
    assert comment["if"] == f"always() && steps.{preview['id']}.outcome != 'skipped'"
    written, read = (re.findall(r'[<>] ("\S+")', step["run"]) for step in (preview, comment))
    assert written == read


@pytest.mark.parametrize("file", ["preview.yml", "deploy.yml"])
@pytest.mark.parametrize(("base", "expected"), [("HEAD", "[]"), ("", '["dev", "prod"]')])
def test_the_changed_stacks_reach_the_next_job(file: str, base: str, expected: str, tmp_path: Path) -> None:
    job = jobs()[file, "changed"]
    (step,) = (step for step in job["steps"] if step.get("id") == "changed")
    output = tmp_path / "output"
    given = {"PATH": os.environ["PATH"], "BASE": base, "STACKS": "dev prod", "GITHUB_OUTPUT": str(output)}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=PROJECT, env=given, check=True)
    assert output.read_text() == f"stacks={expected}\n"
    assert job["outputs"] == {"stacks": "${{ steps.changed.outputs.stacks }}"}
