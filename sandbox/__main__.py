"""The command line: `python -m sandbox up`, `status`, `down`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from sandbox import lifecycle
from sandbox.errors import SandboxError


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description="AWS and Kubernetes on this machine.")
    commands = {"up": lifecycle.up, "down": lifecycle.down, "status": lifecycle.status}
    parser.add_argument("command", choices=commands, help="up: start all and run the program; down: leave nothing")
    parser.add_argument("--stack", default="local", help="the stack to run (default: local)")
    given = parser.parse_args(arguments)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        return commands[given.command](given.stack)
    except SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"\nsandbox: stopped; `{Path(sys.executable).name} -m sandbox {given.command}` goes on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"sandbox: {error.filename or 'this machine'}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
