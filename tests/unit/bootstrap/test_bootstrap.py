"""The bootstrap program: a protected state, deployer policies, and roles that only the right workflow can assume."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from bootstrap import policies
from settings.schema import Settings
from settings.stack_file import stack_settings
from tests.iam_evaluator import Request, permitted
from tests.unit.bootstrap.account import CONFIG, bootstrap, statements
from tests.unit.program import ACCOUNT, PROJECT, Graph, run

BAD_SETTINGS = Path(__file__).with_name("bad_settings.yaml")
WORKFLOWS = PROJECT / ".github/workflows"
ROLE, POLICY = "aws:iam/role:Role", "aws:iam/policy:Policy"
INLINE, ATTACHMENT = "aws:iam/rolePolicy:RolePolicy", "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
PARTS = {*policies.PARTS, "state"}
IAM = f"arn:aws:iam::{ACCOUNT}"


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patch:
        yield bootstrap(patch)


def actions(graph: Graph, name: str) -> set[str]:
    return {action for statement in statements(graph, name) for action in statement["Action"]}


def test_the_state_is_protected_encrypted_and_private(graph: Graph) -> None:
    bucket, keys = graph.one("aws:s3/bucket:Bucket"), graph.all("aws:kms/key:Key")
    assert bucket.protect
    assert {key.name for key in keys} == {"key", "key-dev", "key-prod"}
    for key in keys:
        assert key.protect
        assert key.inputs["enableKeyRotation"] is True
        assert key.inputs["deletionWindowInDays"] == 30
        (default,) = statements(graph, key.name)
        assert default["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
        assert default["Action"] == ["kms:*"], "the default of AWS: IAM policies decide"
        # Deployers may change keys with the tag of their stack. No stack can have this name.
        assert key.inputs["tags"]["stack"] == "_bootstrap"
        assert not policies.STACK_NAME.fullmatch("_bootstrap")
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


def test_each_stack_has_two_roles_for_github(graph: Graph) -> None:
    github = graph.one("aws:iam/openIdConnectProvider:OpenIdConnectProvider")
    assert github.inputs["url"] == "https://token.actions.githubusercontent.com"
    assert {r.name for r in graph.all(ROLE)} == {"preview-dev", "preview-prod", "deploy-dev", "deploy-prod"}


def test_the_audience_of_the_tokens_follows_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"aws:region": "cn-north-1"}
    graph = run(monkeypatch, {**CONFIG, **here}, program=PROJECT / "bootstrap/__main__.py")
    audience = "sts.amazonaws.com.cn"
    assert graph.one("aws:iam/openIdConnectProvider:OpenIdConnectProvider").inputs["clientIdLists"] == [audience]
    for role in ("preview-dev", "deploy-dev"):
        (trust,) = statements(graph, role, "assumeRolePolicy")
        assert trust["Condition"]["StringEquals"]["token.actions.githubusercontent.com:aud"] == audience
    assert graph.outputs["AWS_AUDIENCE"] == audience


def test_the_preview_role_can_only_read_its_stack(graph: Graph) -> None:
    inline = {policy.name: policy.inputs["role"] for policy in graph.all(INLINE)}
    assert inline == {"preview-dev-policy": "paddle-preview-dev", "preview-prod-policy": "paddle-preview-prod"}
    assert actions(graph, "preview-dev-policy") == {
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSubnets",
        "eks:DescribeAddonVersions",
        "eks:DescribeAccessEntry",
        "iam:GetRole",
        "kms:Decrypt",
        "logs:DescribeLogGroups",
        "s3:GetObject",
        "s3:ListBucket",
        "servicequotas:GetAWSDefaultServiceQuota",
        "servicequotas:GetServiceQuota",
        "ssm:GetParameter",
    }
    attached = graph.all(ATTACHMENT)
    assert not {attachment.inputs["role"] for attachment in attached} & set(inline.values())
    found = statements(graph, "preview-dev-policy")
    assert [each["Sid"] for each in found if each["Resource"] == "*"] == ["AskRegion"]


def test_the_preview_role_can_read_the_deployer_and_the_admins(monkeypatch: pytest.MonkeyPatch) -> None:
    deployer, admin = f"{IAM}:role/paddle-deploy-dev", f"{IAM}:user/team/ann"
    ours = replace(stack_settings("dev"), deployer=deployer, admins=(admin,))
    monkeypatch.setattr("bootstrap.account_settings.stack_settings", lambda _: ours)
    found = statements(bootstrap(monkeypatch, stacks=["dev"]), "preview-dev-policy")
    for action, arn in (("iam:GetRole", deployer), ("iam:GetUser", admin)):
        assert permitted(found, Request(action, arn))


def test_a_deployment_only_reads_and_writes_its_state(graph: Graph) -> None:
    objects = {f"s3:{action}" for action in ("DeleteObject", "GetObject", "ListBucket", "PutObject")}
    assert actions(graph, "deployer-dev-state") == {"kms:Decrypt", "kms:GenerateDataKey", *objects}


def attached(graph: Graph, kind: str = "role") -> dict[str, set[str]]:
    """The ARNs of the attached policies, by the name of the role or user."""
    found: dict[str, set[str]] = {}
    for each in graph.all(f"aws:iam/{kind}PolicyAttachment:{kind.capitalize()}PolicyAttachment"):
        found.setdefault(each.inputs[kind], set()).add(each.inputs["policyArn"])
    return found


def arns(stack: str) -> set[str]:
    return {f"arn:aws:mock:us-west-2:{ACCOUNT}:deployer-{stack}-{part}" for part in PARTS}


def test_the_policies_of_a_stack_are_created_and_attached_to_its_deploy_role(graph: Graph) -> None:
    names = {f"paddle-deploy-{stack}-{part}" for stack in ("dev", "prod") for part in PARTS}
    boundaries = {"paddle-boundary-dev", "paddle-boundary-prod"}
    assert {each.inputs["name"] for each in graph.all(POLICY)} == {*names, *boundaries}
    assert attached(graph) == {"paddle-deploy-dev": arns("dev"), "paddle-deploy-prod": arns("prod")}


def test_the_policies_contain_the_names_of_the_stack(graph: Graph) -> None:
    """prod has another region and another cluster name than dev: see Pulumi.prod.yaml."""
    texts = {
        stack: "".join(graph.named(f"deployer-{stack}-{part}").inputs["policy"] for part in policies.PARTS)
        for stack in ("dev", "prod")
    }
    assert f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/paddle-cluster" in texts["dev"]
    assert f"arn:aws:eks:eu-west-1:{ACCOUNT}:cluster/paddle-prod" in texts["prod"]
    assert "oidc.eks.eu-west-1.amazonaws.com/id/*" in texts["prod"]
    assert '"api.paddle"' in texts["prod"]
    assert f"arn:aws:iam::{ACCOUNT}:role/paddle/prod/*" in texts["prod"]
    assert "/dev" not in texts["prod"]
    for name in ("boundary-dev", *(f"deployer-dev-{part}" for part in policies.PARTS)):
        assert not re.search("[<>]", graph.named(name).inputs["policy"]), "a placeholder is left"


def test_the_deployers_and_the_admins_of_a_stack_may_get_access_to_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me, named, friend = (f"arn:aws:iam::{ACCOUNT}:user/{name}" for name in ("me", "named", "friend"))

    def settings_of(stack: str) -> Settings:
        return replace(stack_settings(stack), deployer=named, admins=(friend, named)) if stack == "prod" else ours

    ours = stack_settings("dev")
    monkeypatch.setattr("bootstrap.account_settings.stack_settings", settings_of)
    graph = bootstrap(monkeypatch, deployers={"dev": [me]})
    for stack, expected in (("dev", [me]), ("prod", [named, friend])):
        (access,) = (s for s in statements(graph, f"deployer-{stack}-cluster") if s["Sid"] == "ClusterAccess")
        principals = access["Condition"]["ArnEquals"]["eks:principalArn"]
        assert principals == [f"arn:aws:iam::{ACCOUNT}:role/paddle-deploy-{stack}", *expected], "each once"


def test_the_policies_follow_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    names = policies.Names(ACCOUNT, "c", "amazonaws.com.cn", "aws-cn", "cn-north-1", "dev", "z")
    texts = "".join(json.dumps(policies.deployer_policy(part, names)) for part in policies.PARTS)
    assert "arn:aws:" not in texts
    assert "oidc.eks.cn-north-1.amazonaws.com.cn/id/*" in texts


def test_without_github_a_role_and_a_user_get_the_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    role, user = f"arn:aws:iam::{ACCOUNT}:role/team/deployer", f"arn:aws:iam::{ACCOUNT}:user/me"
    graph = bootstrap(monkeypatch, repository="", stacks=["dev"], deployers={"dev": [role, user]})
    assert attached(graph) == {"deployer": arns("dev")}
    assert attached(graph, "user") == {"me": arns("dev")}
    assert graph.all(ROLE) == graph.all("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == []
    assert set(graph.outputs) == {"PERMISSIONS_BOUNDARY", "STATE_BUCKET"}


def test_credentials_last_as_long_as_the_deploy_job(graph: Graph) -> None:
    (minutes,) = re.findall(r"timeout-minutes: (\d{3})", (WORKFLOWS / "deploy.yml").read_text())
    assert graph.named("deploy-dev").inputs["maxSessionDuration"] == 60 * int(minutes)


def test_the_outputs_are_the_variables_of_the_workflows(graph: Graph) -> None:
    texts = "".join(file.read_text() for file in WORKFLOWS.glob("*.yml"))
    # A person sets RUNNERS: the bootstrap program does not know the runners of the repository.
    assert set(re.findall(r"vars\.(\w+)", texts)) - {"RUNNERS"} == set(graph.outputs) - {"PERMISSIONS_BOUNDARY"}
    assert graph.outputs["STACKS"] == "dev prod"
    for output, kind, name in (
        ("DEPLOY_ROLE", "role", "deploy-dev"),
        ("PREVIEW_ROLE", "role", "preview-dev"),
        ("PERMISSIONS_BOUNDARY", "policy", "boundary-dev"),
    ):
        assert graph.outputs[output] + "dev" == f"arn:aws:iam::{ACCOUNT}:{kind}/{graph.named(name).inputs['name']}"
    aliases = {alias.inputs["name"] for alias in graph.all("aws:kms/alias:Alias")}
    assert aliases == {"alias/pulumi-state", "alias/paddle-state-dev", "alias/paddle-state-prod"}


@pytest.mark.parametrize("case", yaml.safe_load(BAD_SETTINGS.read_text()), ids=lambda case: case["message"][:60])
def test_an_invalid_setting_is_refused(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        bootstrap(monkeypatch, **case["given"])
    assert str(refused.value).startswith(case["message"])


# What the official provider and EKS call in an update, a refresh or a destroy, and the emulated provider does not.
CALLED_ON_AWS = {
    ("ec2:DisassociateAddress", "elastic-ip/eipalloc-1"),
    ("ec2:DisassociateAddress", "network-interface/eni-1"),
    ("elasticfilesystem:ModifyMountTargetSecurityGroups", "file-system/fs-1"),
    ("iam:GetRole", "role/aws-service-role/eks-nodegroup.amazonaws.com/AWSServiceRoleForAmazonEKSNodegroup"),
    ("kms:UpdateKeyDescription", "key/1"),
    ("route53:AssociateVPCWithHostedZone", "hostedzone/Z1"),
    ("route53:DisassociateVPCFromHostedZone", "hostedzone/Z1"),
    ("route53:UpdateHostedZoneComment", "hostedzone/Z1"),
}
NEVER_CALLED = {"ec2:DescribeManagedPrefixLists", "ec2:GetManagedPrefixListEntries", "s3:GetBucketLocation"}


def test_the_deployer_can_do_what_only_real_aws_asks_for(graph: Graph) -> None:
    found = [each for part in policies.PARTS for each in statements(graph, f"deployer-dev-{part}")]
    allowed = [
        (action, arn)
        for each in found
        for action in each["Action"]
        for arn in ([each["Resource"]] if isinstance(each["Resource"], str) else each["Resource"])
    ]
    for action, resource in CALLED_ON_AWS:
        # Compare only the part of the ARN after the account number.
        patterns = [re.sub(r"^arn:aws:[^/]*:", "", arn) for name, arn in allowed if name == action]
        assert any(fnmatchcase(resource, pattern) for pattern in patterns), f"{action} on {resource}: {patterns}"
    assert {action for action, _ in allowed} & NEVER_CALLED == set()
