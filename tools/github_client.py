"""The GitHub API for one repository."""

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

SECONDS = 30


@dataclass(frozen=True)
class GitHub:
    api: str
    repository: str
    token: str

    def of_repository(self, method: str, path: str, content: object = None) -> Any:
        return self.ask(method, f"/repos/{self.repository}{path}", content)

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """The decoded answer; None if it is empty. An error status raises HTTPError."""
        request = urllib.request.Request(
            self.api + path,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            return json.loads(reply.read() or b"null")
