"""Protects the environments and the branch `main`: `python -m bootstrap.github_environments OWNER/NAME dev`.

A deployment of a stack waits until one of the reviewers approves it, and only the branch `main` can deploy. Only
reviewed pull requests with passed checks change `main`. The token in GITHUB_TOKEN needs the right to administer the
repository.
"""

import argparse
import os
import urllib.error
from collections.abc import Callable, Sequence
from functools import partial

from bootstrap.github_main import BRANCH, CHECKS, RefusedError, check_code_owners, message_of, protect_main, refused
from tools.github_client import GitHub

NO_PLAN = (
    "GitHub did not accept required reviewers. For private repositories they need the Enterprise plan. "
    "Run this command with --no-reviewers: it still requires a review for each change of the branch main."
)


def protect(github: GitHub, environment: str, reviewers: Sequence[int]) -> None:
    """Create the environment or replace its protection, and check what GitHub stored."""
    path = f"/environments/{environment}"
    wanted = {
        "prevent_self_review": bool(reviewers),
        "reviewers": [{"type": "User", "id": each} for each in reviewers],
        "deployment_branch_policy": {"protected_branches": False, "custom_branch_policies": True},
    }
    try:
        github.of_repository("PUT", path, wanted)
    except urllib.error.HTTPError as error:
        if error.code == 422 and reviewers:
            raise RefusedError(f"{environment}: {NO_PLAN} ({message_of(error)})") from None
        raise
    branches = github.of_repository("GET", f"{path}/deployment-branch-policies")["branch_policies"]
    for each in branches:
        if each["name"] != BRANCH:
            github.of_repository("DELETE", f"{path}/deployment-branch-policies/{each['id']}")
    if BRANCH not in [each["name"] for each in branches]:
        github.of_repository("POST", f"{path}/deployment-branch-policies", {"name": BRANCH})
    rules = {rule["type"]: rule for rule in github.of_repository("GET", path)["protection_rules"]}
    review = rules.get("required_reviewers", {})
    stored = {each["reviewer"]["id"] for each in review.get("reviewers", ())}
    if stored != set(reviewers) or (reviewers and not review.get("prevent_self_review")):
        raise RefusedError(f"{environment}: {NO_PLAN}")
    if "branch_policy" not in rules:
        raise RefusedError(
            f"{environment}: GitHub did not limit the branches. For private repositories this needs a paid plan."
        )


def user(github: GitHub, login: str) -> int:
    """The number of a user."""
    try:
        return int(github.ask("GET", f"/users/{login}")["id"])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise RefusedError(f'--reviewer: "{login}" is not a user of GitHub. Write a login name.') from None
        raise


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bootstrap.github_environments", description=__doc__)
    parser.add_argument("repository", help="OWNER/NAME")
    parser.add_argument("stacks", nargs="+", help="the stacks; each gets an environment of the same name")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument(
        "--reviewer", action="append", default=[], metavar="LOGIN", help="a user who may approve; up to six"
    )
    who.add_argument("--no-reviewers", action="store_true", help="deploy without approval")
    given = parser.parse_args()
    if len(given.reviewer) == 1:
        print("Note: nobody can approve their own deployment. With one reviewer, somebody else must start it.")
    token = os.environ.get("GITHUB_TOKEN")
    if not token:
        raise SystemExit('GITHUB_TOKEN is not set. Run: export GITHUB_TOKEN="$(gh auth token)"')
    github = GitHub(os.environ.get("GITHUB_API_URL", "https://api.github.com"), given.repository, token)
    try:
        reviewers = [user(github, login) for login in given.reviewer]
        approval = f"approval by {', '.join(given.reviewer)}" if reviewers else "no approval"
        steps: list[tuple[Callable[[GitHub], None], str]] = [
            (partial(protect, environment=stack, reviewers=reviewers), f"{stack}: {approval}, only {BRANCH}")
            for stack in given.stacks
        ]
        steps.append((protect_main, f"{BRANCH}: reviews by code owners, and the checks {', '.join(CHECKS)}"))
        steps.append((check_code_owners, "CODEOWNERS: GitHub knows all owners"))
        problems = [problem for step, done in steps if (problem := _problem(step, github, done))]
    except RefusedError as error:
        problems = [str(error)]
    except urllib.error.HTTPError as error:
        problems = [refused(error, message_of(error), given.repository)]
    except OSError as error:
        problems = [f"Cannot reach GitHub: {error}. Run the command again."]
    if problems:
        raise SystemExit("\n".join(dict.fromkeys(problems)))


def _problem(step: Callable[[GitHub], None], github: GitHub, done: str) -> str:
    """Run one step and print the result. Returns the problem, so that the other steps run too."""
    try:
        step(github)
    except RefusedError as error:
        return str(error)
    print(done)
    return ""


if __name__ == "__main__":
    main()
