"""The workflows: actionlint, and what it cannot check: permissions, roles, and whose code runs where."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.github_main import CHECKS
from sandbox import build
from settings.schema import PROJECT

FOLDER = PROJECT / ".github/workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))
# The permissions of each job.
GRANTED = {
    ("test.yml", "test"): {"contents": "read"},
    ("test.yml", "unit"): {"contents": "read"},
    ("preview.yml", "changed"): {"contents": "read"},
    ("preview.yml", "packages"): {"contents": "read"},
    ("preview.yml", "preview"): {"contents": "read", "id-token": "write"},
    ("preview.yml", "previewed"): {},
    ("preview.yml", "comment"): {"contents": "read", "pull-requests": "write"},
    ("deploy.yml", "changed"): {"contents": "read"},
    ("deploy.yml", "packages"): {"contents": "read"},
    ("deploy.yml", "deploy"): {"contents": "read", "id-token": "write"},
}
WITH_ROLE = [("preview.yml", "preview"), ("deploy.yml", "deploy")]


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
        assert re.fullmatch(r"(- )?uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


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
        # The scripts and rules of a preview come from the base. Everybody who can push could choose another branch.
        "preview.yml": {"pull_request": main},
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
    for file, name in WITH_ROLE:
        job = jobs()[file, name]
        assert with_of(job, "aws-actions/configure-aws-credentials") == {
            "audience": "${{ vars.AWS_AUDIENCE || 'sts.amazonaws.com' }}",
            "aws-region": "${{ vars.AWS_REGION }}",
            "role-to-assume": f"${{{{ vars.{name.upper()}_ROLE }}}}${{{{ matrix.stack }}}}",
            "role-duration-seconds": job["timeout-minutes"] * 60,
        }


def checkouts(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]


def test_no_checkout_keeps_its_token() -> None:
    for job in jobs().values():
        assert {each["persist-credentials"] for each in checkouts(job)} <= {False}


def test_the_scripts_and_the_policy_rules_of_a_preview_come_from_the_base() -> None:
    base = "${{ github.event.pull_request.base.sha }}"
    for name, job in workflow("preview.yml")["jobs"].items():
        found = {each["path"]: each.get("ref") for each in checkouts(job)}
        without_head = {"comment": {"base": base}, "previewed": {}}
        assert found == without_head.get(name, {"base": base, "head": None})
        for step in job["steps"]:
            if "-m preview." in step.get("run", ""):
                assert step["working-directory"] == "base", step
    (run,) = [step["run"] for step in jobs()["preview.yml", "preview"]["steps"] if step.get("id") == "preview"]
    assert "--checkout ../head" in run


def test_the_job_that_writes_the_comment_has_no_role_and_no_code_of_the_pull_request() -> None:
    comment = jobs()["preview.yml", "comment"]
    used = {step["uses"].partition("@")[0] for step in comment["steps"] if "uses" in step}
    assert used == {"actions/checkout", "actions/download-artifact"}


@pytest.mark.parametrize(("file", "name"), WITH_ROLE)
def test_a_job_with_a_role_has_its_own_state_packages_and_queue(file: str, name: str) -> None:
    def scripts(job: str) -> str:
        return "".join(step.get("run", "") for step in jobs()[file, job]["steps"])

    job = jobs()[file, name]
    assert job["env"]["PULUMI_BACKEND_URL"] == (
        "s3://${{ vars.STATE_BUCKET }}/${{ matrix.stack }}?region=${{ vars.AWS_REGION }}"
        "&ssetype=aws:kms&kmskeyid=alias/paddle-state-${{ matrix.stack }}"
    )
    assert "pip download --require-hashes --only-binary :all: --no-deps" in scripts("packages")
    assert "install --no-index --find-links packages --require-hashes" in scripts(name)
    assert not re.search("pulumi install|make |pip download", scripts(name)), "the role is only for checked wheels"
    assert "packages" in job["needs"]
    assert "${{ matrix.stack }}" in job["concurrency"]["group"]
    assert job["concurrency"]["cancel-in-progress"] is False


def test_a_variable_selects_the_runner_of_the_jobs_that_reach_the_cluster() -> None:
    selected = {key: job["runs-on"] for key, job in jobs().items() if job["runs-on"] != "ubuntu-24.04"}
    assert selected == dict.fromkeys(WITH_ROLE, "${{ fromJSON(vars.RUNNERS || '{}')[matrix.stack] || 'ubuntu-24.04' }}")


@pytest.mark.parametrize("folder", ["", "policy/"])
def test_a_lock_has_the_pinned_versions_and_a_hash_for_each(folder: str) -> None:
    def pins(file: str) -> dict[str, str]:
        found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (PROJECT / folder / file).read_text(), re.MULTILINE)
        return {name.lower().replace("_", "-"): version for name, version in found}

    lock = (PROJECT / folder / "requirements.lock").read_text()
    entries = re.split(r"\n(?=\S)", lock.strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    locked, pinned = pins("requirements.lock"), {**pins("constraints.txt"), **pins("requirements.txt")}
    assert pins("requirements.txt").items() <= locked.items()
    assert locked.items() <= pinned.items(), "run `make lock`"


def test_maintainers_review_what_decides_about_deployments() -> None:
    lines = (PROJECT / ".github/CODEOWNERS").read_text().splitlines()
    owned = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert owned == {"/.github/", "/bootstrap/", "/policy/", "/tools/"}


@pytest.mark.parametrize("file", FILES)
def test_no_script_contains_an_expression(file: str) -> None:
    scripts = [step["run"] for job in workflow(file)["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_no_workflow_gives_permissions_to_the_code_of_a_fork() -> None:
    changed = workflow("preview.yml")["jobs"]["changed"]
    assert changed["if"].split(" && ") == [
        "github.event.pull_request.head.repo.full_name == github.repository",
        "github.event.pull_request.user.login != 'dependabot[bot]'",
        "!startsWith(github.head_ref, 'dependabot/')",
        "vars.STACKS != ''",
    ]
    for job in ("packages", "preview", "comment"):
        assert "changed" in workflow("preview.yml")["jobs"][job]["needs"]
    # A job runs after a skipped one only if its condition says so.
    assert [workflow("preview.yml")["jobs"][job].get("if") for job in ("packages", "preview")] == [
        "needs.changed.outputs.stacks != '[]'",
        None,
    ]


def test_only_the_jobs_that_need_a_role_can_ask_for_a_token() -> None:
    """The test workflow runs for forks and Dependabot too."""
    assert [key for key, granted in GRANTED.items() if granted.get("id-token")] == WITH_ROLE
    assert {key for key, job in jobs().items() if "configure-aws-credentials" in str(job)} == {*WITH_ROLE}


def script(file: str, job: str, words: str) -> str:
    """The script of the one step that contains these words."""
    (found,) = (step["run"] for step in jobs()[file, job]["steps"] if words in step.get("run", ""))
    return str(found)


def bash(script: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a script like GitHub does."""
    environment = {"PATH": os.environ["PATH"], **given}
    command = ["bash", "-e", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("results", "passes"),
    [
        ("success success success", True),
        # A fork, or no changed stack.
        ("skipped skipped skipped", True),
        ("success skipped skipped", True),
        ("failure skipped skipped", False),
        ("success failure skipped", False),
        ("success success failure", False),
        ("success success cancelled", False),
    ],
)
def test_the_required_job_fails_if_a_preview_failed(tmp_path: Path, results: str, passes: bool) -> None:
    job = jobs()["preview.yml", "previewed"]
    assert (job["if"], set(job["needs"])) == ("always()", {"changed", "packages", "preview"})
    done = bash(script("preview.yml", "previewed", "RESULTS"), tmp_path, RESULTS=results)
    assert (done.returncode == 0) is passes


