"""One request to the GitHub API."""

import json
import urllib.request
from typing import Any

SECONDS = 30


def ask(api: str, token: str, method: str, path: str, content: object = None) -> Any:
    """The decoded answer; None if it is empty. An error status raises HTTPError."""
    request = urllib.request.Request(
        api + path,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as reply:
        return json.loads(reply.read() or b"null")
