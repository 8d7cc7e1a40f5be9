"""What every test of the sandbox starts from."""

from __future__ import annotations

import pytest

from sandbox import build


@pytest.fixture(scope="session")
def cached() -> None:
    """The tools are built with this person's own home, once, before any test sets traps in another."""
    build.engine()
    build.control_plane()
    build.python()
