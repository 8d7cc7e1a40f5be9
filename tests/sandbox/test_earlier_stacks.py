"""A stack of an earlier version keeps its roles, its bucket and its cluster: a new role would replace the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sandbox.paths import CHECKOUT
from tests.sandbox.aws_part import AWS_PART, aws_part
from tests.sandbox.deployer import ACCOUNT
from tests.sandbox.inventory import inventory
from tests.unit.program import config_of

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
from settings.schema import Settings, load

NEW = ("path", "permissionsBoundary")


def as_before(args):
    kept = {{key: value for key, value in args.props.items() if key not in NEW}}
    return pulumi.ResourceTransformResult(kept, args.opts)


class Key:
    key_arn = "alias/aws/s3"


EARLIER = pathlib.Path("earlier").exists()
if EARLIER:
    pulumi.runtime.register_resource_transform(as_before)
    Settings.bucket_name = "bucket"
settings, _ = load()
on_aws = pulumi.ResourceOptions(providers=[aws_provider(settings)])
bucket = Bucket("bucket", BucketArgs(settings, Key), on_aws)
limited_role("cluster-role", settings, assumed_by("eks.amazonaws.com"), bucket)
"""


def write_program(folder: Path, code: str) -> Path:
    """A Pulumi program with the settings of this project."""
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text((CHECKOUT / "Pulumi.yaml").read_text())
    (folder / "__main__.py").write_text(code)
    return folder


def test_a_stack_of_an_earlier_version_keeps_its_roles_and_its_bucket(tmp_path: Path) -> None:
    program = write_program(tmp_path / "program", PROGRAM)
    with aws_part(tmp_path / "sandbox", "dev") as part:
        client = part.clients(REGION)
        iam, s3 = client("iam"), client("s3")
        iam.create_policy(PolicyName="limit", PolicyDocument=json.dumps(ANYTHING))
        part.set({"aws:region": REGION, "paddle-on-aws:permissionsBoundary": BOUNDARY})

        def up() -> tuple[str, str]:
            """The ARN of the role and the name of the bucket."""
            part.succeed("up", "--yes", "--skip-preview", program=program)
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
        part.succeed("destroy", "--yes", "--skip-preview", program=program)

        new = up()
        assert new[0].startswith(f"arn:aws:iam::{ACCOUNT}:role/paddle/dev/cluster-role-")
        assert re.fullmatch("paddle-dev-[0-9a-f]{7}", new[1])


# In the earlier version, EKS made the creator of the cluster an administrator, and the program made no entry for it.
CLUSTER_PROGRAM = f"""
import pathlib
import runpy
import sys

import pulumi

sys.path.insert(0, {str(CHECKOUT)!r})

from settings.aws_facts import AwsFacts


def as_before(args):
    if args.type_ != "aws:eks/cluster:Cluster":
        return None
    access = {{"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True}}
    return pulumi.ResourceTransformResult({{**args.props, "accessConfig": access}}, args.opts)


if pathlib.Path("earlier").exists():
    pulumi.runtime.register_resource_transform(as_before)
    AwsFacts.administrators = lambda self, settings: ()
runpy.run_path({str(CHECKOUT / "__main__.py")!r}, run_name="__main__")
"""


def test_a_cluster_of_an_earlier_version_gets_an_access_entry_of_the_stack(tmp_path: Path) -> None:
    program = write_program(tmp_path / "program", CLUSTER_PROGRAM)
    with aws_part(tmp_path / "sandbox", "dev") as part:
        client = part.clients(REGION)
        eks, here = client("eks"), {"clusterName": "paddle-cluster"}
        settings = config_of("dev")
        up = ("up", "--yes", *AWS_PART)
        part.set(settings)
        (program / "earlier").touch()
        part.succeed(*up, "--skip-preview", program=program)
        (program / "earlier").unlink()
        (creator,) = (arn for arn in eks.list_access_entries(**here)["accessEntries"] if ":user/" in arn)
        endpoint, before = eks.describe_cluster(name="paddle-cluster")["cluster"]["endpoint"], inventory(client)

        shown = part.refused(*up, program=program)
        command = (
            f"aws eks delete-access-entry --region {REGION} --cluster-name paddle-cluster --principal-arn {creator}"
        )
        assert f'deployer: "{creator}" has an access entry in the cluster paddle-cluster' in shown
        assert f"Run `{command}`. The next `pulumi up` creates it again" in shown
        assert inventory(client) == before
        eks.delete_access_entry(**here, principalArn=creator)
        part.succeed(*up, "--skip-preview", program=program)
        tags = eks.describe_access_entry(**here, principalArn=creator)["accessEntry"]["tags"]
        assert tags["project"] == "paddle-on-aws"
        assert eks.describe_cluster(name="paddle-cluster")["cluster"]["endpoint"] == endpoint

        # A lost tag does not cost the deployer its access.
        arn = eks.describe_access_entry(**here, principalArn=creator)["accessEntry"]["accessEntryArn"]
        eks.untag_resource(resourceArn=arn, tagKeys=["project", "stack"])
        part.succeed(*up, "--skip-preview", "--refresh", program=program)
        assert eks.describe_access_entry(**here, principalArn=creator)["accessEntry"]["tags"] == tags

        # The new cluster has no access entry of EKS, although a running cluster keeps this property.
        part.set({**settings, "paddle-on-aws:clusterName": "other"})
        part.succeed(*up, program=program)
        assert eks.list_clusters()["clusters"] == ["other"]
        assert eks.describe_access_entry(clusterName="other", principalArn=creator)["accessEntry"]["tags"] == tags
