"""The bootstrap program in the real engine: up, a stack that uses its state and key, and destroy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bootstrap.policies import PARTS
from tests.sandbox.aws_part import AwsPart, aws_part, output_of
from tests.sandbox.checkout import copy
from tests.sandbox.deployer import ACCOUNT, Need, allowed
from tests.sandbox.inventory import inventory

REGION, ALIAS = "us-west-2", "alias/paddle-state-dev"
# The permissions that each operation needs, besides the source of a copy.
OPERATIONS = {
    "CopyObject": "s3:PutObject kms:GenerateDataKey kms:Decrypt",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": "s3:GetObject kms:Decrypt",
    "HeadObject": "s3:GetObject kms:Decrypt",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject kms:GenerateDataKey",
}
SETTINGS = {
    "aws:region": REGION,
    "paddle-on-aws-bootstrap:repository": "octo/paddle",
    "paddle-on-aws-bootstrap:repositoryId": "456",
    "paddle-on-aws-bootstrap:ownerId": "123",
    "paddle-on-aws-bootstrap:stacks": ["dev"],
    "paddle-on-aws-bootstrap:deployers": {"dev": [f"arn:aws:iam::{ACCOUNT}:user/me"]},
}


@dataclass(frozen=True)
class Account:
    """An account that contains one user, and the checkout of its administrator."""

    folder: Path
    part: AwsPart
    before: dict[str, list[str]]

    def client(self, service: str) -> Any:
        return self.part.clients(REGION, "administrator")(service)

    def succeed(self, *arguments: str, folder: str = "bootstrap", **environment: str) -> str:
        return output_of(self.part.run("pulumi", *arguments, cwd=self.folder / folder, **environment))

    def outputs(self) -> Mapping[str, str]:
        found: dict[str, str] = json.loads(self.succeed("stack", "output", "--json"))
        return found

    def inline_policy(self, role: str) -> list[Mapping[str, Any]]:
        """The statements of the inline policy of a role."""
        iam = self.client("iam")
        (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
        document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        return list(document["Statement"])

    def managed_policy(self, arn: str) -> list[Mapping[str, Any]]:
        """The statements of a managed policy."""
        iam = self.client("iam")
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        return list(document["Statement"])

    def as_user(
        self, key: str, folder: str = f"/dev?region={REGION}&ssetype=aws:kms&kmskeyid={ALIAS}"
    ) -> dict[str, str]:
        """The environment in which the engine uses the bucket with this access key. By default, the state of dev."""
        return {
            "PULUMI_BACKEND_URL": f"s3://{self.outputs()['STATE_BUCKET']}{folder}&use_path_style=true",
            "AWS_ENDPOINT_URL": self.part.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": "x",
        }

    def needed(self, key: str) -> list[Need]:
        """The permissions that the calls of this access key need. The objects in the bucket are encrypted."""
        (alias,) = (each for each in self.client("kms").list_aliases()["Aliases"] if each["AliasName"] == ALIAS)
        secret = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{alias['TargetKeyId']}"
        found = []
        for call in self.part.calls():
            if call["key"] != key:
                continue
            operation, given = call["operation"], call["parameters"]
            if call["service"] == "kms":
                found.append(Need(f"kms:{operation}", secret))
                continue
            bucket, file = f"arn:aws:s3:::{given['Bucket']}", f"arn:aws:s3:::{given['Bucket']}/{given.get('Key', '')}"
            if operation in ("PutObject", "CopyObject"):
                # Otherwise the object would be encrypted with the key that all stacks share.
                assert (given.get("ServerSideEncryption"), given.get("SSEKMSKeyId")) == ("aws:kms", ALIAS), given
            if operation == "CopyObject":
                found.append(Need("s3:GetObject", f"arn:aws:s3:::{given['CopySource']}"))
            for action in OPERATIONS[operation].split():
                if action == "s3:ListBucket":
                    found.append(Need(action, bucket, {"s3:prefix": given["Prefix"]}))
                else:
                    found.append(Need(action, secret if action.startswith("kms:") else file))
        return found


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    folder = tmp_path_factory.mktemp("account")
    copy(("bootstrap", "infra", "settings", "workloads", "Pulumi.yaml", "Pulumi.dev.yaml"), folder)
    (folder / "stack").mkdir()
    (folder / "stack/Pulumi.yaml").write_text("{name: paddle-on-aws, runtime: python}")
    (folder / "stack/__main__.py").write_text(
        "import pulumi\n\npulumi.export('said', pulumi.Config().require('word'))\n"
    )
    with aws_part(folder / "sandbox", "account") as part:
        made = Account(folder, part, {})
        made.client("iam").create_user(UserName="me")
        made = Account(folder, part, inventory(made.client))
        made.succeed("stack", "init", "account", "--secrets-provider", "passphrase")
        part.set(SETTINGS)
        shutil.copy(part.engine.config, folder / "bootstrap/Pulumi.account.yaml")
        made.succeed("up", "--yes", "--skip-preview")
        yield made


def test_a_stack_uses_the_state_and_each_role_has_only_the_permissions_it_needs(account: Account) -> None:
    """An administrator creates a stack with a secret. The other roles deploy and preview it."""
    out = account.outputs()
    maker, deployer, previewer = map(account.as_user, ("maker", "deployer", "previewer"))
    init = ("stack", "init", "dev", "--secrets-provider", f"awskms://{ALIAS}?region={REGION}")
    account.succeed(*init, folder="stack", **maker)
    account.succeed("config", "set", "--secret", "word", "hush", folder="stack", **maker)
    account.succeed("up", "--yes", folder="stack", **deployer)
    account.succeed("config", "set", "--secret", "word", "louder", folder="stack", **maker)
    assert "updated" not in account.succeed("preview", folder="stack", **previewer)
    account.succeed("up", "--yes", folder="stack", **deployer)
    said = ("stack", "output", "said", "--show-secrets")
    assert account.succeed(*said, folder="stack", **previewer).strip() == "louder"

    attached = account.client("iam").list_attached_role_policies(RoleName="paddle-deploy-dev")["AttachedPolicies"]
    by_name = {each["PolicyName"]: each["PolicyArn"] for each in attached}
    assert set(by_name) == {f"paddle-deploy-dev-{part}" for part in (*PARTS, "state")}
    of_user = account.client("iam").list_attached_user_policies(UserName="me")["AttachedPolicies"]
    assert {each["PolicyArn"] for each in of_user} == set(by_name.values())
    preview = f"{out['PREVIEW_ROLE'].rpartition('/')[2]}dev"
    of_state = {
        "deployer": account.managed_policy(by_name["paddle-deploy-dev-state"]),
        "previewer": [each for each in account.inline_policy(preview) if not each["Sid"].startswith("Ask")],
    }
    for key, statements in of_state.items():
        needed = account.needed(key)
        assert [need for need in needed if not allowed(statements, need)] == [], key
        given = {action for statement in statements for action in statement["Action"]}
        assert given == {need.action for need in needed}, f"{key} is allowed an action that nothing needs"

    account.succeed("destroy", "--yes", "--skip-preview", folder="stack", **deployer)
    account.succeed("stack", "rm", "--yes", folder="stack", **maker)


def test_the_bootstrap_state_moves_into_the_bucket_and_back_and_destroy_removes_all(account: Account) -> None:
    """The steps of bootstrap/README.md, in the same order."""
    inside, file = account.as_user("administrator", f"?region={REGION}"), str(account.folder / "account.json")
    account.succeed("stack", "export", "--file", file)
    account.succeed("stack", "init", "account", **inside)
    account.succeed("stack", "import", "--file", file, **inside)
    account.succeed("up", "--yes", "--skip-preview", "--expect-no-changes", **inside)

    account.succeed("stack", "export", "--file", file, **inside)
    account.succeed("stack", "select", "--create", "account")
    account.succeed("stack", "import", "--file", file)
    refused = account.part.run("pulumi", "destroy", "--yes", "--skip-preview", cwd=account.folder / "bootstrap")
    assert refused.returncode != 0
    assert "protected" in refused.stdout
    account.succeed("state", "unprotect", "--all", "--yes")
    s3, bucket = account.client("s3"), account.outputs()["STATE_BUCKET"]
    held = s3.list_object_versions(Bucket=bucket)
    entries = [*held.get("Versions", ()), *held.get("DeleteMarkers", ())]
    assert {entry["Key"] for entry in entries} >= {".pulumi/stacks/paddle-on-aws-bootstrap/account.json"}
    for entry in entries:
        s3.delete_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])
    account.succeed("destroy", "--yes", "--skip-preview")
    assert inventory(account.client) == account.before
