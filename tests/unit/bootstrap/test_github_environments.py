"""The environments get reviewers and one branch, and main gets rules."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.github_environments import main
from settings.schema import PROJECT
from tests.unit.fake_github import TOKEN, Done, FakeGitHub, run, serving

USERS = {"ann": 1, "bob": 2}
RULESETS, UPGRADE = "/repos/octo/paddle/rulesets", "Upgrade to GitHub Pro or make this repository public"
ENVIRONMENT = re.compile(r"/repos/octo/paddle/environments/([^/]+)(/deployment-branch-policies)?(?:/(\d+))?")


class Repository(FakeGitHub):
    """Environments with their protection, and the rulesets. GitHub can refuse or ignore them."""

    def __init__(self) -> None:
        super().__init__()
        self.environments: dict[str, dict[str, Any]] = {}
        self.branches: dict[str, list[dict[str, Any]]] = {}
        self.refuse, self.ignore = False, False
        self.unknown_reviewer, self.every_branch = 0, False
        self.rulesets: dict[int, dict[str, Any]] = {}
        self.without_rulesets = False
        self.ignored_rule = ""
        self.unknown_owners: list[dict[str, Any]] | None = []

    def respond(self, method: str, path: str, content: Any) -> tuple[int, object]:
        if found := re.fullmatch(r"/users/(\w+)", path):
            return (200, {"id": USERS[found[1]]}) if found[1] in USERS else (404, {})
        if path == "/repos/octo/paddle/codeowners/errors?ref=main":
            return (404, {}) if self.unknown_owners is None else (200, {"errors": self.unknown_owners})
        if path.startswith("/repos/octo/paddle/rules/branches/main?"):
            active = [rule for each in self.rulesets.values() if applies(each) for rule in each["rules"]]
            return 200, [added(rule) for rule in active if rule["type"] != self.ignored_rule]
        if path.startswith(RULESETS):
            return self.respond_about_rulesets(method, path, content)
        asked = ENVIRONMENT.fullmatch(path)
        assert asked, path
        name, branches, number = asked[1], asked[2], asked[3]
        if branches:
            return self.respond_about_branches(method, name, number, content)
        if method == "GET":
            return 200, {"protection_rules": self.protection_rules(name)}
        if content["reviewers"] and self.refuse:
            return 422, {"message": "Failed to create the environment protection rule."}
        self.environments[name] = content
        return 200, {}

    def respond_about_rulesets(self, method: str, path: str, content: Any) -> tuple[int, object]:
        if method == "GET":
            listed = [{"id": number, "name": each["name"]} for number, each in self.rulesets.items()]
            return (403, {"message": UPGRADE}) if self.without_rulesets else (200, listed)
        number = int(path.rpartition("/")[2]) if method == "PUT" else len(self.rulesets) + 1
        assert (number in self.rulesets) == (method == "PUT")
        self.rulesets[number] = content
        return 200, {}

    def respond_about_branches(self, method: str, name: str, number: str, content: Any) -> tuple[int, object]:
        policies = self.branches.setdefault(name, [])
        if method == "DELETE":
            self.branches[name] = [each for each in policies if str(each["id"]) != number]
            return 204, None
        if method == "POST":
            policies.append({"id": 9, **content})
        return 200, {"branch_policies": policies}

    def protection_rules(self, name: str) -> list[dict[str, Any]]:
        given = self.environments[name]
        stored = [each["id"] for each in given["reviewers"] if each["id"] != self.unknown_reviewer]
        reviewers = [{"type": "User", "reviewer": {"id": each}} for each in stored]
        rules: list[dict[str, Any]] = [] if self.every_branch else [{"type": "branch_policy"}]
        if reviewers and not self.ignore:
            prevents = given["prevent_self_review"]
            rules.append({"type": "required_reviewers", "reviewers": reviewers, "prevent_self_review": prevents})
        return rules


def applies(ruleset: dict[str, Any]) -> bool:
    """Whether GitHub applies the ruleset to main."""
    names = ruleset["conditions"]["ref_name"]["include"]
    return ruleset["enforcement"] == "active" and ruleset["target"] == "branch" and "refs/heads/main" in names


def added(rule: dict[str, Any]) -> dict[str, Any]:
    """The rule as GitHub returns it: with more parameters, and lists in another order."""
    given = {
        key: value[::-1] if isinstance(value, list) else value for key, value in rule.get("parameters", {}).items()
    }
    return {**rule, "parameters": {**given, "allowed_merge_methods": ["merge"]}, "ruleset_id": 1}


@pytest.fixture
def github() -> Iterator[Repository]:
    with serving(Repository()) as server:
        yield server


def protect(github: Repository, *arguments: str, token: str = TOKEN) -> Done:
    return run(main, "octo/paddle", *arguments, GITHUB_API_URL=github.address, GITHUB_TOKEN=token)


def test_the_command_of_the_documentation(github: Repository) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bootstrap.github_environments", "octo/paddle", "dev", "--no-reviewers"],
        cwd=PROJECT,
        env={**os.environ, "GITHUB_API_URL": github.address, "GITHUB_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(github.environments) == {"dev"}


def test_each_environment_gets_the_reviewers_and_only_the_branch_main(github: Repository) -> None:
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
    assert done.stdout.splitlines() == [
        *(f"{stack}: approval by ann, bob, only main" for stack in ("dev", "prod")),
        "main: reviews by code owners, and the checks previewed, test, unit (3.10), unit (3.14)",
        "CODEOWNERS: GitHub knows all owners",
    ]


@pytest.mark.parametrize("reviewers", [("--no-reviewers",), ("--reviewer", "ann", "--reviewer", "bob")])
def test_main_changes_only_by_reviewed_pull_requests_with_passed_checks(
    github: Repository, reviewers: tuple[str, ...]
) -> None:
    others = {
        "name": "theirs",
        "target": "tag",
        "enforcement": "active",
        "rules": [],
        "conditions": {"ref_name": {"include": []}},
    }
    github.rulesets[1] = others
    for _ in range(2):
        done = protect(github, "dev", *reviewers)
        assert done.returncode == 0, done.stderr
    assert set(github.rulesets) == {1, 2}, "the second run changes the ruleset of the first one"
    assert github.rulesets[1] == others
    ruleset = github.rulesets[2]
    assert applies(ruleset)
    assert ruleset["bypass_actors"] == ruleset["conditions"]["ref_name"]["exclude"] == []
    rules = {rule["type"]: rule.get("parameters") for rule in ruleset["rules"]}
    assert set(rules) == {"deletion", "non_fast_forward", "pull_request", "required_status_checks"}
    review = rules["pull_request"]
    assert review["required_approving_review_count"] == 1
    assert review["require_code_owner_review"] is True
    assert review["dismiss_stale_reviews_on_push"] is True
    assert review["require_last_push_approval"] is True
    checks = rules["required_status_checks"]
    assert checks["strict_required_status_checks_policy"] is True
    assert {each["integration_id"] for each in checks["required_status_checks"]} == {15368}, "only GitHub Actions"


OWNERS = ".github/CODEOWNERS: {} Write users or teams with write access there"
ONE, TWO, NONE = ("--reviewer", "zed"), ("--reviewer", "ann", "--reviewer", "bob"), ("--no-reviewers",)


@pytest.mark.parametrize(
    ("behaviour", "arguments", "message"),
    [
        ({"refuse": True}, TWO, "dev: GitHub did not accept required reviewers. For private repositories they need"),
        ({"ignore": True}, TWO, "dev: GitHub did not accept required reviewers. For private repositories they need"),
        ({"unknown_reviewer": 2}, TWO, "dev: GitHub did not accept required reviewers."),
        ({"every_branch": True}, NONE, "dev: GitHub did not limit the branches."),
        (
            {"without_rulesets": True},
            TWO,
            "main: GitHub protects branches of a private repository only in a paid plan.",
        ),
        *(
            ({"ignored_rule": rule}, NONE, f"main: GitHub stored the ruleset but does not apply its rules {rule}.\n")
            for rule in ("deletion", "non_fast_forward", "pull_request", "required_status_checks")
        ),
        (
            {"unknown_owners": [{"line": 3, "kind": "Unknown owner"}]},
            NONE,
            OWNERS.format("GitHub ignores some owners (line 3: Unknown owner)."),
        ),
        ({"unknown_owners": None}, NONE, OWNERS.format("main has no such file.")),
        ({}, ONE, '--reviewer: "zed" is not a user of GitHub. Write a login name.'),
    ],
)
def test_what_github_does_not_do_is_one_line(
    github: Repository, behaviour: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    vars(github).update(behaviour)
    done = protect(github, "dev", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1
    assert set(github.environments) == (set() if "refuse" in behaviour or arguments == ONE else {"dev"})
    assert ("CODEOWNERS" in done.stdout) is ("unknown_owners" not in behaviour and arguments != ONE)
    assert ("--no-reviewers" in done.stderr) is ("accept required reviewers" in message)


def test_all_problems_are_reported_together(github: Repository) -> None:
    github.refuse, github.without_rulesets, github.unknown_owners = True, True, None
    done = protect(github, "dev", "--reviewer", "ann", "--reviewer", "bob")
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["dev", "main", ".github/CODEOWNERS"]


def test_without_reviewers_a_plan_that_has_none_is_enough(github: Repository) -> None:
    github.refuse = True
    assert protect(github, "dev", "--no-reviewers").returncode == 0
    assert [each["name"] for each in github.branches["dev"]] == ["main"]


@pytest.mark.parametrize(("token", "message"), [("wrong", "GitHub refused: 401 "), ("", "GITHUB_TOKEN is not set.")])
def test_a_token_that_does_not_work_is_reported(github: Repository, token: str, message: str) -> None:
    done = protect(github, "dev", "--no-reviewers", token=token)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith(message)


def test_one_reviewer_is_told_that_somebody_else_must_start_the_deployment(github: Repository) -> None:
    assert protect(github, "dev", "--reviewer", "ann").stdout.startswith("Note: nobody can approve their own")


def test_without_a_choice_nothing_is_changed(github: Repository) -> None:
    assert protect(github, "dev").returncode == 2
    assert github.environments == {}
