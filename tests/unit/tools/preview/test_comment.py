"""The comment is created once and then updated. A local HTTP server plays the role of GitHub."""

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

BODY = "<!-- paddle-on-aws preview of dev -->\n\n1 replaced\n"
TOKEN = "token-of-this-run"


class Fake(ThreadingHTTPServer):
    """The comments of one pull request, and a list of the requested changes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: list[dict[str, Any]] = []
        self.changes: list[str] = []
        self.refuse = 0

    def put(self, body: str, kind: str = "Bot") -> None:
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"type": kind}})


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        asked = re.fullmatch(r"/repos/me/it/issues/7/comments\?per_page=(\d+)&page=(\d+)", self.path)
        assert asked, self.path
        size, page = int(asked[1]), int(asked[2])
        self.answer(self.server.comments[size * (page - 1) : size * page])

    def do_POST(self) -> None:
        assert self.path == "/repos/me/it/issues/7/comments"
        self.server.put(self.content()["body"])
        self.changes("created", self.server.comments[-1])

    def do_PATCH(self) -> None:
        asked = re.fullmatch(r"/repos/me/it/issues/comments/(\d+)", self.path)
        assert asked, self.path
        (found,) = (comment for comment in self.server.comments if comment["id"] == int(asked[1]))
        found["body"] = self.content()["body"]
        self.changes("updated", found)

    def changes(self, what: str, comment: dict[str, Any]) -> None:
        self.server.changes.append(f"{what} {comment['id']}")
        self.answer({"html_url": f"https://github.example/{comment['id']}"})

    def content(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, content: object) -> None:
        right = self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.send_response(self.server.refuse or (200 if right else 401))
        self.end_headers()
        self.wfile.write(json.dumps({"message": "no"} if self.server.refuse else content).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def github() -> Iterator[Fake]:
    with Fake() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def post(github: Fake, body: str = BODY, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}", "GITHUB_REPOSITORY": "me/it"}
    return subprocess.run(
        [sys.executable, "-m", "tools.preview.comment", "7"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "GITHUB_TOKEN": TOKEN, **given, **environment},
        input=body,
        capture_output=True,
        text=True,
        check=False,
    )


def test_created_once_then_updated(github: Fake) -> None:
    github.put("Nice work!", "User")
    first = post(github)
    assert (first.returncode, first.stdout) == (0, "https://github.example/2\n"), first.stderr
    post(github, BODY.replace("1 replaced", "nothing"))
    assert github.changes == ["created 2", "updated 2"]
    assert github.comments[1]["body"] == BODY.replace("1 replaced", "nothing")


def test_each_stack_has_its_own_comment(github: Fake) -> None:
    post(github)
    post(github, BODY.replace("of dev", "of prod"))
    post(github, BODY.replace("of dev", "of dev-2"))
    assert github.changes == ["created 1", "created 2", "created 3"]


def test_the_comment_is_found_on_a_later_page(github: Fake) -> None:
    for i in range(230):
        github.put(BODY if i == 215 else f"remark {i}")
    post(github)
    assert github.changes == ["updated 216"]


@pytest.mark.parametrize("remarks", [0, 99, 100, 200])
def test_pages_come_to_an_end(github: Fake, remarks: int) -> None:
    for i in range(remarks):
        github.put(f"remark {i}")
    assert post(github).returncode == 0
    assert github.changes == [f"created {remarks + 1}"]


def test_the_comment_of_a_person_is_never_changed(github: Fake) -> None:
    github.put(BODY, "User")
    github.put(f"quoted:\n{BODY}")
    post(github)
    assert github.changes == ["created 3"]


def test_an_empty_preview_changes_no_comment(github: Fake) -> None:
    github.put("another tool's report")
    done = post(github, "")
    assert done.returncode == 1
    assert github.changes == []
    assert "There is no comment to post" in done.stderr


@pytest.mark.parametrize(
    ("refuse", "environment", "said"),
    [
        (403, {}, "GitHub refused the comment on #7: 403"),
        (0, {"GITHUB_API_URL": "http://127.0.0.1:9"}, "Cannot reach GitHub to comment on #7"),
    ],
)
def test_an_error_is_one_line(github: Fake, refuse: int, environment: dict[str, str], said: str) -> None:
    github.refuse = refuse
    done = post(github, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith(said), done.stderr
    assert TOKEN not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_outside_a_workflow_the_error_names_the_missing_variable() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.preview.comment", "7"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"]},
        input=BODY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "GITHUB_API_URL is not set. GitHub sets it in a workflow: run this command there.\n"
