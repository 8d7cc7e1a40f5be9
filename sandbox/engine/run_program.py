"""Runs one Pulumi program in its own environment: `python program.py SETTINGS_JSON FILE_OR_FOLDER [ARGUMENTS]`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import runpy
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulumi
import pulumi.runtime

ALREADY_SAID = 32  # languagehost.py takes this exit code as "the engine has been told"


def main() -> int:
    # The engine ends a program that a policy stopped; it has said why.
    signal.signal(signal.SIGINT, lambda *_: os._exit(ALREADY_SAID))
    settings, program = json.loads(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    pulumi.runtime.set_all_config(pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env())
    pulumi.runtime.configure(pulumi.runtime.Settings(**settings))

    def run() -> None:
        runpy.run_path(program, run_name="__main__")

    # Futures that a failed program leaves unread are no news to anybody.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with ThreadPoolExecutor(max_workers=4 * max(1, min(settings["parallel"], 256))) as threads:
        loop.set_default_executor(threads)
        try:
            loop.run_until_complete(pulumi.runtime.run_in_stack(run))
        except pulumi.RunError as error:
            pulumi.log.error(str(error))
            return ALREADY_SAID
        except Exception as error:
            pulumi.log.error("the program raised an exception:\n" + _own_part(error, program))
            return ALREADY_SAID
    return 0


def _own_part(error: Exception, program: str) -> str:
    """The traceback from the program's own files on: what lies before them is machinery."""
    folder = str(Path(program).resolve())
    frame = error.__traceback__
    while frame and not frame.tb_frame.f_code.co_filename.startswith(folder):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__))


if __name__ == "__main__":
    sys.exit(main())
