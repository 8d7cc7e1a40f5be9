"""What a stolen deploy role, a role that it creates, and a foreign GitHub job try. AWS must deny all of it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import pytest

from bootstrap.policies import PARTS
from settings.schema import Settings, read
from tests.iam_evaluator import Request, Statement, permitted, trusted
from tests.unit.bootstrap.account import CONFIG, bootstrap, statements
from tests.unit.conftest import RunStack
from tests.unit.program import ACCOUNT, EXISTING_KEY, NAME, Graph

IAM, KMS = f"arn:aws:iam::{ACCOUNT}", f"arn:aws:kms:us-west-2:{ACCOUNT}:key"
EC2, EKS = f"arn:aws:ec2:us-west-2:{ACCOUNT}", f"arn:aws:eks:us-west-2:{ACCOUNT}"
EFS = f"arn:aws:elasticfilesystem:us-west-2:{ACCOUNT}"
SNS = f"arn:aws:sns:us-west-2:{ACCOUNT}"
BOUNDARY, THEIR_BOUNDARY = f"{IAM}:policy/paddle-boundary-dev", f"{IAM}:policy/paddle-boundary-prod"
OUR_ROLE, THEIR_ROLE = f"{IAM}:role/paddle/dev/export-role-1a2b3c4", f"{IAM}:role/paddle/prod/export-role-1a2b3c4"
DEPLOYER, ADMIN = f"{IAM}:role/paddle-deploy-dev", f"{IAM}:role/admin"
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
# The names that the mocked AWS gives to the state bucket and the keys of the states.
STATE = f"arn:aws:mock:us-west-2:{ACCOUNT}"
DIGITS = "1a2b3c4"
OUR_BUCKET, THEIR_BUCKET = f"arn:aws:s3:::paddle-dev-{DIGITS}", f"arn:aws:s3:::paddle-prod-{DIGITS}"
ISSUER = f"{IAM}:oidc-provider/oidc.eks.us-west-2.amazonaws.com/id/ABC"
LIMITED = {"iam:PermissionsBoundary": BOUNDARY}


def tags(key: str, stack: str) -> dict[str, str]:
    return {f"aws:{key}/project": "paddle-on-aws", f"aws:{key}/stack": stack}


OURS, THEIRS = tags("ResourceTag", "dev"), tags("ResourceTag", "prod")
AS_OURS, AS_THEIRS = tags("RequestTag", "dev"), tags("RequestTag", "prod")
# The keys of the states have tags of the bootstrap program.
OF_STATE = {"aws:ResourceTag/project": NAME, "aws:ResourceTag/stack": "_bootstrap"}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return bootstrap(monkeypatch)


@pytest.fixture
def deployer(account: Graph) -> list[Statement]:
    """All policies of the deployer of dev."""
    return [each for part in (*PARTS, "state") for each in statements(account, f"deployer-dev-{part}")]


@pytest.fixture
def boundary(account: Graph) -> list[Statement]:
    return list(statements(account, "boundary-dev"))


ROLE_ATTACKS = [
    Request("iam:CreateRole", OUR_ROLE),
    Request("iam:CreateRole", OUR_ROLE, {"iam:PermissionsBoundary": ADMINISTRATOR}),
    Request("iam:CreateRole", OUR_ROLE, {"iam:PermissionsBoundary": THEIR_BOUNDARY}),
    Request("iam:CreateRole", f"{IAM}:role/mine", LIMITED),
    Request("iam:CreateRole", THEIR_ROLE, LIMITED),
    # A role that has lost its boundary, or never had one.
    Request("iam:PutRolePolicy", OUR_ROLE),
    Request("iam:UpdateAssumeRolePolicy", OUR_ROLE),
    Request("iam:AttachRolePolicy", OUR_ROLE, {"iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"}),
    Request("iam:AttachRolePolicy", OUR_ROLE, {**LIMITED, "iam:PolicyARN": ADMINISTRATOR}),
    Request("iam:DeleteRolePermissionsBoundary", OUR_ROLE, LIMITED),
    Request("iam:PutRolePermissionsBoundary", OUR_ROLE, {"iam:PermissionsBoundary": ADMINISTRATOR}),
    *(
        Request(f"iam:{action}", role, context)
        for action in ("PutRolePolicy", "UpdateAssumeRolePolicy", "DeleteRole", "TagRole", "PutRolePermissionsBoundary")
        for role in (THEIR_ROLE, DEPLOYER, ADMIN, f"{IAM}:role/paddle-preview-dev")
        for context in ({}, LIMITED, {"iam:PermissionsBoundary": THEIR_BOUNDARY})
    ),
    *(
        Request(f"iam:{action}", f"{IAM}:policy/{policy}")
        for action in ("CreatePolicy", "CreatePolicyVersion", "SetDefaultPolicyVersion", "DeletePolicy")
        for policy in ("paddle-boundary-dev", "paddle-deploy-dev-roles", "mine")
    ),
    *(Request(f"iam:{action}", f"{IAM}:user/me") for action in ("CreateUser", "CreateAccessKey", "PutUserPolicy")),
    Request("iam:CreateInstanceProfile", f"{IAM}:instance-profile/mine"),
    Request("iam:AddRoleToInstanceProfile", f"{IAM}:instance-profile/mine"),
    *(
        Request("iam:PassRole", role, {"iam:PassedToService": service})
        for role in (ADMIN, DEPLOYER, THEIR_ROLE)
        for service in ("ec2.amazonaws.com", "eks.amazonaws.com")
    ),
    Request("iam:PassRole", OUR_ROLE, {"iam:PassedToService": "lambda.amazonaws.com"}),
    Request("sts:AssumeRole", ADMIN),
    Request("iam:CreateOpenIDConnectProvider", f"{IAM}:oidc-provider/evil.example.com", AS_OURS),
    Request("iam:UpdateOpenIDConnectProviderThumbprint", ISSUER, OURS),
    Request("iam:DeleteOpenIDConnectProvider", ISSUER, THEIRS),
    Request("iam:TagOpenIDConnectProvider", ISSUER, {**AS_OURS, **THEIRS}),
]
CLUSTER_ATTACKS = [
    *(Request(f"eks:{action}Cluster", f"{EKS}:cluster/other-cluster") for action in ("Create", "Delete", "Describe")),
    Request("eks:DeleteNodegroup", f"{EKS}:nodegroup/other-cluster/workers/1"),
    Request("logs:PutRetentionPolicy", f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:/aws/eks/other-cluster/cluster"),
    # An access entry for itself in the cluster of another stack, and for somebody else in its own cluster.
    Request("eks:CreateAccessEntry", f"{EKS}:cluster/other-cluster", {"eks:principalArn": DEPLOYER}),
    Request("eks:CreateAccessEntry", f"{EKS}:cluster/paddle-cluster", {"eks:principalArn": f"{IAM}:role/mine"}),
    Request("eks:CreateAccessEntry", f"{EKS}:cluster/paddle-cluster"),
    Request(
        "eks:AssociateAccessPolicy",
        f"{EKS}:access-entry/other-cluster/role/{ACCOUNT}/paddle-deploy-dev/1",
        {"eks:principalArn": DEPLOYER},
    ),
    Request(
        "eks:AssociateAccessPolicy",
        f"{EKS}:access-entry/paddle-cluster/role/{ACCOUNT}/mine/1",
        {"eks:principalArn": f"{IAM}:role/mine"},
    ),
    # The cluster of prod has the same name, but is in another region.
    Request("eks:DeleteCluster", f"arn:aws:eks:eu-west-1:{ACCOUNT}:cluster/paddle-cluster", THEIRS),
]
OTHER_STACK_ATTACKS = [
    *(
        Request(f"ec2:{action}", f"{EC2}:{kind}/{kind}-1", {**AS_OURS, **theirs})
        for action, kind in (
            ("DeleteVpc", "vpc"),
            ("CreateTags", "vpc"),
            ("DeleteTags", "subnet"),
            ("AuthorizeSecurityGroupIngress", "security-group"),
            ("RunInstances", "subnet"),
            ("RunInstances", "security-group"),
            ("RunInstances", "launch-template"),
            ("CreateNetworkInterface", "subnet"),
            # The new resource has our tags, but its VPC or subnet belongs to somebody else.
            ("CreateSubnet", "vpc"),
            ("CreateNatGateway", "subnet"),
        )
        for theirs in (THEIRS, {})
    ),
    Request("ec2:CreateVpc", f"{EC2}:vpc/new", AS_THEIRS),
    Request("elasticfilesystem:DeleteFileSystem", f"{EFS}:file-system/fs-1", THEIRS),
    Request("elasticfilesystem:PutFileSystemPolicy", f"{EFS}:file-system/fs-1", THEIRS),
    Request("elasticfilesystem:TagResource", f"{EFS}:file-system/fs-1", {**AS_OURS, **THEIRS}),
    Request("sns:DeleteTopic", f"{SNS}:training-messages-1a2b3c4", THEIRS),
    Request("sns:GetTopicAttributes", f"{SNS}:training-messages-1a2b3c4", THEIRS),
    Request("sns:GetTopicAttributes", f"{SNS}:training-messages-1a2b3c4", {"aws:ResourceTag/project": "payroll"}),
    Request("sns:GetTopicAttributes", f"{SNS}:alarms"),
    Request("sns:TagResource", f"{SNS}:training-messages-1a2b3c4", {**AS_OURS, **THEIRS}),
    *(
        Request(f"s3:{action}", resource)
        for action in ("DeleteBucket", "PutBucketPolicy", "DeleteObject", "ListBucket")
        for bucket in (
            THEIR_BUCKET,
            f"arn:aws:s3:::paddle-dev-2-{DIGITS}",
            "arn:aws:s3:::payroll",
            f"{STATE}:pulumi-state",
        )
        for resource in ([f"{bucket}/file"] if "Object" in action else [bucket])
        if (action, bucket) != ("ListBucket", f"{STATE}:pulumi-state")
    ),
    Request(
        "route53:ChangeResourceRecordSets",
        "arn:aws:route53:::hostedzone/Z1",
        {"route53:ChangeResourceRecordSetsNormalizedRecordNames": ["www.example.com"]},
    ),
]
KEY_ATTACKS = [
    *(
        Request(f"kms:{action}", f"{KMS}/1", {**AS_OURS, **owner})
        for action in (
            "TagResource",
            "UntagResource",
            "PutKeyPolicy",
            "ScheduleKeyDeletion",
            "CreateGrant",
            "CreateAlias",
        )
        for owner in (OF_STATE, THEIRS)
    ),
    *(Request(f"kms:{action}", f"{KMS}/1") for action in ("PutKeyPolicy", "ScheduleKeyDeletion", "CreateGrant")),
    Request("kms:DeleteAlias", f"arn:aws:kms:us-west-2:{ACCOUNT}:alias/paddle-state-dev"),
    Request("kms:UpdateAlias", f"arn:aws:kms:us-west-2:{ACCOUNT}:alias/paddle-state-dev"),
    Request("kms:Decrypt", f"{KMS}/1", {"kms:ViaService": "elasticfilesystem.us-west-2.amazonaws.com", **OF_STATE}),
    *(
        Request(f"kms:{action}", f"{STATE}:{key}")
        for action in ("Decrypt", "GenerateDataKey")
        for key in ("key", "key-prod")
    ),
]
STATE_ATTACKS = [
    *(
        Request(f"s3:{action}", f"{STATE}:pulumi-state/{folder}/.pulumi/stacks/paddle-on-aws/prod.json")
        for action in ("GetObject", "PutObject", "DeleteObject")
        for folder in ("prod", "dev-2", "..", ".pulumi")
    ),
    Request("s3:ListBucket", f"{STATE}:pulumi-state", {"s3:prefix": "prod/.pulumi/"}),
    Request("s3:PutBucketPolicy", f"{STATE}:pulumi-state"),
]
ATTACKS = {
    "roles": ROLE_ATTACKS,
    "cluster": CLUSTER_ATTACKS,
    "other stack": OTHER_STACK_ATTACKS,
    "keys": KEY_ATTACKS,
    "state": STATE_ATTACKS,
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_deployer_may_not(deployer: Sequence[Statement], kind: str) -> None:
    assert [request for request in ATTACKS[kind] if permitted(deployer, request)] == []


def test_the_deployer_may_do_the_same_to_its_own_stack(deployer: Sequence[Statement]) -> None:
    """So the denials above come from the boundary, the path, the tags and the names, and not from a wrong action."""
    own = [
        *(Request(f"iam:{action}", OUR_ROLE, LIMITED) for action in ("CreateRole", "PutRolePolicy", "DeleteRole")),
        *(Request(f"iam:{action}", OUR_ROLE, LIMITED) for action in ("UpdateAssumeRolePolicy", "TagRole")),
        Request("iam:PutRolePermissionsBoundary", OUR_ROLE, LIMITED),
        Request("iam:PassRole", OUR_ROLE, {"iam:PassedToService": "ec2.amazonaws.com"}),
        Request("iam:CreateOpenIDConnectProvider", ISSUER, AS_OURS),
        Request("iam:DeleteOpenIDConnectProvider", ISSUER, OURS),
        Request("eks:CreateAccessEntry", f"{EKS}:cluster/paddle-cluster", {"eks:principalArn": DEPLOYER}),
        Request("ec2:DeleteVpc", f"{EC2}:vpc/vpc-1", OURS),
        Request("ec2:CreateVpc", f"{EC2}:vpc/new", AS_OURS),
        Request("elasticfilesystem:DeleteFileSystem", f"{EFS}:file-system/fs-1", OURS),
        *(Request(f"s3:{action}", OUR_BUCKET) for action in ("DeleteBucket", "PutBucketPolicy", "ListBucket")),
        *(
            Request(f"kms:{action}", f"{KMS}/1", OURS)
            for action in ("PutKeyPolicy", "ScheduleKeyDeletion", "CreateGrant")
        ),
        Request("kms:TagResource", f"{KMS}/1", AS_OURS),
        Request("kms:Decrypt", f"{KMS}/1", {"kms:ViaService": "elasticfilesystem.us-west-2.amazonaws.com", **OURS}),
        Request(
            "iam:AttachRolePolicy",
            OUR_ROLE,
            {**LIMITED, "iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"},
        ),
        Request("ec2:RunInstances", f"{EC2}:instance/new", {"ec2:LaunchTemplate": f"{EC2}:launch-template/lt-1"}),
        # Before it creates a topic, the provider checks that the topic does not exist.
        *(Request("sns:GetTopicAttributes", f"{SNS}:training-messages-1a2b3c4", owner) for owner in (OURS, {})),
        Request("kms:Decrypt", f"{STATE}:key-dev"),
        Request("s3:PutObject", f"{STATE}:pulumi-state/dev/.pulumi/stacks/paddle-on-aws/dev.json"),
        Request("s3:ListBucket", f"{STATE}:pulumi-state", {"s3:prefix": "dev/.pulumi/"}),
    ]
    assert [request for request in own if not permitted(deployer, request)] == []


THROUGH_EFS = {"kms:ViaService": "elasticfilesystem.us-west-2.amazonaws.com"}
KEY_ATTACKS_WITH_A_GIVEN_KEY = [
    Request("kms:CreateKey", "*", AS_OURS),
    *(
        Request(f"kms:{action}", key, context)
        for action in (
            *("CreateAlias", "DisableKey", "EnableKeyRotation", "PutKeyPolicy", "ScheduleKeyDeletion", "TagResource"),
            *("UntagResource", "UpdateKeyDescription", "Decrypt"),
        )
        for key in (EXISTING_KEY, f"{KMS}/1")
        for context in ({}, OURS, AS_OURS, {**OURS, **AS_OURS})
    ),
    Request("kms:CreateGrant", f"{KMS}/1", OURS),
    Request("kms:Decrypt", f"{KMS}/1", {**OURS, **THROUGH_EFS}),
]


def test_the_deployer_of_a_stack_with_a_given_key_can_only_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot add the tags of its stack to a key, and then change or delete the key."""
    graph = with_given_key(monkeypatch)
    deployer = [each for part in (*PARTS, "state") for each in statements(graph, f"deployer-dev-{part}")]
    for attack in (*KEY_ATTACKS, *KEY_ATTACKS_WITH_A_GIVEN_KEY):
        assert not permitted(deployer, attack), attack
    uses = [
        *(Request(f"kms:{action}", EXISTING_KEY, THEIRS) for action in ("CreateGrant", "DescribeKey")),
        *(
            Request(f"kms:{action}", EXISTING_KEY, {**THEIRS, **THROUGH_EFS})
            for action in ("Decrypt", "GenerateDataKeyWithoutPlaintext")
        ),
    ]
    assert [request for request in uses if not permitted(deployer, request)] == []


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
# The session keys that AWS sets for each way to assume a role. A session of another account has none of them.
SESSIONS: Mapping[str, Mapping[str, str]] = {
    "another account": {},
    "EC2": {"aws:Ec2InstanceSourceVpc": "vpc-1"},
    "pod": {"aws:FederatedProvider": ISSUER},
}
ROLE_CANNOT = [
    *(
        Request(f"iam:{action}", role)
        for action in ("CreateRole", "PutRolePolicy", "PassRole")
        for role in (OUR_ROLE, ADMIN)
    ),
    Request("iam:PutRolePermissionsBoundary", OUR_ROLE, {"iam:PermissionsBoundary": ADMINISTRATOR}),
    Request("iam:DeleteRolePermissionsBoundary", OUR_ROLE, LIMITED),
    Request("iam:CreatePolicyVersion", BOUNDARY),
    Request("iam:CreateUser", f"{IAM}:user/me"),
    Request("sts:AssumeRole", ADMIN),
    Request("s3:GetObject", f"{STATE}:pulumi-state/dev/.pulumi/stacks/paddle-on-aws/dev.json"),
    Request("s3:GetObject", f"{THEIR_BUCKET}/model"),
    Request("s3:GetObject", "arn:aws:s3:::payroll/file"),
    Request("s3:PutBucketPolicy", OUR_BUCKET),
    Request("kms:Decrypt", f"{KMS}/1", THEIRS),
    Request("kms:Decrypt", f"{KMS}/1", OF_STATE),
    Request("kms:CreateGrant", f"{KMS}/1", OURS),
    Request("ssm:GetParameter", f"arn:aws:ssm:us-west-2:{ACCOUNT}:parameter/password"),
    Request("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:password"),
    Request("ec2:RunInstances", f"{EC2}:instance/new", AS_OURS),
    Request("ec2:TerminateInstances", f"{EC2}:instance/i-1", OURS),
    Request("ec2:CreateTags", f"{EC2}:instance/i-1", {"aws:TagKeys": ["kubernetes.io/cluster/x"], **THEIRS}),
    Request("ec2:AuthorizeSecurityGroupIngress", f"{EC2}:security-group/sg-1", OURS),
    Request("eks:CreateAccessEntry", f"{EKS}:cluster/paddle-cluster", {"eks:principalArn": OUR_ROLE}),
    Request("eks:DescribeCluster", f"{EKS}:cluster/other-cluster"),
]


