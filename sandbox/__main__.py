"""The command line of the sandbox: `python -m sandbox up`, `status`, `pulumi ...` and `down`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from sandbox import commands
from sandbox.errors import SandboxError
from sandbox.paths import sandbox_command


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox", description="Run this project on your machine, with an emulated AWS and Kubernetes."
    )
    parser.add_argument("--stack", default="local", help="name of the stack (default: local)")
    subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    subcommands.add_parser("up", help="start the sandbox and run `pulumi up`")
    subcommands.add_parser("down", help="run `pulumi destroy`, stop all processes and delete the .sandbox folder")
    subcommands.add_parser("status", help="list the running processes with their process IDs and ports")
    engine = subcommands.add_parser("pulumi", help="run a Pulumi command on the stack, for example `preview`")
    engine.add_argument("arguments", nargs=argparse.REMAINDER)
    command = subcommands.add_parser("run", help="run a command in which `aws` and `kubectl` use the sandbox")
    command.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        if given.command == "up":
            return commands.up(given.stack)
        if given.command == "pulumi":
            return commands.pulumi(given.stack, given.arguments or ["help"])
        if given.command == "run":
            return commands.run(given.stack, given.arguments or [os.environ.get("SHELL", "/bin/sh")])
        return commands.down() if given.command == "down" else commands.status()
    except SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        again = " ".join([sandbox_command(), *arguments])
        print(f"\nsandbox: interrupted. To continue, run `{again}`.", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"sandbox: {error.filename or 'operating system'}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
