"""The policy pack in the real engine: the program passes, and a violation is reported with its rule."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.paths import CHECKOUT
from tests.sandbox.aws_part import AwsPart, aws_part
from tests.unit.program import config_of

PREVIEW = ("preview", "--non-interactive", "--policy-pack", str(CHECKOUT / "policy"))


@pytest.fixture(scope="module")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsPart]:
    """An empty stack named prod, for which the rules are strictest."""
    assert (CHECKOUT / "policy/.venv").exists(), "the policy pack has no Python environment: run `make policy`"
    with aws_part(tmp_path_factory.mktemp("prod"), "prod") as part:
        yield part


def test_the_program_passes(prod: AwsPart) -> None:
    prod.set(config_of("prod"))
    done = prod.pulumi(*PREVIEW)
    assert done.returncode == 0, done.stdout
    assert "✅ paddle-on-aws@" in done.stdout, "the pack did not run"
    assert "can't run policy" not in done.stdout, "a rule failed on a value that is not known yet"
    assert "kubernetes:batch/v1:Job paddle-export create" in done.stdout


def test_a_program_violates_rules_about_one_resource_and_about_connections(prod: AwsPart, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("{name: paddle-on-aws, runtime: python}")
    program = """
        import pulumi
        import pulumi_aws as aws

        kept = pulumi.ResourceOptions(protect=True)
        aws.s3.Bucket("bare")
        group = aws.ec2.SecurityGroup("file-system")
        stranger = aws.ec2.SecurityGroup("stranger")
        files = aws.efs.FileSystem("files", encrypted=True, opts=kept)
        aws.efs.MountTarget("door", file_system_id=files.id, subnet_id="subnet-1", security_groups=[group.id])
        aws.vpc.SecurityGroupIngressRule(
            "nfs",
            security_group_id=group.id,
            referenced_security_group_id=stranger.id,
            ip_protocol="tcp",
            from_port=2049,
            to_port=2049,
        )
    """
    (tmp_path / "__main__.py").write_text(textwrap.dedent(program))
    prod.set({"aws:region": "eu-west-1", "aws:defaultTags": {"tags": {"project": "paddle-on-aws", "stack": "prod"}}})
    done = prod.pulumi(*PREVIEW, program=tmp_path)
    assert done.returncode != 0
    for words in (
        "data-kept  (aws:s3:Bucket: bare)",
        "encrypted  (aws:efs:FileSystem: files)",
        "encrypted  (aws:s3:Bucket: bare)",
        "public-access-blocked  (aws:s3:Bucket: bare)",
        "nfs-from-workers-only  (aws:vpc:SecurityGroupIngressRule: nfs)",
    ):
        assert f"[mandatory]  {words}" in done.stdout, done.stdout
    assert done.stdout.count("[mandatory]") == 5, done.stdout