@pytest.mark.parametrize("session", SESSIONS)
def test_a_role_with_all_permissions_is_limited_by_the_boundary(boundary: Sequence[Statement], session: str) -> None:
    requests = [Request(each.action, each.resource, {**each.context, **SESSIONS[session]}) for each in ROLE_CANNOT]
    assert [request for request in requests if permitted(EVERYTHING, request, boundary)] == []
    assert all(permitted(EVERYTHING, request) for request in requests), "without a boundary, all of it is allowed"


def test_a_role_that_trusts_another_account_gives_no_data(boundary: Sequence[Statement]) -> None:
    """IAM has no condition for the contents of a trust policy, so the boundary makes such a session useless."""
    data = [
        Request("s3:GetObject", f"{OUR_BUCKET}/model"),
        Request("s3:ListBucket", OUR_BUCKET),
        Request("s3:PutObject", f"{OUR_BUCKET}/model"),
        Request("ecr:GetAuthorizationToken", "*"),
        Request("ec2:CreateNetworkInterface", f"{EC2}:network-interface/new"),
        Request("eks:DescribeCluster", f"{EKS}:cluster/paddle-cluster"),
    ]
    assert [request for request in data if permitted(EVERYTHING, request, boundary)] == []


def worker_needs() -> list[Request]:
    """What AWS documents for the cluster role, the workers' role and the EFS driver."""
    look = "DescribeAvailabilityZones DescribeDhcpOptions DescribeInstanceTopology DescribeInstances DescribeVpcs"
    workers = SESSIONS["EC2"]
    network = {"instance", "network-interface", "security-group", "subnet"}
    return [
        *(Request(f"ec2:{action}", "*") for action in (*look.split(), "DescribeNetworkInterfaces")),
        Request("ec2:CreateTags", f"{EC2}:instance/i-1", {"aws:TagKeys": ["kubernetes.io/cluster/paddle"], **OURS}),
        *(Request(f"kms:{action}", f"{KMS}/1", OURS) for action in ("Decrypt", "DescribeKey", "Encrypt", "ListGrants")),
        *(
            Request("ec2:CreateNetworkInterface", f"{EC2}:{kind}/1", {**OURS, **workers})
            for kind in network - {"instance"}
        ),
        *(
            Request("ec2:AttachNetworkInterface", f"{EC2}:{kind}/1", {**OURS, **workers})
            for kind in ("instance", "network-interface")
        ),
        *(
            Request(f"ec2:{action}", f"{EC2}:network-interface/eni-1", workers)
            for action in ("AssignPrivateIpAddresses", "DeleteNetworkInterface", "DetachNetworkInterface", "CreateTags")
        ),
        Request("ecr:GetAuthorizationToken", "*", workers),
        *(
            Request(f"ecr:{action}", "arn:aws:ecr:us-west-2:602401143452:repository/eks/coredns", workers)
            for action in ("BatchGetImage", "GetDownloadUrlForLayer")
        ),
        Request("eks:DescribeCluster", f"{EKS}:cluster/paddle-cluster", workers),
        Request("ssm:UpdateInstanceInformation", f"{EC2}:instance/i-1", workers),
        *(Request(f"ssmmessages:{action}", "*", workers) for action in ("CreateControlChannel", "OpenDataChannel")),
        Request("elasticfilesystem:DescribeMountTargets", f"{EFS}:file-system/fs-1", SESSIONS["pod"]),
    ]


