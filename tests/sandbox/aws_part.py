"""Runs the AWS part of the program with the real engine, in its own emulated AWS that records all API calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml

from sandbox import build, processes
from sandbox.cloud.emulated_aws import answers
from sandbox.engine import engine_stack_file
from sandbox.engine.pulumi_cli import PulumiCli
from sandbox.paths import CHECKOUT
from sandbox.plugins import choice
from tests.sandbox.checkout import LIMIT_SECONDS
from tests.sandbox.inventory import Client

# A cluster that the machine cannot reach, as with a narrow apiAccessCidrs.
UNREACHABLE = {
    "clusters": [{"name": "eks", "cluster": {"server": "http://127.0.0.1:9"}}],
    "contexts": [{"name": "eks", "context": {"cluster": "eks"}}],
    "current-context": "eks",
}
# Only the AWS resources, so that no Kubernetes is needed.
AWS_PART = ("--target", "**paddle:infra:**")


@dataclass(frozen=True)
class AwsPart:
    """A stack of this checkout that keeps its state, settings and emulated AWS in its own folder."""

    engine: PulumiCli
    endpoint: str
    calls_file: Path

    def set(self, config: Mapping[str, Any]) -> None:
        """Replace all settings of the stack."""
        settings = engine_stack_file.Stack(self.engine.stack, "paddle-on-aws", config)
        engine_stack_file.write_for_engine(
            settings, self.engine.config, self.endpoint, self.engine.folder / "kubeconfig", self.engine.salt
        )

    def run(self, *command: str, cwd: Path = CHECKOUT, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the engine would. `stdout` of the result contains its standard error too."""
        return subprocess.run(
            command,
            cwd=cwd,
            env={**self.engine.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def pulumi(self, *arguments: str, program: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
        stack = ("--stack", self.engine.stack, "--config-file", str(self.engine.config))
        return self.run("pulumi", *arguments, *stack, cwd=program)

    def succeed(self, *arguments: str, program: Path = CHECKOUT) -> str:
        """Run a Pulumi command, which must succeed, and return its output."""
        return output_of(self.pulumi(*arguments, program=program))

    def refused(self, *arguments: str, program: Path = CHECKOUT) -> str:
        """Run a Pulumi command, which must fail, and return its output without line breaks."""
        done = self.pulumi(*arguments, program=program)
        assert done.returncode != 0, done.stdout
        return " ".join(done.stdout.split())

    def clients(self, region: str, key: str = "stranger") -> Client:
        """Clients of the emulated AWS with credentials of their own, to tell their calls from those of the engine."""
        keys = {"endpoint_url": self.endpoint, "aws_access_key_id": key, "aws_secret_access_key": "x"}
        return lambda service: boto3.client(service, region_name=region, **keys)

    def resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources in the state."""
        found: Sequence[Mapping[str, Any]] = self.engine.deployment()["resources"]
        return found

    def calls(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command, which must have succeeded."""
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def aws_part(folder: Path, name: str) -> Iterator[AwsPart]:
    """An empty stack."""
    python = build.python()
    engine = PulumiCli(folder, name, folder / f"Pulumi.{name}.yaml", CHECKOUT / f"Pulumi.{name}.yaml")
    engine.create_stack()
    choice.install(_plugins(engine), folder / "home/.pulumi", python)
    choice.install_language_host(folder / "home/.pulumi", Path(sys.executable))
    (folder / "kubeconfig").write_text(yaml.safe_dump(UNREACHABLE))
    calls, (port,) = folder / "calls.jsonl", processes.free_ports(1)
    command = [str(python), "-m", "sandbox.cloud.server", "--port", str(port), "--calls", str(calls)]
    environment = processes.module_environment()
    with (
        (folder / "aws.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            processes.wait(lambda: answers(port) or server.poll() is not None, LIMIT_SECONDS)
            assert server.poll() is None, (folder / "aws.log").read_text()
            yield AwsPart(engine, f"http://127.0.0.1:{port}", calls)
        finally:
            server.terminate()


_CHOSEN: list[choice.Plugin] = []


def _plugins(engine: PulumiCli) -> list[choice.Plugin]:
    """The plugins of this machine. The attempt to download the official ones takes three seconds, so there is one."""
    if not _CHOSEN:
        _CHOSEN.extend(choice.choose(engine.environment, os.environ))
    return _CHOSEN
