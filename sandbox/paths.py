"""Where this sandbox lies, and how the user calls it."""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDER = CHECKOUT / ".sandbox"


def sandbox_command() -> str:
    """The command line of the sandbox as a user in the checkout types it."""
    python = Path(sys.executable)
    return f"{python.relative_to(CHECKOUT) if python.is_relative_to(CHECKOUT) else python} -m sandbox"
