"""Protects the branch `main` on GitHub: only reviewed pull requests with passed checks change it."""

import json
import urllib.error
from collections.abc import Mapping
from typing import Any

from tools.github_client import GitHub

BRANCH = "main"
RULESET = "paddle-on-aws: main"
# The jobs of .github/workflows that run for each pull request. `previewed` stands for the previews of all stacks.
CHECKS = ("previewed", "test", "unit (3.10)", "unit (3.14)")
# The number of GitHub Actions. Without it, everybody who can push could report a check as passed.
ACTIONS = 15368
RULES: tuple[Mapping[str, Any], ...] = (
    {"type": "deletion"},
    {"type": "non_fast_forward"},
    {
        "type": "pull_request",
        "parameters": {
            "dismiss_stale_reviews_on_push": True,
            "require_code_owner_review": True,
            "require_last_push_approval": True,
            "required_approving_review_count": 1,
            "required_review_thread_resolution": False,
        },
    },
    {
        "type": "required_status_checks",
        "parameters": {
            "required_status_checks": [{"context": name, "integration_id": ACTIONS} for name in CHECKS],
            # The base of the preview and the tests is then the newest commit of main.
            "strict_required_status_checks_policy": True,
        },
    },
)
NO_PLAN = (
    f"{BRANCH}: GitHub protects branches of a private repository only in a paid plan. Without it, everybody who can "
    f"push can change {BRANCH}, and so deploy."
)


class RefusedError(Exception):
    """GitHub refused a request, or ignored a part of it. The message is one line for the user."""


def protect_main(github: GitHub) -> None:
    """Create the ruleset of the branch or replace it, and check which rules GitHub applies."""
    wanted = {
        "name": RULESET,
        "target": "branch",
        "enforcement": "active",
        "bypass_actors": [],
        "conditions": {"ref_name": {"include": [f"refs/heads/{BRANCH}"], "exclude": []}},
        "rules": RULES,
    }
    try:
        known = {
            each["name"]: each["id"]
            for each in github.of_repository("GET", "/rulesets?includes_parents=false&per_page=100")
        }
        if RULESET in known:
            github.of_repository("PUT", f"/rulesets/{known[RULESET]}", wanted)
        else:
            github.of_repository("POST", "/rulesets", wanted)
        active = github.of_repository("GET", f"/rules/branches/{BRANCH}?per_page=100")
    except urllib.error.HTTPError as error:
        if error.code != 403:
            raise
        why = message_of(error)
        raise RefusedError(NO_PLAN if "pgrade" in why else refused(error, why, github.repository)) from None
    missing = [rule["type"] for rule in RULES if not any(_contains(each, rule) for each in active)]
    if missing:
        raise RefusedError(f"{BRANCH}: GitHub stored the ruleset but does not apply its rules {', '.join(missing)}.")


def check_code_owners(github: GitHub) -> None:
    """GitHub ignores an owner that does not exist or cannot push, and then requires no review by an owner."""
    instead = f"Write users or teams with write access there, merge this into {BRANCH}, and run this command again."
    try:
        errors = github.of_repository("GET", f"/codeowners/errors?ref={BRANCH}")["errors"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise RefusedError(f".github/CODEOWNERS: {BRANCH} has no such file. {instead}") from None
        raise
    if errors:
        lines = "; ".join(f"line {each['line']}: {each['kind']}" for each in errors)
        raise RefusedError(f".github/CODEOWNERS: GitHub ignores some owners ({lines}). {instead}")


def refused(error: urllib.error.HTTPError, why: str, repository: str) -> str:
    return f"GitHub refused: {error.code} {why}. The token must be allowed to administer {repository}."


def message_of(error: urllib.error.HTTPError) -> str:
    return error.read().decode(errors="replace")[:300]


def _contains(active: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an active rule is the wanted one. GitHub can add parameters and change the order of lists."""
    given = active.get("parameters") or {}
    parameters = wanted.get("parameters", {}).items()
    return active["type"] == wanted["type"] and all(
        _sorted(given.get(key)) == _sorted(value) for key, value in parameters
    )


def _sorted(value: Any) -> Any:
    return sorted(value, key=json.dumps) if isinstance(value, list) else value
