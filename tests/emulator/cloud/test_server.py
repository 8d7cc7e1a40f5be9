"""The server process of the emulated AWS."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

Aws = Callable[[str], Any]
TRUST = '{"Version": "2012-10-17", "Statement": []}'


def test_a_used_port_is_reported_in_one_line(aws_url: str) -> None:
    command = [sys.executable, "-m", "sandbox.cloud.server", "--port", aws_url.rpartition(":")[2]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "cannot listen on this port of 127.0.0.1. Use a free port." in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("service", "operation", "parameters"),
    [
        ("ec2", "create_vpc", {"CidrBlock": "10.30.0.0/16"}),
        ("iam", "create_role", {"RoleName": "once", "AssumeRolePolicyDocument": TRUST}),
        ("kms", "create_key", {}),
        ("efs", "create_file_system", {"CreationToken": "once"}),
        ("route53", "create_hosted_zone", {"Name": "once.example", "CallerReference": "once"}),
        ("s3", "create_bucket", {"Bucket": "once", "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}),
    ],
    ids=["EC2", "query", "JSON", "REST-JSON", "REST-XML", "S3"],
)
def test_a_repeated_call_gets_the_first_answer(
    aws: Aws, service: str, operation: str, parameters: dict[str, Any]
) -> None:
    answers: list[tuple[int, bytes]] = []

    def send_twice(request: Any, **_: Any) -> Any:
        answered = [URLLib3Session().send(request) for _ in range(2)]
        answers.extend((each.status_code, each.content) for each in answered)
        return answered[0]

    client = aws(service)
    client.meta.events.register("before-send", send_twice, unique_id="once")
    getattr(client, operation)(**parameters)
    client.meta.events.unregister("before-send", unique_id="once")
    assert answers[0] == answers[1]


def test_a_repeated_call_waits_for_the_first_one_and_few_answers_are_kept() -> None:
    # moto takes a second to import, in each process of pytest.
    from sandbox.cloud.repeated_calls import answered_once
    from sandbox.cloud.server import one_at_a_time

    calls: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        calls.append(environ["HTTP_AMZ_SDK_INVOCATION_ID"])
        begun.set()
        assert may_end.wait(60)
        start_response(environ["status"], [])
        return [str(len(calls)).encode()]

    answer = one_at_a_time(answered_once(application, kept=2))

    def call(invocation: str, status: str = "200 OK") -> bytes:
        return b"".join(answer({"HTTP_AMZ_SDK_INVOCATION_ID": invocation, "status": status}, lambda *_: None))

    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, "a")
        assert begun.wait(60)
        again = threads.submit(call, "a")
        may_end.set()
        assert (first.result(), again.result()) == (b"1", b"1")
    assert [call("b"), call("b"), call("c"), call("a")] == [b"2", b"2", b"3", b"4"]
    # A call that failed has changed nothing.
    assert [call("failed", "500 Error"), call("failed")] == [b"5", b"6"]


def test_headers_and_body_are_sent_in_one_piece() -> None:
    from sandbox.cloud.server import RequestHandler

    server = make_server("127.0.0.1", 0, Response("the body"), request_handler=RequestHandler)
    # A socket of this type keeps apart what two calls send.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with server.socket, ours, theirs:
        for expectation in ("", "Expect: 100-continue\r\n"):
            ours.send(f"GET / HTTP/1.1\r\n{expectation}\r\n".encode())
            server.finish_request(theirs, ("127.0.0.1", 0))
            if expectation:
                assert ours.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
            answer = ours.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
            assert answer.endswith(b"\r\n\r\nthe body")
