"""What all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest

from sandbox import build
from sandbox.plugins import choice

# The provider SDKs are millions of objects. With the default, Python searches them for garbage all the time.
gc.set_threshold(100_000)


@pytest.fixture(scope="session")
def cached() -> None:
    """Build the tools with the user's own home, before any test replaces it."""
    build.tools()
    build.engine()  # also if another `pulumi` is on PATH


# Some tests replace the user's home.
USER = dict(os.environ)
ON_THE_ENGINE = "tests/sandbox"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failed story names the plugins of the engine."""
    report = yield
    if report.failed and item.nodeid.startswith(ON_THE_ENGINE):
        report.sections.append(("Provider plugins", choice.described(choice.found(USER))))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [each for group in ("passed", "failed", "error") for each in terminalreporter.getreports(group)]
    if any(each.nodeid.startswith(ON_THE_ENGINE) for each in reports):
        terminalreporter.write_line(f"Provider plugins of {ON_THE_ENGINE}: {choice.described(choice.found(USER))}")


def pytest_sessionfinish() -> None:
    # pytest-xdist interrupts a process that is still busy with this at its end.
    gc.collect()
