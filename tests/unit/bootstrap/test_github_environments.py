"""The environments get reviewers and one branch. A local HTTP server plays the role of GitHub."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from settings.schema import PROJECT

USERS = {"ann": 1, "bob": 2}
ENVIRONMENT = re.compile(r"/repos/octo/paddle/environments/([^/]+)(/deployment-branch-policies)?(?:/(\d+))?")


class Fake(ThreadingHTTPServer):
    """Environments with their protection. Without the plan, GitHub refuses or ignores the reviewers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.environments: dict[str, dict[str, Any]] = {}
        self.branches: dict[str, list[dict[str, Any]]] = {}
        self.refuse, self.ignore = False, False


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        if found := re.fullmatch(r"/users/(\w+)", self.path):
            known = found[1] in USERS
            self.answer({"id": USERS[found[1]]} if known else {}, 200 if known else 404)
            return
        name, branches, _ = self.parts()
        if branches:
            self.answer({"branch_policies": self.server.branches.get(name, [])})
            return
        given = self.server.environments[name]
        reviewers = [{"type": "User", "reviewer": {"id": each["id"]}} for each in given["reviewers"]]
        rules: list[dict[str, Any]] = [{"type": "branch_policy"}]
        if reviewers and not self.server.ignore:
            prevents = given["prevent_self_review"]
            rules.append({"type": "required_reviewers", "reviewers": reviewers, "prevent_self_review": prevents})
        self.answer({"protection_rules": rules})

    def do_PUT(self) -> None:
        name, _, _ = self.parts()
        content = self.content()
        if content["reviewers"] and self.server.refuse:
            self.answer({"message": "Failed to create the environment protection rule."}, 422)
            return
        self.server.environments[name] = content
        self.answer({})

    def do_POST(self) -> None:
        name, branches, _ = self.parts()
        assert branches
        self.server.branches.setdefault(name, []).append({"id": 9, **self.content()})
        self.answer({})

    def do_DELETE(self) -> None:
        name, _, number = self.parts()
        self.server.branches[name] = [each for each in self.server.branches[name] if str(each["id"]) != number]
        self.send_response(204)
        self.end_headers()

    def parts(self) -> tuple[str, str, str]:
        found = ENVIRONMENT.fullmatch(self.path)
        assert found, self.path
        return found[1], found[2] or "", found[3] or ""

    def content(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, content: object, status: int = 200) -> None:
        self.send_response(status if self.headers["Authorization"] == "Bearer secret" else 401)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def github() -> Iterator[Fake]:
    with Fake() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def protect(github: Fake, *arguments: str, token: str = "secret") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bootstrap.github_environments", "octo/paddle", *arguments],
        cwd=PROJECT,
        env={**os.environ, "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}", "GITHUB_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_environment_gets_the_reviewers_and_only_the_branch_main(github: Fake) -> None:
    github.branches["dev"] = [{"id": 5, "name": "release/*"}]
    for _ in range(2):
        done = protect(github, "dev", "prod", "--reviewer", "ann", "--reviewer", "bob")
        assert done.returncode == 0, done.stderr
    for stack in ("dev", "prod"):
        given = github.environments[stack]
        assert given["prevent_self_review"] is True
        assert given["reviewers"] == [{"type": "User", "id": 1}, {"type": "User", "id": 2}]
        assert given["deployment_branch_policy"] == {"protected_branches": False, "custom_branch_policies": True}
        assert [each["name"] for each in github.branches[stack]] == ["main"]
    assert done.stdout.splitlines() == [f"{stack}: approval by ann, bob, only main" for stack in ("dev", "prod")]


@pytest.mark.parametrize("answer", ["refuse", "ignore"])
def test_a_plan_without_reviewers_is_reported(github: Fake, answer: str) -> None:
    setattr(github, answer, True)
    done = protect(github, "dev", "--reviewer", "ann", "--reviewer", "bob")
    assert done.returncode == 1
    assert done.stderr.startswith("dev: GitHub did not accept required reviewers. For private repositories they need")
    assert "--no-reviewers" in done.stderr
    assert protect(github, "dev", "--no-reviewers").returncode == 0
    assert [each["name"] for each in github.branches["dev"]] == ["main"]


@pytest.mark.parametrize(
    ("arguments", "token", "message"),
    [
        (("--reviewer", "zed"), "secret", '--reviewer: "zed" is not a user of GitHub. Write a login name.'),
        (("--no-reviewers",), "wrong", "GitHub refused: 401 "),
        (("--no-reviewers",), "", "GITHUB_TOKEN is not set."),
    ],
)
def test_what_is_wrong_is_one_line(github: Fake, arguments: tuple[str, ...], token: str, message: str) -> None:
    done = protect(github, "dev", *arguments, token=token)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1


def test_one_reviewer_is_told_that_somebody_else_must_start_the_deployment(github: Fake) -> None:
    assert protect(github, "dev", "--reviewer", "ann").stdout.startswith("Note: nobody can approve their own")


def test_without_a_choice_nothing_is_changed(github: Fake) -> None:
    assert protect(github, "dev").returncode == 2
    assert github.environments == {}
