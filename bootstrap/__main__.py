"""Run once per account: creates the bucket for Pulumi's state, its key, the deployer policies and GitHub's roles."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

# The engine starts a program in the program's own folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bootstrap.account_settings import Identity, Repository, read_account_settings
from bootstrap.policies import PARTS, Names, deployer_policy
from infra.iam import Statement, account_decides, allow, document, tls_only
from settings.schema import Settings

GITHUB = "token.actions.githubusercontent.com"
FILES = ".pulumi/*"
PROGRAM = "paddle-on-aws"
# The name of a deploy role is this prefix and the name of the stack. Deployer policies start in the same way.
DEPLOY = "paddle-deploy-"
OLD_VERSIONS_DAYS = 90
# What the program asks about the region before it creates anything.
ASKED_OF_REGION = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "eks:DescribeAddonVersions",
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
    """Where Pulumi keeps the state of the stacks."""

    bucket: aws.s3.Bucket
    key: aws.kms.Key


def preview_statements(partition: str, state: State) -> list[Statement]:
    """What a preview reads: facts about the region, the recorded state, the secrets in the settings."""
    services = f"arn:{partition}:ssm:*::parameter/aws/service/global-infrastructure/regions/*"
    return [
        # AWS has no narrower resource for most of these actions.
        allow("AskRegion", ASKED_OF_REGION, "*"),
        allow("AskServices", ("ssm:GetParameter",), services),
        allow("ListState", ("s3:ListBucket",), state.bucket.arn),
        allow("ReadState", ("s3:GetObject",), pulumi.Output.concat(state.bucket.arn, "/", FILES)),
        allow("ReadSecrets", ("kms:Decrypt",), state.key.arn),
    ]


def state_statements(stack: str, state: State) -> list[Statement]:
    """What a deployment does with the recorded state of its stack."""
    bucket = state.bucket.arn
    own = [pulumi.Output.concat(bucket, f"/.pulumi/*/{PROGRAM}/{stack}{end}") for end in (".json*", "/*")]
    return [
        allow("ListState", ("s3:ListBucket",), bucket),
        allow("ReadState", ("s3:GetObject",), pulumi.Output.concat(bucket, "/", FILES)),
        allow("WriteState", ("s3:DeleteObject", "s3:PutObject"), own),
        allow("UseSecrets", ("kms:Decrypt", "kms:GenerateDataKey"), state.key.arn),
    ]


def state_key(account: Account) -> aws.kms.Key:
    key = aws.kms.Key(
        "key",
        description="Pulumi's state and the secrets of its stacks",
        enable_key_rotation=True,
        deletion_window_in_days=30,
        policy=document(account_decides(account.number, account.partition)),
        # No state can be read without the key.
        opts=pulumi.ResourceOptions(protect=True),
    )
    aws.kms.Alias("key-alias", name="alias/pulumi-state", target_key_id=key.key_id)
    return key


def state_bucket(key: aws.kms.Key) -> aws.s3.Bucket:
    bucket = aws.s3.Bucket("pulumi-state", opts=pulumi.ResourceOptions(protect=True))
    versioning = aws.s3.BucketVersioning(
        "state-versioning", bucket=bucket.id, versioning_configuration={"status": "Enabled"}
    )
    aws.s3.BucketServerSideEncryptionConfiguration(
        "state-encryption",
        bucket=bucket.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": key.arn},
                "bucket_key_enabled": True,
            }
        ],
    )
    block = aws.s3.BucketPublicAccessBlock(
        "state-public-access",
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
    )
    aws.s3.BucketPolicy(
        "state-policy",
        bucket=bucket.id,
        policy=document(tls_only(bucket.arn)),
        # S3 rejects two changes to the access of a bucket at the same time.
        opts=pulumi.ResourceOptions(depends_on=[block]),
    )
    aws.s3.BucketLifecycleConfiguration(
        "state-lifecycle",
        bucket=bucket.id,
        rules=[
            {
                "id": "tidy",
                "status": "Enabled",
                "filter": {"prefix": ""},
                "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSIONS_DAYS},
            }
        ],
        opts=pulumi.ResourceOptions(depends_on=[versioning]),
    )
    return bucket


def stack_policies(stack: str, settings: Settings, account: Account, state: State) -> Policies:
    """Create what a deployer of the stack needs. The ARN of each policy, by its part."""
    names = Names(
        account=account.number,
        cluster=settings.cluster_name,
        dns_suffix=account.dns_suffix,
        partition=account.partition,
        region=settings.region,
        stack=stack,
        zone=settings.zone_name,
    )
    documents = {part: document(*deployer_policy(part, names)["Statement"]) for part in PARTS}
    documents["state"] = document(*state_statements(stack, state))
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
    repository: Repository, policies: Mapping[str, Policies], account: Account, state: State
) -> aws.iam.Role:
    """Create the roles of the workflows, without any stored key. The role for previews."""
    github = aws.iam.OpenIdConnectProvider("github", url=f"https://{GITHUB}", client_id_lists=[account.audience])
    preview = aws.iam.Role(
        "preview",
        description=f"Previews on pull requests of {repository.name}",
        assume_role_policy=trust(
            github.arn, account.audience, repository.subjects("pull_request"), {"repository_id": repository.number}
        ),
    )
    aws.iam.RolePolicy(
        "preview-policy", role=preview.name, policy=document(*preview_statements(account.partition, state))
    )
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
    return preview


given = read_account_settings()
region = aws.config.region or ""
here = aws.get_partition()
account = Account(aws.get_caller_identity().account_id, here.partition, here.dns_suffix)

key = state_key(account)
state = State(state_bucket(key), key)
policies = {stack: stack_policies(stack, settings, account, state) for stack, settings in given.stacks.items()}
for stack, deployers in given.deployers.items():
    for deployer in deployers:
        attach(stack, deployer, policies[stack], account)

# `pulumi stack output --shell` writes these as GitHub variables, so they have the names that the workflows read.
if given.repository:
    pulumi.export("AWS_AUDIENCE", account.audience)
    pulumi.export("AWS_REGION", region)
    pulumi.export("DEPLOY_ROLE", f"arn:{account.partition}:iam::{account.number}:role/{DEPLOY}")
    pulumi.export("PREVIEW_ROLE", github_roles(given.repository, policies, account, state).arn)
    pulumi.export("STACKS", " ".join(given.stacks))
pulumi.export("PULUMI_BACKEND_URL", pulumi.Output.concat("s3://", state.bucket.bucket, "?region=", region))
pulumi.export("PULUMI_SECRETS_PROVIDER", f"awskms://alias/pulumi-state?region={region}")
