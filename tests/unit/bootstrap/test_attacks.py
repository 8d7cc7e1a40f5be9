"""What a stolen deploy role, a role that it creates, and a foreign GitHub job try. AWS must deny all of it."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from bootstrap.policies import PARTS
from settings.schema import Settings, read
from tests.iam_evaluator import Request, Statement, permitted, trusted
from tests.unit.bootstrap.account import CONFIG, bootstrap, statements
from tests.unit.conftest import RunStack
from tests.unit.program import ACCOUNT, EXISTING_KEY, NAME, Graph

IAM, STATE = f"arn:aws:iam::{ACCOUNT}", f"arn:aws:mock:us-west-2:{ACCOUNT}"
BOUNDARY, KMS = f"{IAM}:policy/paddle-boundary-dev", f"arn:aws:kms:us-west-2:{ACCOUNT}:key"
OUR_BUCKET, TOPIC = "arn:aws:s3:::paddle-dev-1a2b3c4", f"arn:aws:sns:us-west-2:{ACCOUNT}:training-messages-1a2b3c4"
CASES: Mapping[str, Any] = yaml.safe_load(
    Template(Path(__file__).with_name("requests.yaml").read_text()).substitute(
        ACCOUNT=ACCOUNT,
        ADMIN=f"{IAM}:role/admin",
        ADMINISTRATOR="arn:aws:iam::aws:policy/AdministratorAccess",
        BOUNDARY=BOUNDARY,
        CNI="arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy",
        DEPLOYER=f"{IAM}:role/paddle-deploy-dev",
        EC2=f"arn:aws:ec2:us-west-2:{ACCOUNT}",
        EFS=f"arn:aws:elasticfilesystem:us-west-2:{ACCOUNT}",
        EKS=f"arn:aws:eks:us-west-2:{ACCOUNT}",
        EXISTING_KEY=EXISTING_KEY,
        IAM=IAM,
        ISSUER=f"{IAM}:oidc-provider/oidc.eks.us-west-2.amazonaws.com/id/ABC",
        KMS=KMS,
        OUR_BUCKET=OUR_BUCKET,
        OUR_ROLE=f"{IAM}:role/paddle/dev/export-role-1a2b3c4",
        PROD_FILE=".pulumi/stacks/paddle-on-aws/prod.json",
        # The names that the mocked AWS gives to the state bucket and the keys of the states.
        STATE=STATE,
        THEIR_BOUNDARY=f"{IAM}:policy/paddle-boundary-prod",
        THEIR_BUCKET="arn:aws:s3:::paddle-prod-1a2b3c4",
        THEIR_ROLE=f"{IAM}:role/paddle/prod/export-role-1a2b3c4",
        TOPIC=TOPIC,
    )
)
CONTEXTS: Mapping[str, Mapping[str, str]] = CASES["contexts"]


def context(words: str) -> dict[str, Any]:
    """The keys in a request: names of contexts, and key=value."""
    found: dict[str, Any] = {}
    for word in words.split():
        key, is_value, value = word.partition("=")
        found |= {key: yaml.safe_load(value) if value[0] == "[" else value} if is_value else CONTEXTS[key]
    return found


def requests(lines: Sequence[Sequence[str]]) -> list[Request]:
    """Every combination of the actions, the resources and the contexts of each line."""
    split = [
        (actions.split(), resources.split(), (given or [""])[0].split("|")) for actions, resources, *given in lines
    ]
    return [Request(a, r, context(g)) for line in split for a, r, g in itertools.product(*line)]


def deployer_of(graph: Graph) -> list[Statement]:
    """All policies of the deployer of dev."""
    return [each for part in (*PARTS, "state") for each in statements(graph, f"deployer-dev-{part}")]


@pytest.fixture(scope="module")
def account() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patch:
        yield bootstrap(patch)


@pytest.fixture
def deployer(account: Graph) -> list[Statement]:
    return deployer_of(account)


@pytest.fixture
def boundary(account: Graph) -> list[Statement]:
    return list(statements(account, "boundary-dev"))


@pytest.mark.parametrize("kind", CASES["attacks"])
def test_the_deployer_may_not(deployer: Sequence[Statement], kind: str) -> None:
    assert [request for request in requests(CASES["attacks"][kind]) if permitted(deployer, request)] == []


def test_the_deployer_may_do_the_same_to_its_own_stack(deployer: Sequence[Statement]) -> None:
    assert [request for request in requests(CASES["own stack"]) if not permitted(deployer, request)] == []


def test_the_deployer_of_a_stack_with_a_given_key_can_only_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deployer = deployer_of(with_given_key(monkeypatch))
    attacks = [*CASES["attacks"]["keys"], *CASES["attacks on a given key"]]
    assert [request for request in requests(attacks) if permitted(deployer, request)] == []
    assert [request for request in requests(CASES["uses of a given key"]) if not permitted(deployer, request)] == []


def test_the_preview_role_can_only_read_its_stack(account: Graph) -> None:
    preview = statements(account, "preview-dev-policy")
    assert [request for request in requests(CASES["preview can"]) if not permitted(preview, request)] == []
    assert [request for request in requests(CASES["preview cannot"]) if permitted(preview, request)] == []


def test_only_the_preview_role_of_a_stack_with_a_given_key_may_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Request("kms:DescribeKey", EXISTING_KEY)
    assert permitted(statements(with_given_key(monkeypatch), "preview-dev-policy"), ask)
    assert not permitted(statements(bootstrap(monkeypatch, stacks=["dev"]), "preview-dev-policy"), ask)


def with_given_key(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The bootstrap program for a stack dev with kmsKeyArn."""
    with monkeypatch.context() as patched:
        patched.setattr("bootstrap.account_settings.stack_settings", _with_data_and_key)
        return bootstrap(patched, stacks=["dev"])


