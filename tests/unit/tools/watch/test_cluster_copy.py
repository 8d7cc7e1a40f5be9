"""The copy of a cluster's objects: one list and one watch for each kind, also after errors."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.kubernetes_client import Api, ApiError, Kubeconfig, UnreachableError
from tools.watch import cluster_copy

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, version: str = "1", phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": version}, "status": {"phase": phase}}


NOTHING: tuple[str, dict[str, Any]] = ("", {})


class FakeApi(Api):
    """Answers for pods as a test says. A watch stays open, unless it has an error or no event at all."""

    def __init__(self) -> None:
        super().__init__(Kubeconfig("https://cluster", {}, {}))
        self.lists: list[list[dict[str, Any]] | Exception] = []
        self.watches: list[list[tuple[str, dict[str, Any]]]] = []
        self.log: list[bytes] = []
        self.asked: list[str] = []
        self.open = threading.Event()
        self.before_list: Callable[[], object] = lambda: None

    def request(self, method: str, path: str, *_: object, query: dict[str, str] | None = None) -> dict[str, Any]:
        if path != PODS:
            return {"items": [], "metadata": {"resourceVersion": "1"}}
        self.asked.append(f"list {(query or {})['labelSelector']}")
        self.before_list()
        answer = self.lists.pop(0) if self.lists else UnreachableError("the test is over")
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer, "metadata": {"resourceVersion": "7"}}

    def lines(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        if path.endswith("/log"):
            self.asked.append("log")
            yield from self.log
            return
        if path == PODS:
            self.asked.append(f"watch from {query['resourceVersion']}")
            events = self.watches.pop(0) if self.watches else [NOTHING]
            yield from (json.dumps({"type": kind, "object": item}).encode() for kind, item in events if kind)
            if not events:
                return
        self.open.wait()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr(cluster_copy, "RETRY_SECONDS", 0.01)
    fake = FakeApi()
    yield fake
    fake.open.set()


def followed(api: FakeApi) -> cluster_copy.Cluster:
    made = cluster_copy.Cluster(api, "default")
    made.start()
    return made


def eventually(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def names(found: cluster_copy.Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in found.copy("pods")]


def test_changes_are_applied_without_another_list(api: FakeApi) -> None:
    api.lists = [[pod("a"), pod("b")]]
    api.watches = [[("MODIFIED", pod("a", "8", "Failed")), ("DELETED", pod("b", "9")), ("ADDED", pod("c", "10"))]]
    found = followed(api)
    eventually(lambda: names(found) == ["a", "c"])
    assert found.copy("pods")[0]["status"]["phase"] == "Failed"
    assert api.asked == ["list job-name", "watch from 7"]


def test_a_watch_that_ends_at_once_leads_to_a_list_not_to_the_next_watch(api: FakeApi) -> None:
    api.lists, api.watches = [[pod("a")], [pod("b")]], [[]]
    found = followed(api)
    eventually(lambda: names(found) == ["b"] and len(api.asked) == 4)
    assert api.asked == ["list job-name", "watch from 7"] * 2


def test_a_version_that_is_too_old_leads_to_a_new_list(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles: list[str] = []
    # The threads of earlier tests report that their test is over.
    monkeypatch.setattr(cluster_copy, "advice", lambda name, error: troubles.append(str(error)))
    api.lists = [[pod("a")], [pod("b")]]
    api.watches = [[("ERROR", {"code": 410})]]
    found = followed(api)
    eventually(lambda: names(found) == ["b"])
    assert set(troubles) <= {"the test is over"}


def test_an_error_is_shown_until_the_next_list(api: FakeApi) -> None:
    api.lists = [ApiError(403, {}), UnreachableError("no route"), OSError("no certificate"), [pod("a")]]
    found = cluster_copy.Cluster(api, "default")
    shown: list[str] = []
    api.before_list = lambda: shown.append(found.trouble.get("pods", ""))
    found.start()
    eventually(lambda: names(found) == ["a"])
    assert shown[0] == ""
    assert "You have no right to list pods" in shown[1]
    assert all(shown[2:4])
    eventually(lambda: found.listed and not found.trouble)


def test_a_log_is_read_by_one_thread_and_each_line_is_given_once(api: FakeApi) -> None:
    api.lists = [[pod("a", phase="Succeeded")]]
    api.log = [b"one\n", b"\xfftwo\n"]
    found = followed(api)
    eventually(lambda: names(found) == ["a"])
    found.follow_log("a", "a")
    found.follow_log("a", "a")
    eventually(lambda: len(found.logs["a"]) == 2)
    assert found.logs_read()
    assert found.take_log("a") == ["one\n", "\ufffdtwo\n"]
    assert found.take_log("a") == []
    time.sleep(0.1)
    assert api.asked.count("log") == 1