def test_the_required_checks_are_jobs_of_each_pull_request() -> None:
    matrix = workflow("test.yml")["jobs"]["unit"]["strategy"]["matrix"]["python"]
    names = {"previewed", "test", *(f"unit ({version})" for version in matrix)}
    assert set(CHECKS) == names
    # A skipped job counts as passed.
    assert not [job for job in ("test", "unit") if "if" in workflow("test.yml")["jobs"][job]]


@pytest.mark.parametrize("missing", ["", "tools/preview/changed.py", "requirements.lock", "policy/requirements.lock"])
def test_an_older_base_is_reported_in_words(tmp_path: Path, missing: str) -> None:
    steps = jobs()["preview.yml", "changed"]["steps"]
    check, changed = (
        next(i for i, step in enumerate(steps) if words in step.get("run", ""))
        for words in ("::error::", "-m tools.preview")
    )
    assert check < changed
    for file in {"tools/preview/changed.py", "requirements.lock", "policy/requirements.lock"} - {missing}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    done = bash(steps[check]["run"], tmp_path)
    assert (done.returncode, f"has no {missing}," in done.stdout) == ((1, True) if missing else (0, False))


@pytest.mark.parametrize(("owner", "passes"), [("@OWNER/maintainers", False), ("@octo/admins", True), ("@ann", True)])
def test_nothing_is_deployed_while_the_code_owners_are_a_placeholder(tmp_path: Path, owner: str, passes: bool) -> None:
    (tmp_path / ".github").mkdir()
    text = (PROJECT / ".github/CODEOWNERS").read_text()
    (tmp_path / ".github/CODEOWNERS").write_text(text.replace("@OWNER/maintainers", owner))
    done = bash(script("deploy.yml", "changed", "CODEOWNERS"), tmp_path)
    assert (done.returncode == 0, "Replace @OWNER/maintainers" in done.stdout) == (passes, not passes)


