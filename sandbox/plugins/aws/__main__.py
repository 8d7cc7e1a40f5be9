"""The executable that the engine starts: serves on a free loopback port and prints it."""

import os
import signal
import sys

# The user's own AWS settings are neither read nor touched.
for name in [each for each in os.environ if each.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

from sandbox.plugins.aws.provider import serve  # noqa: E402


def main() -> None:
    server, port = serve()
    # The engine, which has cancelled what was under way, ends a plugin by SIGINT and reports one that lingers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop(grace=0.5))
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()
    os._exit(0)


main()
