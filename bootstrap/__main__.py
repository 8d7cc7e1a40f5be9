"""Run once per account: creates the bucket for Pulumi's state, its keys, the deployer policies and GitHub's roles."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

# The engine starts a program in the program's own folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bootstrap.account_settings import Identity, Repository, read_account_settings
from bootstrap.policies import PARTS, Names, boundary_name, boundary_policy, deployer_policy
from infra.bucket import private_bucket
from infra.iam import Statement, account_decides, allow, document
from settings.schema import Settings

GITHUB = "token.actions.githubusercontent.com"
# The names of the roles and keys of a stack: one of these and the name of the stack.
DEPLOY, PREVIEW, STATE_KEY = "paddle-deploy-", "paddle-preview-", "alias/paddle-state-"
# The stack tag of the keys. No stack can have this name, so no deployer policy allows changes of the keys.
NO_STACK = "_bootstrap"
OLD_VERSIONS_DAYS = 90
# What the program asks about the region before it creates anything.
ASKED_OF_REGION = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeSubnets",
    "eks:DescribeAddonVersions",
    "logs:DescribeLogGroups",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
)
# A deployment waits for the training, so its credentials must last as long.
DEPLOY_HOURS = 4
# The ARN of each policy of a stack, by its part.
Policies = Mapping[str, pulumi.Output[str]]


@dataclass(frozen=True)
class Account:
    """Where this program runs."""

    number: str
    partition: str
    dns_suffix: str

    @property
    def audience(self) -> str:
        """For whom GitHub issues the tokens of the jobs: the STS of this partition."""
        return f"sts.{self.dns_suffix}"


@dataclass(frozen=True)
class State:
    """Where Pulumi keeps the state of one stack: a folder in the bucket, with a key of its own."""

    stack: str
    bucket: aws.s3.Bucket
    key: aws.kms.Key

    def read(self, *files: str) -> list[Statement]:
        """The permissions to read these files of the state."""
        return [
            # S3 sends no prefix if it only checks whether to report a missing file as missing.
            allow(
                "ListState",
                ("s3:ListBucket",),
                self.bucket.arn,
                {"StringLikeIfExists": {"s3:prefix": f"{self.stack}/*"}},
            ),
            allow("ReadState", ("s3:GetObject",), [self._path(file) for file in files]),
        ]

    def write(self) -> list[Statement]:
        """The permissions to write the state."""
        return [allow("WriteState", ("s3:DeleteObject", "s3:PutObject"), self._path("*"))]

    def _path(self, file: str) -> pulumi.Output[str]:
        return pulumi.Output.concat(self.bucket.arn, f"/{self.stack}/.pulumi/{file}")


def preview_statements(account: Account, state: State, settings: Settings) -> list[Statement]:
    """What a preview reads: facts about the region, the recorded state, the secrets in the settings."""
    partition = account.partition
    named = (settings.deployer, *settings.admins) if settings.deployer else settings.admins
    # Without the setting `deployer`, the program reads the role of its session.
    roles = [f"arn:{partition}:iam::{account.number}:role/{PREVIEW}{settings.stack}"]
    roles += [arn for arn in named if ":role/" in arn]
    users = [arn for arn in named if ":user/" in arn]
    entries = f"access-entry/{settings.cluster_name}/*"
    services = f"arn:{partition}:ssm:*::parameter/aws/service/global-infrastructure/regions/*"
    return [
        # AWS has no narrower resource for most of these actions.
        allow("AskRegion", ASKED_OF_REGION, "*"),
        allow("AskRoles", ("iam:GetRole",), roles),
        *([allow("AskUsers", ("iam:GetUser",), users)] if users else []),
        allow(
            "AskAccess",
            ("eks:DescribeAccessEntry",),
            f"arn:{partition}:eks:{settings.region}:{account.number}:{entries}",
        ),
        allow("AskServices", ("ssm:GetParameter",), services),
        *([allow("AskKey", ("kms:DescribeKey",), settings.kms_key_arn)] if settings.kms_key_arn else []),
        # Not the history and the backups: they can contain older secrets.
        *state.read("meta.yaml", "stacks/*"),
        allow("ReadSecrets", ("kms:Decrypt",), state.key.arn),
    ]


def state_statements(state: State) -> list[Statement]:
    """What a deployment does with the recorded state of its stack."""
    use = ("kms:Decrypt", "kms:GenerateDataKey")
    return [*state.read("*"), *state.write(), allow("UseKey", use, state.key.arn)]


def state_key(name: str, alias: str, description: str, account: Account) -> aws.kms.Key:
    key = aws.kms.Key(
        name,
        description=description,
        enable_key_rotation=True,
        deletion_window_in_days=30,
        policy=document(account_decides(account.number, account.partition)),
        tags={"project": pulumi.get_project(), "stack": NO_STACK},
        # No state can be read without the key.
        opts=pulumi.ResourceOptions(protect=True),
    )
    aws.kms.Alias(f"{name}-alias", name=alias, target_key_id=key.key_id)
    return key


def stack_policies(settings: Settings, deployers: Sequence[Identity], account: Account, state: State) -> Policies:
    """Create what a deployer of the stack needs. The ARN of each policy, by its part."""
    stack, iam = settings.stack, f"arn:{account.partition}:iam::{account.number}"
    named = (settings.deployer,) if settings.deployer else ()
    people = (f"{iam}:role/{DEPLOY}{stack}", *(each.arn for each in deployers), *named, *settings.admins)
    bucket = f"arn:{account.partition}:s3:::{settings.data_source.bucket}"
    names = Names(
        account=account.number,
        cluster=settings.cluster_name,
        dns_suffix=account.dns_suffix,
        partition=account.partition,
        region=settings.region,
        stack=stack,
        zone=settings.zone_name,
        principals=tuple(dict.fromkeys(people)),
        data=(bucket, f"{bucket}/*") if settings.data_source.bucket else (),
        key=(settings.kms_key_arn,) if settings.kms_key_arn else (),
    )
    boundary = document(*boundary_policy(names)["Statement"])
    aws.iam.Policy(f"boundary-{stack}", name=boundary_name(stack), policy=boundary)
    documents = {part: document(*deployer_policy(part, names)["Statement"]) for part in PARTS}
    documents["state"] = document(*state_statements(state))
    return {
        part: aws.iam.Policy(f"deployer-{stack}-{part}", name=f"{DEPLOY}{stack}-{part}", policy=text).arn
        for part, text in documents.items()
    }


def attach(stack: str, deployer: Identity, policies: Policies, account: Account) -> None:
    """Give the policies to a role or user that exists already."""
    if deployer.account != account.number:
        raise pulumi.RunError(
            f"deployers.{stack}: {deployer.arn} is not in account {account.number}. "
            "Run this program with credentials of its account, or write a role of this account."
        )
    for part, arn in policies.items():
        name = f"{deployer.kind}-{deployer.name}-{stack}-{part}"
        if deployer.kind == "role":
            aws.iam.RolePolicyAttachment(name, role=deployer.name, policy_arn=arn)
        else:
            aws.iam.UserPolicyAttachment(name, user=deployer.name, policy_arn=arn)


def trust(
    github_arn: pulumi.Input[str], audience: str, subjects: list[str], claims: Mapping[str, str]
) -> pulumi.Output[str]:
    """Trust for the jobs with one of these subjects and all of these claims."""
    wanted = {"aud": audience, "sub": subjects, **claims}
    return document(
        {
            "Effect": "Allow",
            "Action": ["sts:AssumeRoleWithWebIdentity"],
            "Principal": {"Federated": github_arn},
            "Condition": {"StringEquals": {f"{GITHUB}:{claim}": value for claim, value in wanted.items()}},
        }
    )


def github_roles(
    repository: Repository,
    policies: Mapping[str, Policies],
    account: Account,
    states: Mapping[str, State],
    stacks: Mapping[str, Settings],
) -> None:
    """Create the roles of the workflows, without any stored key."""
    github = aws.iam.OpenIdConnectProvider("github", url=f"https://{GITHUB}", client_id_lists=[account.audience])
    # A job of any branch can name any environment, so AWS also checks which workflow file on which branch runs it.
    workflow = f"{repository.name}/.github/workflows/deploy.yml@refs/heads/main"
    on_main = {"repository_id": repository.number, "job_workflow_ref": workflow}
    for stack, parts in policies.items():
        deploy = aws.iam.Role(
            f"deploy-{stack}",
            name=f"{DEPLOY}{stack}",
            description=f"Deployments of {stack} from {repository.name}",
            assume_role_policy=trust(
                github.arn, account.audience, repository.subjects(f"environment:{stack}"), on_main
            ),
            max_session_duration=DEPLOY_HOURS * 3600,
        )
        for part, arn in parts.items():
            aws.iam.RolePolicyAttachment(f"deploy-{stack}-{part}", role=deploy.name, policy_arn=arn)
        preview = aws.iam.Role(
            f"preview-{stack}",
            name=f"{PREVIEW}{stack}",
            description=f"Previews of {stack} on pull requests of {repository.name}",
            assume_role_policy=trust(
                github.arn, account.audience, repository.subjects("pull_request"), {"repository_id": repository.number}
            ),
        )
        aws.iam.RolePolicy(
            f"preview-{stack}-policy",
            role=preview.name,
            policy=document(*preview_statements(account, states[stack], stacks[stack])),
        )


given = read_account_settings()
region = aws.config.region or ""
here = aws.get_partition()
account = Account(aws.get_caller_identity().account_id, here.partition, here.dns_suffix)

own_key = state_key("key", "alias/pulumi-state", "The state of the bootstrap program", account)
bucket = private_bucket("pulumi-state", "state", own_key.arn, OLD_VERSIONS_DAYS, pulumi.ResourceOptions(protect=True))
states = {
    stack: State(
        stack,
        bucket,
        state_key(f"key-{stack}", STATE_KEY + stack, f"The state and the secrets of stack {stack}", account),
    )
    for stack in given.stacks
}
policies = {
    stack: stack_policies(settings, given.deployers.get(stack, ()), account, states[stack])
    for stack, settings in given.stacks.items()
}
for stack, deployers in given.deployers.items():
    for deployer in deployers:
        attach(stack, deployer, policies[stack], account)

# `pulumi stack output --shell` writes these as GitHub variables, so they have the names that the workflows read.
if given.repository:
    pulumi.export("AWS_AUDIENCE", account.audience)
    pulumi.export("AWS_REGION", region)
    pulumi.export("DEPLOY_ROLE", f"arn:{account.partition}:iam::{account.number}:role/{DEPLOY}")
    pulumi.export("PREVIEW_ROLE", f"arn:{account.partition}:iam::{account.number}:role/{PREVIEW}")
    pulumi.export("STACKS", " ".join(given.stacks))
    github_roles(given.repository, policies, account, states, given.stacks)
pulumi.export("PERMISSIONS_BOUNDARY", f"arn:{account.partition}:iam::{account.number}:policy/{boundary_name('')}")
pulumi.export("STATE_BUCKET", bucket.bucket)
