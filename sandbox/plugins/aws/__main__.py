"""The executable that the engine starts: serves on a free loopback port and prints it."""

import os
import signal
import sys

# The user's own AWS settings are neither read nor touched.
for name in [each for each in os.environ if each.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

from sandbox.plugins.aws.server import serve  # noqa: E402


def main() -> None:
    # Ctrl-C reaches the whole process group: the engine decides what it means and calls Cancel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server, port = serve()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()


main()