EVERYTHING = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]


@pytest.mark.parametrize("session", ["", "worker", "pod"])
def test_a_role_with_all_permissions_is_limited_by_the_boundary(boundary: Sequence[Statement], session: str) -> None:
    of_session = context(session)
    tried = [Request(r.action, r.resource, {**r.context, **of_session}) for r in requests(CASES["beyond the boundary"])]
    assert [request for request in tried if permitted(EVERYTHING, request, boundary)] == []
    assert all(permitted(EVERYTHING, request) for request in tried), "without a boundary, all of it is allowed"


def test_a_role_that_trusts_another_account_gives_no_data(boundary: Sequence[Statement]) -> None:
    data = requests(CASES["from another account"])
    assert [request for request in data if permitted(EVERYTHING, request, boundary)] == []


def test_the_boundary_allows_what_the_cluster_and_the_workers_need(boundary: Sequence[Statement]) -> None:
    needed = requests(CASES["within the boundary"])
    assert [request for request in needed if not permitted(EVERYTHING, request, boundary)] == []


@pytest.mark.parametrize("key", ["", EXISTING_KEY])
def test_the_boundary_allows_what_the_program_grants_to_its_roles(
    program: RunStack, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """With a boundary, a role can do nothing else, so a new permission of a role belongs into the boundary too."""
    monkeypatch.setattr("bootstrap.account_settings.stack_settings", _with_data_and_key if key else _with_data)
    boundary = statements(bootstrap(monkeypatch, stacks=["dev"]), "boundary-dev")
    for action in ("Decrypt", "GenerateDataKey"):
        assert not permitted(EVERYTHING, Request(f"kms:{action}", EXISTING_KEY + "0"), boundary)
        assert permitted(EVERYTHING, Request(f"kms:{action}", EXISTING_KEY), boundary) is bool(key)
    notify = {"email": "team@example.com"}
    graph = program({"data": {"source": "s3://datasets/words/"}, "notify": notify, "kmsKeyArn": key})
    real = {
        f"{STATE}:key": f"{KMS}/1",
        f"{STATE}:paddle-dev": OUR_BUCKET,
        f"{STATE}:training-messages": TOPIC,
    }
    granted = []
    for policy in graph.all("aws:iam/rolePolicy:RolePolicy"):
        text = policy.inputs["policy"]
        for mocked, arn in real.items():
            text = text.replace(mocked, arn)
        session = {} if policy.name == "cluster-key-policy" else CONTEXTS["pod"]
        for each in json.loads(text)["Statement"]:
            tags = {} if each["Resource"] == EXISTING_KEY else CONTEXTS["ours"]
            granted += [Request(action, each["Resource"], {**tags, **session}) for action in each["Action"]]
    assert len(granted) > 10
    assert [request for request in granted if not permitted(EVERYTHING, request, boundary)] == []


def _with_data(stack: str) -> Settings:
    """The settings of a stack that reads its data from a bucket."""
    settings, _ = read({"data": {"source": "s3://datasets/words/"}})
    return dataclasses.replace(settings, stack=stack, aws={"region": "us-west-2"})


def _with_data_and_key(stack: str) -> Settings:
    return dataclasses.replace(_with_data(stack), kms_key_arn=EXISTING_KEY)


def test_every_role_of_the_program_has_the_path_and_the_boundary(program: RunStack, dev: Graph) -> None:
    data = {"source": "s3://data/words.tar"}
    graph = program({"data": data, "storage": {"driver": "efsCsi"}, "permissionsBoundary": BOUNDARY})
    roles = graph.all("aws:iam/role:Role")
    kinds = {"cluster-role", "worker-role", "data-role", "export-role", "efs-driver-role"}
    assert {role.name for role in roles} == kinds
    for role in roles:
        assert (role.inputs["path"], role.inputs["permissionsBoundary"]) == ("/paddle/dev/", BOUNDARY)
        assert list(role.options.ignoreChanges) == ["path"], "a stack of an earlier version would replace its cluster"
    assert "permissionsBoundary" not in dev.named("cluster-role").inputs


GITHUB = "token.actions.githubusercontent.com"
JOB = {
    "aud": "sts.amazonaws.com",
    "sub": "repo:octo/paddle:environment:dev",
    "repository_id": "456",
    "job_workflow_ref": "octo/paddle/.github/workflows/deploy.yml@refs/heads/main",
}
PULL_REQUEST = {"aud": "sts.amazonaws.com", "sub": "repo:octo/paddle:pull_request", "repository_id": "456"}


@pytest.mark.parametrize(
    ("role", "job", "accepted"),
    [
        ("deploy-dev", JOB, True),
        ("deploy-dev", {**JOB, "sub": "repo:octo@123/paddle@456:environment:dev"}, True),
        ("deploy-prod", JOB, False),
        # A pull request that adds a workflow, or changes deploy.yml on its branch.
        ("deploy-dev", {**JOB, "job_workflow_ref": "octo/paddle/.github/workflows/new.yml@refs/heads/main"}, False),
        ("deploy-dev", {**JOB, "job_workflow_ref": "octo/paddle/.github/workflows/deploy.yml@refs/heads/x"}, False),
        ("deploy-dev", {**JOB, "job_workflow_ref": "octo/paddle/.github/workflows/deploy.yml@refs/tags/main"}, False),
        # A repository that took over the name, and a job without an environment.
        ("deploy-dev", {**JOB, "repository_id": "789"}, False),
        ("deploy-dev", {**JOB, "sub": "repo:octo/paddle:ref:refs/heads/main"}, False),
        ("deploy-dev", {**JOB, "aud": "https://github.com/octo"}, False),
        ("deploy-dev", PULL_REQUEST, False),
        ("deploy-dev", {**JOB, "sub": "repo:octo@124/paddle@456:environment:dev"}, False),
        ("deploy-dev", {**JOB, "sub": "repo:other/paddle:environment:dev"}, False),
        ("deploy-prod", {**JOB, "sub": "repo:octo/paddle:environment:prod"}, True),
        ("preview-prod", PULL_REQUEST, True),
        ("preview-dev", {**PULL_REQUEST, "sub": "repo:octo@123/paddle@456:pull_request"}, True),
        ("preview-dev", {**PULL_REQUEST, "aud": "https://github.com/octo"}, False),
        ("preview-dev", PULL_REQUEST, True),
        ("preview-dev", {**PULL_REQUEST, "repository_id": "789"}, False),
        ("preview-dev", JOB, False),
    ],
)
def test_a_role_trusts_only_its_jobs(account: Graph, role: str, job: dict[str, str], accepted: bool) -> None:
    trust = statements(account, role, "assumeRolePolicy")
    provider = ("Federated", f"{STATE}:github")
    claims = {f"{GITHUB}:{name}": value for name, value in job.items()}
    assert trusted(trust, "sts:AssumeRoleWithWebIdentity", provider, claims) is accepted
    assert not trusted(trust, "sts:AssumeRoleWithWebIdentity", ("Federated", f"{STATE}:other"), claims)
    assert CONFIG[f"{NAME}:repositoryId"] == "456"
