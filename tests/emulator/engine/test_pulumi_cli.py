"""The engine: the files that it writes, and the options that it passes on."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from sandbox.engine.pulumi_cli import PulumiCli
from sandbox.plugins import choice
from tools.pulumi_state import SECRET_KEY


def cli(folder: Path) -> PulumiCli:
    return PulumiCli(folder, "local", folder / "config.yaml", folder / "Pulumi.local.yaml")


def test_incomplete_files_and_locks_of_a_killed_engine_are_removed(tmp_path: Path) -> None:
    stacks, locks = tmp_path / "state/.pulumi/stacks/p", tmp_path / "state/.pulumi/locks/organization/p/local"
    for folder in (stacks, locks):
        folder.mkdir(parents=True)
    contents = {stacks / "local.json.attrs": "", stacks / "other.json.attrs": "{}", locks / "1.json": "{}"}
    for file, text in contents.items():
        file.write_text(text)
    cli(tmp_path).clean_up_after_kill()
    assert [file.name for file in contents if file.exists()] == ["other.json.attrs"]


def test_outputs_are_read_without_secrets_and_changes_from_the_last_update(tmp_path: Path) -> None:
    state, history = tmp_path / "state/.pulumi/stacks/p/local.json", tmp_path / "state/.pulumi/history/p/local"
    state.parent.mkdir(parents=True)
    history.mkdir(parents=True)
    secret = {SECRET_KEY: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:x"}
    stack = {"type": "pulumi:pulumi:Stack", "outputs": {"model": "s3://b/m", "steps": {"look": ["ls", secret]}}}
    resources = [{"type": "aws:s3/bucket:Bucket", "outputs": {"bucket": "b"}}, stack]
    state.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    for time, changes in (("179", {"resourceChanges": {"create": 1}}), ("180", {"resourceChanges": {"same": 2}})):
        (history / f"local-{time}.history.json").write_text(json.dumps(changes))
        (history / f"local-{time}.checkpoint.json").write_text("{}")
    assert cli(tmp_path).stack_outputs() == {"model": "s3://b/m", "steps": {"look": ["ls", "[secret]"]}}
    assert cli(tmp_path).last_changes() == {"same": 2}


@pytest.mark.usefixtures("cached")
def test_a_program_runs_with_the_options_that_the_engine_passes_on(tmp_path: Path) -> None:
    engine = cli(tmp_path)
    engine.create_stack()
    engine.salt.replace(engine.config)
    # Plugins for the packages in this Python, so that the engine downloads none.
    plugins = [choice.Plugin(name, metadata.version(f"pulumi-{name}"), None) for name in choice.NAMES]
    choice.install(plugins, tmp_path / "home/.pulumi", Path(sys.executable))
    choice.install_language_host(tmp_path / "home/.pulumi", Path(sys.executable))
    program = tmp_path / "program"
    program.mkdir()
    (program / "Pulumi.yaml").write_text("{name: paddle-on-aws, runtime: python}")
    (program / "__main__.py").write_text("import pulumi\npulumi.export('answer', 'forty-two')")
    options = ["-v=1", "--logflow", "--logtostderr", f"--tracing=file:{tmp_path}/trace"]
    assert "forty-two" in engine.output_of("preview", *options, folder=program)