def test_a_deployment_uses_the_environment_of_its_stack() -> None:
    deploy = jobs()["deploy.yml", "deploy"]
    assert deploy["environment"] == "${{ matrix.stack }}"
    assert deploy["steps"][-1]["run"] == 'pulumi up --stack "$STACK" --policy-pack policy --yes --non-interactive'


def test_only_main_is_deployed() -> None:
    assert "github.ref == 'refs/heads/main'" in workflow("deploy.yml")["jobs"]["changed"]["if"]
    assert "changed" in workflow("deploy.yml")["jobs"]["deploy"]["needs"]


def test_the_pulumi_version_is_that_of_the_python_package() -> None:
    (pinned,) = re.findall(r"^pulumi==(.*)$", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    for file in ("preview.yml", "deploy.yml"):
        assert re.findall(r"pulumi-version: (.*)", text(file)) == [pinned]


def test_the_test_job_runs_all_tests() -> None:
    assert jobs()["test.yml", "test"]["steps"][-1] == {"run": "make test"}


def test_a_failed_preview_is_commented_too() -> None:
    preview, upload = jobs()["preview.yml", "preview"]["steps"][-2:]
    assert '.venv/bin/python -m tools.preview.run "$STACK" ' in preview["run"]
    assert upload["if"] == f"always() && steps.{preview['id']}.outcome != 'skipped'"
    comment = jobs()["preview.yml", "comment"]
    assert comment["if"].startswith("always() && ")
    assert 'python3 -m tools.preview.comment "$NUMBER"' in comment["steps"][-1]["run"]
    assert "> ../comment.md" in preview["run"]
    assert "< ../comment.md" in comment["steps"][-1]["run"]
    assert upload["with"]["name"] == comment["steps"][-2]["with"]["name"] == "comment-${{ matrix.stack }}"


@pytest.mark.parametrize("file", ["preview.yml", "deploy.yml"])
@pytest.mark.parametrize(("base", "expected"), [("HEAD", "[]"), ("", '["dev", "prod"]')])
def test_the_changed_stacks_reach_the_next_job(file: str, base: str, expected: str, tmp_path: Path) -> None:
    job = jobs()[file, "changed"]
    (step,) = (step for step in job["steps"] if step.get("id") == "changed")
    output = tmp_path / "output"
    given = {"PATH": os.environ["PATH"], "BASE": base, "STACKS": "dev prod", "GITHUB_OUTPUT": str(output)}
    # In a preview, the scripts are in base/ and the program is in head/.
    (tmp_path / "head").symlink_to(PROJECT)
    (tmp_path / "base").symlink_to(PROJECT)
    folder = tmp_path / step.get("working-directory", "head")
    script = step["run"].replace("../head", str(tmp_path / "head"))
    subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=given, check=True)
    assert output.read_text() == f"stacks={expected}\n"
    assert job["outputs"] == {"stacks": "${{ steps.changed.outputs.stacks }}"}
