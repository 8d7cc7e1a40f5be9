"""The command in the message about a presigned address, run with the real engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pulumi
import pytest
import yaml

from sandbox.engine.pulumi_cli import PulumiCli
from sandbox.paths import CHECKOUT
from settings.secure import config_in, stored
from tests.unit.program import config_of, run

ADDRESSES = ("https://host/a", "https://host/b?X-Amz-Signature=hush", "https://me:hush@host/c")


def refused(monkeypatch: pytest.MonkeyPatch, file: Path) -> dict[str, str]:
    """The addresses that the program refuses, and the command that it advises for each."""
    encrypted = stored(config_in(file)).encrypted
    source = [
        {"secure": address} if f"data.source[{i}]" in encrypted else address for i, address in enumerate(ADDRESSES)
    ]
    try:
        run(monkeypatch, {**config_of("dev"), "paddle-on-aws:data": {"source": source}}, "dev")
    except pulumi.RunError as error:
        found = re.findall(r"^  data\.source\[(\d)\]: .*: (pulumi config set .*)\.$", str(error), re.MULTILINE)
        return {ADDRESSES[int(i)]: command for i, command in found}
    return {}


def test_the_advised_commands_encrypt_exactly_the_addresses_with_a_credential(
    cached: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project, file = tmp_path / "project", tmp_path / "project/Pulumi.dev.yaml"
    engine = PulumiCli(tmp_path, "dev", file, file)

    def shell(command: str, given: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=project,
            env=engine.environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    project.mkdir()
    engine.state.mkdir()
    shutil.copy(CHECKOUT / "Pulumi.yaml", project)
    shell("pulumi stack init dev")
    written = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**written, "config": {"paddle-on-aws:data": {"source": list(ADDRESSES)}}}))
    for remaining in (ADDRESSES[1:], ADDRESSES[2:]):
        advised = refused(monkeypatch, file)
        assert tuple(advised) == remaining
        shell(advised[remaining[0]], remaining[0])
    assert refused(monkeypatch, file) == {}
    assert "hush" not in file.read_text()
    assert ADDRESSES[0] in file.read_text()
    assert yaml.safe_load(shell("pulumi config get --path data.source")) == list(ADDRESSES)
