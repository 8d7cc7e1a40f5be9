"""What all tests share."""

from __future__ import annotations

import gc

import pytest

from sandbox import build

# The provider SDKs are millions of objects. With the default, Python searches them for garbage all the time.
gc.set_threshold(100_000)


@pytest.fixture(scope="session")
def cached() -> None:
    """Build the tools with the user's own home, before any test replaces it."""
    build.tools()
    build.engine()  # also if another `pulumi` is on PATH


def pytest_sessionfinish() -> None:
    # pytest-xdist interrupts a process that is still busy with this at its end.
    gc.collect()
