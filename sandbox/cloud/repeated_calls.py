"""Answers a repeated call with its first answer.

An SDK repeats a call with the same invocation ID if the connection breaks before the answer is complete. If the first
attempt has created something, a second one would fail or create a second object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from sandbox.cloud.recorded_calls import Application, Environment

KEPT = 500
# A larger answer is that of a call that reads.
LARGEST = 1 << 16


def answered_once(application: Application, kept: int = KEPT) -> Application:
    """The application with its last answers. Needs `one_at_a_time`, so that a repeated call waits for the first."""
    answers: OrderedDict[str, tuple[list[Any], bytes]] = OrderedDict()

    def answer(environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        invocation = environ.get("HTTP_AMZ_SDK_INVOCATION_ID", "")
        if invocation not in answers:
            started: list[Any] = []

            def start(*status_and_headers: Any) -> Callable[..., Any]:
                started[:] = status_and_headers
                return lambda data: None

            body = b"".join(application(environ, start))
            # A call that failed has changed nothing, so it can be repeated.
            if not invocation or not started[0].startswith("2") or len(body) > LARGEST:
                start_response(*started)
                return [body]
            answers[invocation] = started, body
            if len(answers) > kept:
                answers.popitem(last=False)
        started, body = answers[invocation]
        start_response(*started)
        return [body]

    return answer
