"""A stack of an earlier version keeps its roles and its bucket: a new role would replace the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import boto3

from sandbox.paths import CHECKOUT
from tests.sandbox.aws_part import aws_part
from tests.sandbox.deployer import ACCOUNT

REGION = "us-west-2"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/limit"
ANYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# The program of the earlier version did not set these properties.
PROGRAM = f"""
import dataclasses
import pathlib
import sys

import pulumi

sys.path.insert(0, {str(CHECKOUT)!r})

from infra.bucket import Bucket, BucketArgs
from infra.iam import assumed_by
from infra.limited_role import limited_role
from infra.provider import aws_provider
from settings.schema import load

NEW = ("path", "permissionsBoundary")


def as_before(args):
    kept = {{key: value for key, value in args.props.items() if key not in NEW}}
    return pulumi.ResourceTransformResult(kept, args.opts)


class Key:
    key_arn = existing = "alias/aws/s3"


EARLIER = pathlib.Path("earlier").exists()
if EARLIER:
    pulumi.runtime.register_resource_transform(as_before)
settings, _ = load()
on_aws = pulumi.ResourceOptions(providers=[aws_provider(settings)])
name = "bucket" if EARLIER else settings.bucket_name
bucket = Bucket("bucket", BucketArgs(name, Key, False), on_aws)
limited_role("cluster-role", settings, assumed_by("eks.amazonaws.com"), bucket)
"""


def test_a_stack_of_an_earlier_version_keeps_its_roles_and_its_bucket(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "Pulumi.yaml").write_text((CHECKOUT / "Pulumi.yaml").read_text())
    (program / "__main__.py").write_text(PROGRAM)
    with aws_part(tmp_path / "sandbox", "dev") as part:
        iam = boto3.client("iam", REGION, endpoint_url=part.endpoint, aws_access_key_id="a", aws_secret_access_key="x")
        iam.create_policy(PolicyName="limit", PolicyDocument=json.dumps(ANYTHING))
        part.set({"aws:region": REGION, "paddle-on-aws:permissionsBoundary": BOUNDARY})

        s3 = boto3.client("s3", REGION, endpoint_url=part.endpoint, aws_access_key_id="a", aws_secret_access_key="x")

        def up() -> tuple[str, str]:
            """The ARN of the role and the name of the bucket."""
            done = part.pulumi("up", "--yes", "--skip-preview", program=program)
            assert done.returncode == 0, done.stdout
            (role,), (bucket,) = iam.list_roles()["Roles"], s3.list_buckets()["Buckets"]
            return role["Arn"], bucket["Name"]

        (program / "earlier").touch()
        before = up()
        assert before[0].startswith(f"arn:aws:iam::{ACCOUNT}:role/cluster-role-")
        assert before[1].startswith("bucket-")
        (program / "earlier").unlink()
        assert up() == before
        role = iam.get_role(RoleName=before[0].rpartition("/")[2])["Role"]
        assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY
        destroyed = part.pulumi("destroy", "--yes", "--skip-preview", program=program)
        assert destroyed.returncode == 0, destroyed.stdout

        new = up()
        assert new[0].startswith(f"arn:aws:iam::{ACCOUNT}:role/paddle/dev/cluster-role-")
        assert re.fullmatch("paddle-dev-[0-9a-f]{7}", new[1])
