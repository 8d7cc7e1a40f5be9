"""Runs one Pulumi program: `python run_program.py SETTINGS_JSON FILE_OR_FOLDER [ARGUMENTS]`.

The language host starts this script with the Python of the program's virtual environment.
"""

from __future__ import annotations

import asyncio
import gc
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

ERROR_REPORTED = 32  # for language_host.py: the engine already has the error message


def main() -> int:
    # The import of the provider SDKs takes a third less time without it, and the process soon ends.
    gc.disable()
    # The engine interrupts a program that a policy stopped, and reports the reason itself.
    signal.signal(signal.SIGINT, lambda *_: os._exit(ERROR_REPORTED))
    settings, program = json.loads(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    pulumi.runtime.set_all_config(pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env())
    pulumi.runtime.configure(pulumi.runtime.Settings(**settings))

    def run() -> None:
        runpy.run_path(program, run_name="__main__")

    # A failed program leaves futures that nobody reads. Do not log a warning for each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with ThreadPoolExecutor(max_workers=4 * max(1, min(settings["parallel"], 256))) as threads:
        loop.set_default_executor(threads)
        try:
            loop.run_until_complete(pulumi.runtime.run_in_stack(run))
        except pulumi.RunError as error:
            pulumi.log.error(str(error))
            return ERROR_REPORTED
        except Exception as error:
            pulumi.log.error("the program raised an exception:\n" + _program_traceback(error, program))
            return ERROR_REPORTED
    return 0


def _program_traceback(error: Exception, program: str) -> str:
    """The traceback without the frames of Pulumi and of this script."""
    folder = str(Path(program).resolve())
    frame = error.__traceback__
    while frame and not frame.tb_frame.f_code.co_filename.startswith(folder):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame or error.__traceback__))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would take a fifth of a second to delete the classes of the provider SDKs one by one.
    os._exit(status)
