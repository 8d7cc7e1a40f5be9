"""The comment is created once and then updated."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from settings.schema import PROJECT
from tests.unit.fake_github import TOKEN, Done, FakeGitHub, run, serving
from tools.preview.comment import main

BODY = "<!-- paddle-on-aws preview of dev -->\n\n1 replaced\n"


class Comments(FakeGitHub):
    """The comments of one pull request, and a list of the requested changes."""

    def __init__(self) -> None:
        super().__init__()
        self.comments: list[dict[str, Any]] = []
        self.changes: list[str] = []
        self.refuse = 0

    def put(self, body: str, kind: str = "Bot") -> None:
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"type": kind}})

    def respond(self, method: str, path: str, content: Any) -> tuple[int, object]:
        if self.refuse:
            return self.refuse, {"message": "no"}
        if method == "GET":
            asked = re.fullmatch(r"/repos/me/it/issues/7/comments\?per_page=(\d+)&page=(\d+)", path)
            assert asked, path
            size, page = int(asked[1]), int(asked[2])
            return 200, self.comments[size * (page - 1) : size * page]
        if method == "POST":
            assert path == "/repos/me/it/issues/7/comments"
            self.put(content["body"])
            return self.changed("created", self.comments[-1])
        asked = re.fullmatch(r"/repos/me/it/issues/comments/(\d+)", path)
        assert (method, bool(asked)) == ("PATCH", True), path
        (found,) = (comment for comment in self.comments if asked and comment["id"] == int(asked[1]))
        found["body"] = content["body"]
        return self.changed("updated", found)

    def changed(self, what: str, comment: dict[str, Any]) -> tuple[int, object]:
        self.changes.append(f"{what} {comment['id']}")
        return 200, {"html_url": f"https://github.example/{comment['id']}"}


@pytest.fixture
def github() -> Iterator[Comments]:
    with serving(Comments()) as server:
        yield server


def environment(github: Comments) -> dict[str, str]:
    return {"GITHUB_API_URL": github.address, "GITHUB_REPOSITORY": "me/it", "GITHUB_TOKEN": TOKEN}


def post(github: Comments, body: str = BODY, **more: str) -> Done:
    return run(main, "7", stdin=body, **{**environment(github), **more})


def test_the_command_of_the_workflow(github: Comments) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.preview.comment", "7"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], **environment(github)},
        input=BODY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "https://github.example/1\n"), done.stderr


def test_created_once_then_updated(github: Comments) -> None:
    github.put("Nice work!", "User")
    first = post(github)
    assert (first.returncode, first.stdout) == (0, "https://github.example/2\n"), first.stderr
    post(github, BODY.replace("1 replaced", "nothing"))
    assert github.changes == ["created 2", "updated 2"]
    assert github.comments[1]["body"] == BODY.replace("1 replaced", "nothing")


def test_each_stack_has_its_own_comment(github: Comments) -> None:
    post(github)
    post(github, BODY.replace("of dev", "of prod"))
    post(github, BODY.replace("of dev", "of dev-2"))
    assert github.changes == ["created 1", "created 2", "created 3"]


@pytest.mark.parametrize(
    ("remarks", "ours", "changes"),
    [
        (230, 215, ["updated 216"]),
        (0, None, ["created 1"]),
        (99, None, ["created 100"]),
        (100, None, ["created 101"]),
        (200, None, ["created 201"]),
    ],
)
def test_the_comment_is_searched_on_all_pages(
    github: Comments, remarks: int, ours: int | None, changes: list[str]
) -> None:
    for i in range(remarks):
        github.put(BODY if i == ours else f"remark {i}")
    assert post(github).returncode == 0
    assert github.changes == changes


def test_the_comment_of_a_person_is_never_changed(github: Comments) -> None:
    github.put(BODY, "User")
    github.put(f"quoted:\n{BODY}")
    post(github)
    assert github.changes == ["created 3"]


def test_an_empty_preview_changes_no_comment(github: Comments) -> None:
    github.put("another tool's report")
    done = post(github, "")
    assert done.returncode == 1
    assert github.changes == []
    assert "There is no comment to post" in done.stderr


@pytest.mark.parametrize(
    ("refuse", "changed", "said"),
    [
        (403, {}, "GitHub refused the comment on #7: 403"),
        (0, {"GITHUB_API_URL": "http://127.0.0.1:9"}, "Cannot reach GitHub to comment on #7"),
    ],
)
def test_an_error_is_one_line(github: Comments, refuse: int, changed: dict[str, str], said: str) -> None:
    github.refuse = refuse
    done = post(github, **changed)
    assert done.returncode == 1
    assert done.stderr.startswith(said), done.stderr
    assert TOKEN not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_outside_a_workflow_the_error_names_the_missing_variable() -> None:
    said = "GITHUB_API_URL is not set. GitHub sets it in a workflow: run this command there.\n"
    assert run(main, "7", stdin=BODY) == Done(1, "", said)
