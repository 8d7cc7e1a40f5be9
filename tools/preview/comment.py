"""Writes one comment per stack on a pull request: `python -m tools.preview.comment NUMBER < comment.md`.

The first line of the comment identifies it. The workflow sets GITHUB_TOKEN, GITHUB_REPOSITORY and GITHUB_API_URL.
"""

import argparse
import os
import sys
import urllib.error
from collections.abc import Iterator
from itertools import count
from typing import Any

from tools.github_client import GitHub

PAGE = 100


def upsert(github: GitHub, number: int, body: str) -> str:
    """Update the comment that starts with the same line, or create it. Returns its URL."""
    marker = body.partition("\n")[0]
    for comment in _comments(github, number):
        # Anybody can write this line. The author of a comment can edit it, so update only comments of a bot.
        if comment["body"].startswith(marker) and comment["user"]["type"] == "Bot":
            return str(github.of_repository("PATCH", f"/issues/comments/{comment['id']}", {"body": body})["html_url"])
    return str(github.of_repository("POST", f"/issues/{number}/comments", {"body": body})["html_url"])


def _comments(github: GitHub, number: int) -> Iterator[dict[str, Any]]:
    for page in count(1):
        found = github.of_repository("GET", f"/issues/{number}/comments?per_page={PAGE}&page={page}")
        yield from found
        if len(found) < PAGE:
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.preview.comment", description=__doc__)
    parser.add_argument("number", type=int, help="the number of the pull request")
    number, body = parser.parse_args().number, sys.stdin.read()
    if not body.startswith("<!--"):
        raise SystemExit("There is no comment to post: the preview stopped before it wrote one. Its log says why.")
    try:
        github = GitHub(*(os.environ[name] for name in ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN")))
        print(upsert(github, number, body))
    except KeyError as error:
        raise SystemExit(f"{error.args[0]} is not set. GitHub sets it in a workflow: run this command there.") from None
    except urllib.error.HTTPError as error:
        why = error.read().decode(errors="replace")[:300]
        raise SystemExit(
            f"GitHub refused the comment on #{number}: {error.code} {why}. The job needs `pull-requests: write`."
        ) from None
    except OSError as error:
        raise SystemExit(f"Cannot reach GitHub to comment on #{number}: {error}. Run the job again.") from None


if __name__ == "__main__":
    main()
