"""Runs of the engine that were killed."""

from __future__ import annotations

from pathlib import Path

from sandbox.engine.pulumi_cli import PulumiCli


def test_incomplete_files_and_locks_of_a_killed_engine_are_removed(tmp_path: Path) -> None:
    stacks, locks = tmp_path / "state/.pulumi/stacks/p", tmp_path / "state/.pulumi/locks/organization/p/local"
    for folder in (stacks, locks):
        folder.mkdir(parents=True)
    contents = {stacks / "local.json.attrs": "", stacks / "other.json.attrs": "{}", locks / "1.json": "{}"}
    for file, text in contents.items():
        file.write_text(text)
    PulumiCli(tmp_path, [], "local", tmp_path / "config.yaml", tmp_path / "Pulumi.local.yaml").clean_up_after_kill()
    assert [file.name for file in contents if file.exists()] == ["other.json.attrs"]
