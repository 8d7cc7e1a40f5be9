"""The server process of the emulated AWS."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any


def test_one_request_is_handled_at_a_time() -> None:
    # moto takes a second to import, in each process of pytest.
    from sandbox.cloud.server import one_at_a_time

    inside, most = 0, 0

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        yield b"x"
        inside -= 1

    answer = one_at_a_time(application)
    threads = [threading.Thread(target=lambda: list(answer({}, print))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == 1


def test_a_used_port_is_reported_in_one_line(aws_url: str) -> None:
    command = [sys.executable, "-m", "sandbox.cloud.server", "--port", aws_url.rpartition(":")[2]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "cannot listen on this port of 127.0.0.1. Use a free port." in ended.stderr
    assert "Traceback" not in ended.stderr