def test_the_boundary_allows_what_the_cluster_and_the_workers_need(boundary: Sequence[Statement]) -> None:
    assert [request for request in worker_needs() if not permitted(EVERYTHING, request, boundary)] == []


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
    sessions: Mapping[str, Mapping[str, str]] = {"cluster-key-policy": {}}
    real = {
        f"arn:aws:mock:us-west-2:{ACCOUNT}:key": f"{KMS}/1",
        f"arn:aws:mock:us-west-2:{ACCOUNT}:paddle-dev": OUR_BUCKET,
        f"arn:aws:mock:us-west-2:{ACCOUNT}:training-messages": f"{SNS}:training-messages-1a2b3c4",
    }
    granted = []
    for policy in graph.all("aws:iam/rolePolicy:RolePolicy"):
        text = policy.inputs["policy"]
        for mocked, arn in real.items():
            text = text.replace(mocked, arn)
        session = sessions.get(policy.name, SESSIONS["pod"])
        for each in json.loads(text)["Statement"]:
            tags = {} if each["Resource"] == EXISTING_KEY else OURS
            granted += [Request(action, each["Resource"], {**tags, **session}) for action in each["Action"]]
    assert len(granted) > 10
    assert [request for request in granted if not permitted(EVERYTHING, request, boundary)] == []


def _with_data(stack: str) -> Settings:
    """The settings of a stack that reads its data from a bucket."""
    settings, _ = read({"data": {"source": "s3://datasets/words/"}})
    return dataclasses.replace(settings, stack=stack, aws={"region": "us-west-2"})


def _with_data_and_key(stack: str) -> Settings:
    return dataclasses.replace(_with_data(stack), kms_key_arn=EXISTING_KEY)


@pytest.mark.parametrize("kind", ["cluster-role", "worker-role", "data-role", "export-role", "efs-driver-role"])
def test_every_role_of_the_program_has_the_path_and_the_boundary(program: RunStack, kind: str) -> None:
    config = {
        "data": {"source": "s3://data/words.tar"},
        "storage": {"driver": "efsCsi"},
        "permissionsBoundary": BOUNDARY,
    }
    graph = program(config)
    role = graph.named(kind)
    assert (role.inputs["path"], role.inputs["permissionsBoundary"]) == ("/paddle/dev/", BOUNDARY)
    assert list(role.options.ignoreChanges) == ["path"], "a stack of an earlier version would replace its cluster"
    assert "permissionsBoundary" not in program().named("cluster-role").inputs
    assert len(graph.all("aws:iam/role:Role")) == 5


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
