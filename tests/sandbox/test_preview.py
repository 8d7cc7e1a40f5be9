"""The comment on a pull request, written by the real script and the real engine for a running stack."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.paths import CHECKOUT
from settings.stack_file import stack_settings
from tests.sandbox.aws_part import AWS_PART, AwsPart, aws_part, output_of
from tests.sandbox.checkout import PROGRAM, copy
from tests.sandbox.deployer import ADMIN, OPERATOR, allowed, needs
from tests.unit.bootstrap.account import bootstrap
from tests.unit.bootstrap.account import statements as statements_of
from tests.unit.program import config_of

SECRET = "s3://a-bucket-that-nobody/may-know"


@dataclass(frozen=True)
class Project:
    """A repository with the program. The AWS part of stack dev is deployed from the first commit."""

    folder: Path
    part: AwsPart

    def succeed(self, *command: str) -> str:
        return output_of(self.part.run(*command, cwd=self.folder))

    def git(self, *arguments: str) -> str:
        return self.succeed("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments).strip()

    @contextmanager
    def changed(self, file: str, *changes: tuple[str, str]) -> Iterator[None]:
        """During the body, the file has these changes."""
        written = self.folder / file
        before = written.read_text()
        for old, new in changes:
            assert before.count(old) == 1, f"{file} has changed: {old}"
            written.write_text(written.read_text().replace(old, new))
        try:
            yield
        finally:
            written.write_text(before)

    def preview(self, file: str, *changes: tuple[str, str]) -> tuple[int, str]:
        """The exit code and the comment of the script, for a commit with these changes to a file."""
        command = [sys.executable, "-m", "tools.preview.run", "dev", "--base", "HEAD", "--commit", "abc1234"]
        with self.changed(file, *changes):
            done = subprocess.run(
                command, cwd=self.folder, env=self.part.engine.environment, capture_output=True, text=True, check=False
            )
        assert done.stdout, done.stderr
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("pull-request")
    with aws_part(folder / "sandbox", "dev") as part:
        copy((*PROGRAM, "bootstrap", "docs", "policy"), folder / "project")
        made = Project(folder / "project", part)
        (made.folder / ".venv").symlink_to(sys.prefix)
        (made.folder / "policy/.venv").symlink_to(CHECKOUT / "policy/.venv")
        part.set(config_of("dev"))
        file = made.folder / "Pulumi.dev.yaml"
        shutil.copy(part.engine.config, file)
        secret = ("config", "set", "--path", "--secret", "paddle-on-aws:data.source", SECRET)
        made.succeed("pulumi", *secret, "--stack", "dev")
        assert SECRET not in file.read_text()
        made.git("init", "--quiet")
        made.git("add", "--force", ".", ":!.venv", ":!policy/.venv")
        made.git("commit", "--quiet", "--message", "as it stands")
        made.succeed("pulumi", "up", "--stack", "dev", "--yes", "--skip-preview", *AWS_PART)
        yield made


def expected(name: str) -> str:
    return (Path(__file__).with_name("comments") / name).read_text()


def above_the_diff(comment: str) -> str:
    """The comment above the diff, without prices and without the counts of resources in the cluster."""
    above, _, rest = comment.partition("<details>")
    assert rest.rstrip().endswith("</details>\n\n<sub>Commit abc1234.</sub>"), rest[-200:]
    above = re.sub(r"\d+ created, \d+ unchanged", "N created, M unchanged", above)
    return re.sub(r"\$\d+\.\d+", "$N", above)


def test_a_harmless_change(project: Project) -> None:
    file = yaml.safe_load((project.folder / "Pulumi.dev.yaml").read_text())
    assert "paddle-on-aws:workers" not in file["config"]
    code, comment = project.preview(
        "Pulumi.dev.yaml", ("config:\n", "config:\n  paddle-on-aws:workers: {count: 4, diskGiB: 60}\n")
    )
    assert code == 0, comment
    assert above_the_diff(comment) == expected("harmless.md")
    assert re.search(r"^! +~ volumeSize: 50 => 60$", comment, re.MULTILINE)


def test_a_change_that_replaces_the_file_system(project: Project) -> None:
    code, comment = project.preview(
        "infra/storage.py", ('throughput_mode="elastic",', 'throughput_mode="elastic", creation_token="another",')
    )
    assert code == 0, comment
    assert above_the_diff(comment) == expected("replaces-efs.md")


def test_a_change_that_violates_the_policy(project: Project) -> None:
    code, comment = project.preview("infra/storage.py", ('"from", args.cluster.worker_group,', '"from", "0.0.0.0/0",'))
    assert code == 1, comment
    assert above_the_diff(comment) == expected("breaks-policy.md")


def test_a_program_that_fails(project: Project) -> None:
    code, comment = project.preview("Pulumi.dev.yaml", ("config:\n", "config:\n  paddle-on-aws:trainers: 40\n"))
    assert code == 1, comment
    assert "**The preview failed.** Up to the error: " in comment
    assert "trainers: 40 is more than the 3 workers" in comment


def test_the_preview_role_has_only_the_permissions_of_a_preview(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only calls to AWS services. test_bootstrap.py tests the access to the state."""
    # Without these settings, a preview does not ask for log groups and administrators.
    more = f"config:\n  paddle-on-aws:controlPlaneLogs: [audit]\n  paddle-on-aws:admins: [{ADMIN}, {OPERATOR}]\n"
    with monkeypatch.context() as patches:
        of_stack = dataclasses.replace(stack_settings("dev"), admins=(ADMIN, OPERATOR))
        patches.setattr("bootstrap.account_settings.stack_settings", lambda _: of_stack)
        role = statements_of(bootstrap(patches, stacks=["dev"]), "preview-dev-policy")
    statements = [each for each in role if each["Sid"].startswith("Ask")]
    iam = project.part.clients("us-west-2", "bootstrap")("iam")
    iam.create_role(RoleName="admin", AssumeRolePolicyDocument='{"Version":"2012-10-17"}')
    iam.create_user(UserName="operator")
    before = len(project.part.calls())
    project.preview("Pulumi.dev.yaml", ("config:\n", more))
    wanted: list[Any] = [need for call in project.part.calls()[before:] for need in needs(call, {})]
    assert [need for need in wanted if not allowed(statements, need)] == []
    given = {action for statement in statements for action in statement["Action"]}
    assert given == {need.action for need in wanted}, "allowed, but no preview needs it"


def test_secret_settings_appear_in_no_comment(project: Project) -> None:
    change = ("infra/job_roles.py", ('return [allow("ReadData"', 'return [allow("ReadDataSet"'))
    code, comment = project.preview(*change)
    assert code == 0, comment
    assert re.search(r"^\| update \| `data\S*` \| `aws:iam/rolePolicy:RolePolicy` \|", comment, re.MULTILINE)
    assert SECRET.removeprefix("s3://") not in comment
    # The comment can end before this resource. This is the part of the diff about it.
    target = ("--target", "**aws:iam/rolePolicy:RolePolicy::data*")
    with project.changed(*change):
        diff = project.succeed("pulumi", "preview", "--diff", "--stack", "dev", *target)
    assert "~ policy: [secret] => [secret]" in diff, "the policy names the secret"
    assert SECRET.removeprefix("s3://") not in diff
