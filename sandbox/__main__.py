"""The command line: `python -m sandbox up`, `status`, `pulumi ...`, `down`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from sandbox import commands
from sandbox.errors import SandboxError


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description="AWS and Kubernetes on this machine.")
    parser.add_argument("--stack", default="local", help="the stack to run (default: local)")
    subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    subcommands.add_parser("up", help="start what does not run, then run the program")
    subcommands.add_parser("down", help="destroy what the program made, then stop all: nothing is left")
    subcommands.add_parser("status", help="what runs, since when, with pids and ports")
    engine = subcommands.add_parser("pulumi", help="run a Pulumi command on the running stack, such as `preview`")
    engine.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        if given.command == "up":
            return commands.up(given.stack)
        if given.command == "pulumi":
            return commands.pulumi(given.stack, given.arguments or ["help"])
        return commands.down() if given.command == "down" else commands.status()
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
