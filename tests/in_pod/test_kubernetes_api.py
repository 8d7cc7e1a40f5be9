"""The API client against a server with a CA of its own: pages, watches and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_api
import pytest

from tests.in_pod.api import FakeApi, make_certificate, make_pod

PATH = "/api/v1/namespaces/default/pods"


class Following:
    """follow() in a thread: the objects that it yielded last, and the errors that it reported."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.names: set[str] = set()
        self.reported: list[str] = []
        self.stopped = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for objects in kubernetes_api.follow(PATH, {"labelSelector": "job-name=job"}, self.reported.append):
            self.names = set(objects)
            if self.stopped:
                return

    def stop(self) -> None:
        """End the thread; a last change wakes it."""
        self.stopped = True
        add(self.api, 1)
        self.thread.join(120)
        assert not self.thread.is_alive()

    def wait_for(self, names: set[str]) -> None:
        self.wait_until(lambda: self.names == names)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline, f"yielded {self.names}, reported {self.reported}"
            time.sleep(0.01)


@pytest.fixture
def following(api: FakeApi) -> Iterator[Following]:
    follower = Following(api)
    yield follower
    follower.stop()


def add(api: FakeApi, count: int) -> set[str]:
    """Add pods, and return the names of all."""
    for index in range(count):
        api.put(make_pod("job", index, f"127.64.1.{index % 250}"))
    return set(api.objects)


def test_a_long_list_is_read_in_pages(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "PAGE", 4)
    names = add(api, 10)
    objects, version = kubernetes_api.list_all(PATH, {"labelSelector": "job-name=job"})
    assert set(objects) == names
    assert version == str(api.version)
    assert [query["limit"] for query in api.requests] == ["4", "4", "4"]
    assert all(query["labelSelector"] == "job-name=job" for query in api.requests)


def test_one_watch_reports_all_changes_and_continues_after_interruptions(api: FakeApi, following: Following) -> None:
    following.wait_for(add(api, 2))
    names = add(api, 3)
    following.wait_for(names)
    gone = sorted(names)[0]
    api.delete(gone)
    following.wait_for(names - {gone})
    assert len(api.requests) == 2, "one list, one watch"
    for _ in range(3):
        api.disconnect()
        following.wait_for(add(api, 1))
    assert sum(not query.get("watch") for query in api.requests) == 1, "no second list"


def test_after_410_from_a_watch_or_an_outage_the_list_is_requested_again(api: FakeApi, following: Following) -> None:
    following.wait_for(add(api, 3))
    with api.changed:
        api.objects.pop(sorted(api.objects)[0])
        api.version += 1
        api.forget()
        api.changed.notify_all()
    following.wait_for(set(api.objects))
    api.stop()
    add(api, 2)
    following.wait_until(lambda: any("the API server does not answer" in each for each in following.reported))
    api.forget()
    api.start()
    following.wait_for(set(api.objects))


def test_after_410_between_two_pages_the_list_is_requested_again(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "PAGE", 2)
    names = add(api, 5)
    page = api.page

    def forget_once(handler: Any, query: dict[str, str]) -> None:
        if "continue" in query and not api.oldest:
            api.version += 1
            api.forget()
        page(handler, query)

    monkeypatch.setattr(api, "page", forget_once)
    following = Following(api)
    following.wait_for(names)
    following.stop()
    assert sum("continue" not in query for query in api.requests if not query.get("watch")) == 2


def test_the_token_is_read_for_each_request(api: FakeApi, account: Path) -> None:
    kubernetes_api.list_all(PATH, {})
    api.tokens = {"second"}
    with pytest.raises(kubernetes_api.ApiError, match="401 Unauthorized"):
        kubernetes_api.list_all(PATH, {})
    (account / "token").write_text("second\n")
    kubernetes_api.list_all(PATH, {})


@pytest.mark.parametrize("wrong", ["certificate verify failed", "Hostname mismatch"])
def test_a_server_certificate_from_another_ca_or_for_another_name_is_rejected(
    api: FakeApi, account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "Hostname mismatch":
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    else:
        make_certificate(tmp_path / "other")
        (account / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(OSError, match=wrong):
        kubernetes_api.list_all(PATH, {})
    assert not api.requests, "the token was not sent"


def test_watches_that_end_at_once_are_repeated_more_and_more_slowly_with_a_new_list(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(kubernetes_api, "events", lambda *_: iter(()))
    monkeypatch.setattr("random.uniform", lambda *_: 1.0)
    monkeypatch.setattr("time.sleep", delays.append)
    add(api, 1)
    lists = kubernetes_api.follow(PATH, {}, print)
    for _ in range(6):
        next(lists)
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(api.requests) == 6, "a new list after the second watch and after each later one"
