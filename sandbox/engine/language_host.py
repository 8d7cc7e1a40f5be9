"""Language host for Python: the Pulumi engine starts it to run Python programs and policy packs.

The engine's Go module does not contain a Python language host, so the sandbox brings its own.
The engine starts it as `pulumi-language-python [OPTIONS] ADDRESS`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import grpc
from google.protobuf import empty_pb2

# The engine starts this host twice for each command. To import the whole SDK would take longer than all the rest.
for package in ("pulumi", "pulumi.runtime") if __name__ == "__main__" else ():
    if found := find_spec(package):
        sys.modules[package] = module_from_spec(ModuleSpec(package, None, is_package=True))
        sys.modules[package].__path__ = list(found.submodule_search_locations or [])

from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2  # noqa: E402

PROGRAM = Path(__file__).resolve().with_name("run_program.py")
ERROR_REPORTED = 32  # exit code of run_program.py after it has reported the error to the engine

# Run in the program's environment: list the plugins that its packages need, with their versions.
LIST_PLUGINS = """
import json, pathlib, sys
for file in (file for folder in sys.path[1:] for file in pathlib.Path(folder).glob("*/pulumi-plugin.json")):
    print(json.dumps(json.loads(file.read_text())))
"""
LIST_PACKAGES = """
import importlib.metadata as metadata
for name, version in sorted({(d.metadata["Name"], d.version) for d in metadata.distributions()}):
    print(name, version)
"""


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """The service that the engine calls. It uses a virtual environment that exists already."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.running: set[subprocess.Popen[bytes]] = set()

    def Handshake(  # noqa: N802
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        self.engine = request.engine_address
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(  # noqa: N802
        self, request: empty_pb2.Empty, context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version="0.0.0")

    def About(  # noqa: N802
        self, request: language_pb2.AboutRequest, context: grpc.ServicerContext
    ) -> language_pb2.AboutResponse:
        return language_pb2.AboutResponse(executable=_python(request.info), version=sys.version.split()[0])

    def GetRequiredPackages(  # noqa: N802
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        plugins = [json.loads(line) for line in _run_script(request.info, LIST_PLUGINS)]
        return language_pb2.GetRequiredPackagesResponse(
            packages=[
                plugin_pb2.PackageDependency(
                    name=plugin["name"],
                    version=plugin["version"],
                    kind="resource",
                    server=plugin.get("server", ""),
                )
                for plugin in plugins
                if plugin.get("resource")
            ]
        )

    def GetProgramDependencies(  # noqa: N802
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        listed = (line.split(" ", 1) for line in _run_script(request.info, LIST_PACKAGES))
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[language_pb2.DependencyInfo(name=name, version=version) for name, version in listed]
        )

    def InstallDependencies(  # noqa: N802
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        yield language_pb2.InstallDependenciesResponse(stdout=b"nothing to install: run `make venv` in the checkout\n")

    def Run(  # noqa: N802
        self, request: language_pb2.RunRequest, context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        settings = {
            "project": request.project,
            "stack": request.stack,
            "organization": request.organization,
            "root_directory": request.info.root_directory,
            "monitor": request.monitor_address,
            "engine": self.engine,
            "parallel": request.parallel,
            "dry_run": request.dryRun,
        }
        entry = Path(request.info.program_directory) / request.info.entry_point
        process = subprocess.Popen(
            [_python(request.info), "-u", str(PROGRAM), json.dumps(settings), str(entry), *request.args],
            cwd=request.pwd or None,
            env=os.environ
            | {
                "PULUMI_CONFIG": json.dumps(dict(request.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            },
        )
        code = self._wait(process, context)
        if code in (0, ERROR_REPORTED):
            return language_pb2.RunResponse(bail=code == ERROR_REPORTED)
        return language_pb2.RunResponse(error=f"the program failed with exit code {code}")

    def RunPlugin(  # noqa: N802
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        folder = request.info.program_directory
        policy_pack = request.kind == "analyzer"
        command = ["-m", "pulumi.policy", *request.args, folder] if policy_pack else [folder, *request.args]
        process = subprocess.Popen(
            [_python(request.info), "-u", *command],
            cwd=folder if policy_pack else request.pwd,
            env=dict(pair.split("=", 1) for pair in request.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        written: SimpleQueue[language_pb2.RunPluginResponse | None] = SimpleQueue()

        def forward(pipe: IO[bytes], respond: Callable[[bytes], language_pb2.RunPluginResponse]) -> None:
            while chunk := os.read(pipe.fileno(), 65536):
                written.put(respond(chunk))
            written.put(None)

        for pipe, respond in (
            (process.stdout, lambda chunk: language_pb2.RunPluginResponse(stdout=chunk)),
            (process.stderr, lambda chunk: language_pb2.RunPluginResponse(stderr=chunk)),
        ):
            threading.Thread(target=forward, args=(pipe, respond), daemon=True).start()
        context.add_callback(process.terminate)
        self.running.add(process)
        open_pipes = 2
        while open_pipes:
            message = written.get()
            if message is None:
                open_pipes -= 1
            else:
                yield message
        yield language_pb2.RunPluginResponse(exitcode=self._wait(process, context))

    def Cancel(  # noqa: N802
        self, request: empty_pb2.Empty, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        for process in list(self.running):
            process.send_signal(signal.SIGINT)
        return empty_pb2.Empty()

    def _wait(self, process: subprocess.Popen[bytes], context: grpc.ServicerContext) -> int:
        self.running.add(process)
        context.add_callback(process.terminate)
        try:
            return process.wait()
        finally:
            self.running.discard(process)


def _python(info: language_pb2.ProgramInfo) -> str:
    """The Python of the project's `virtualenv` option. Without that option, the Python that runs this host."""
    named = info.options.fields["virtualenv"].string_value if "virtualenv" in info.options.fields else ""
    python = Path(info.root_directory) / named / "bin/python" if named else Path(sys.executable)
    return str(python) if python.exists() else sys.executable


def _run_script(info: language_pb2.ProgramInfo, script: str) -> list[str]:
    done = subprocess.run([_python(info), "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    """Serve on a free port of 127.0.0.1, print the port, and stop when the engine stops."""
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 400 * 1024**2)])
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(sys.argv[-1]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: server.stop(grace=1))
    parent = os.getppid()
    while server.wait_for_termination(timeout=1):
        if os.getppid() != parent:
            server.stop(grace=None)


if __name__ == "__main__":
    main()
