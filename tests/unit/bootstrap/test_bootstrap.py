"""The bootstrap: a state that is safe, and roles that nobody but the right workflow may take on."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pulumi
import pytest

from tests.unit.program import ACCOUNT, NAME, PROJECT, Graph, run

WORKFLOWS = PROJECT / ".github/workflows"
CONFIG = {"aws:region": "us-west-2", f"{NAME}:repository": "octo/paddle", f"{NAME}:environments": ["dev", "prod"]}
ROLE, POLICY = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return bootstrap(monkeypatch)


def bootstrap(monkeypatch: pytest.MonkeyPatch, **config: Any) -> Graph:
    changed = {f"{NAME}:{key}": value for key, value in config.items()}
    return run(monkeypatch, {**CONFIG, **changed}, program=PROJECT / "bootstrap/__main__.py")


def statements(graph: Graph, name: str, key: str = "policy") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(graph.named(name).inputs[key])["Statement"]
    return found


def actions(graph: Graph, name: str) -> set[str]:
    return {action for statement in statements(graph, name) for action in statement["Action"]}


def test_the_state_is_kept_encrypted_and_private(graph: Graph) -> None:
    key, bucket = graph.one("aws:kms/key:Key"), graph.one("aws:s3/bucket:Bucket")
    assert key.protect
    assert bucket.protect
    assert key.inputs["enableKeyRotation"] is True
    assert key.inputs["deletionWindowInDays"] == 30
    root = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    assert [each["Principal"] for each in statements(graph, "key")] == [root]
    assert graph.named("state-versioning").inputs["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = graph.named("state-encryption").inputs["rules"]
    by_key = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": f"arn:aws:mock:us-west-2:{ACCOUNT}:key"}
    assert rule["applyServerSideEncryptionByDefault"] == by_key
    block = graph.named("state-public-access").inputs
    closed = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [block[key] for key in closed] == [True] * 4
    (rule,) = graph.named("state-lifecycle").inputs["rules"]
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 90}
    (deny,) = statements(graph, "state-policy")
    assert (deny["Effect"], deny["Principal"], deny["Action"]) == ("Deny", "*", "s3:*")
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    arn = f"arn:aws:mock:us-west-2:{ACCOUNT}:pulumi-state"
    assert deny["Resource"] == [arn, f"{arn}/*"]
    settings = ("state-versioning", "state-encryption", "state-public-access", "state-policy", "state-lifecycle")
    assert {graph.named(name).inputs["bucket"] for name in settings} == {"pulumi-state-id"}


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("preview", "repo:octo/paddle:pull_request"),
        ("deploy-dev", "repo:octo/paddle:environment:dev"),
        ("deploy-prod", "repo:octo/paddle:environment:prod"),
    ],
)
def test_a_role_trusts_one_kind_of_job_of_one_repository(graph: Graph, role: str, subject: str) -> None:
    (trust,) = statements(graph, role, "assumeRolePolicy")
    github = graph.one("aws:iam/openIdConnectProvider:OpenIdConnectProvider")
    assert github.inputs["url"] == "https://token.actions.githubusercontent.com"
    assert trust["Principal"] == {"Federated": f"arn:aws:mock:us-west-2:{ACCOUNT}:github"}
    assert trust["Action"] == ["sts:AssumeRoleWithWebIdentity"]
    assert trust["Condition"] == {
        "StringEquals": {
            "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
            "token.actions.githubusercontent.com:sub": subject,
        }
    }
    assert len(graph.all(ROLE)) == 3


def test_a_preview_may_read_and_nothing_else(graph: Graph) -> None:
    assert [policy.name for policy in graph.all(POLICY) if policy.inputs["role"] == "preview"] == ["preview-policy"]
    assert actions(graph, "preview-policy") == {
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstanceTypes",
        "kms:Decrypt",
        "s3:GetObject",
        "s3:ListBucket",
        "ssm:GetParametersByPath",
    }
    attached = graph.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    assert "preview" not in {attachment.inputs["role"] for attachment in attached}
    wide = [each["Sid"] for each in statements(graph, "preview-policy") if each["Resource"] == "*"]
    assert wide == ["AskRegion"]


# As the engine lays a stack's state, seen in its own file backend.
FILES = (
    "stacks/paddle-on-aws/{}.json",
    "stacks/paddle-on-aws/{}.json.bak",
    "history/paddle-on-aws/{}/{}-1795005174.history.json",
    "backups/paddle-on-aws/{}/{}.1795005174.json",
    "locks/organization/paddle-on-aws/{}/f3c1.json",
)


def test_a_deployment_writes_its_own_state_alone(graph: Graph) -> None:
    (write,) = (each for each in statements(graph, "deploy-dev-state") if each["Sid"] == "WriteState")
    arn = f"arn:aws:mock:us-west-2:{ACCOUNT}:pulumi-state/.pulumi/"

    def written(stack: str) -> list[bool]:
        paths = [arn + file.format(stack, stack) for file in FILES]
        return [any(fnmatchcase(path, pattern) for pattern in write["Resource"]) for path in paths]

    assert all(written("dev"))
    assert not any(written("prod") + written("dev2") + written("my-dev"))
    assert actions(graph, "deploy-dev-state") == {
        "kms:Decrypt",
        "kms:GenerateDataKey",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
    }


def test_a_deployment_has_the_deployers_policies_of_its_stack(graph: Graph) -> None:
    parts = {file.stem for file in (PROJECT / "bootstrap/deployer").glob("*.json")}
    assert parts
    attached = [each.inputs for each in graph.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")]
    mine = {each["policyArn"] for each in attached if each["role"] == "paddle-deploy-prod"}
    assert mine == {f"arn:aws:iam::{ACCOUNT}:policy/paddle-deployer-prod-{part}" for part in parts}


def test_credentials_last_as_long_as_a_deployment_may_take(graph: Graph) -> None:
    (minutes,) = re.findall(r"timeout-minutes: (\d{3})", (WORKFLOWS / "deploy.yml").read_text())
    assert graph.named("deploy-dev").inputs["maxSessionDuration"] == 60 * int(minutes)


def test_outputs_are_the_variables_that_the_workflows_read(graph: Graph) -> None:
    texts = "".join(file.read_text() for file in WORKFLOWS.glob("*.yml"))
    assert set(re.findall(r"vars\.(\w+)", texts)) == set(graph.outputs) - {"PULUMI_SECRETS_PROVIDER"}
    assert graph.outputs["STACKS"] == "dev prod"
    assert (
        graph.outputs["DEPLOY_ROLE"] + "dev"
        == f"arn:aws:iam::{ACCOUNT}:role/{graph.named('deploy-dev').inputs['name']}"
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"repository": ""}, 'repository: "" is not owner/name.'),
        ({"repository": "octo"}, 'repository: "octo" is not owner/name.'),
        ({"repository": "octo/*"}, 'repository: "octo/*" is not owner/name.'),
        ({"environments": []}, "environments: [] is no list of names."),
        ({"environments": ["d*"]}, "environments: ['d*'] is no list of names."),
        ({"environments": {"a": 1}}, "environments: {'a': 1} is no list of names."),
    ],
)
def test_a_setting_that_would_trust_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], said: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        bootstrap(monkeypatch, **setting)
    assert str(refused.value).startswith(said)
