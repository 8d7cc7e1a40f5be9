"""Once an account: where Pulumi's state lies, and the roles that GitHub's workflows take on."""

import re
import sys
from pathlib import Path

import pulumi
import pulumi_aws as aws

PROJECT = Path(__file__).resolve().parent.parent
# The engine starts a program inside its own folder.
sys.path.insert(0, str(PROJECT))

from infra.iam import Statement, account_decides, allow, assumed_by_subject, document, tls_only  # noqa: E402

GITHUB = "token.actions.githubusercontent.com"
STATE = ".pulumi/*"
PROGRAM = "paddle-on-aws"
# A stack's role is this and the stack's name.
DEPLOY_ROLE = "paddle-deploy-"
OLD_VERSIONS_DAYS = 90
# A deployment waits for the training, and its credentials must last as long.
DEPLOY_HOURS = 4


def settings() -> tuple[str, list[str]]:
    """The repository and its environments, or one line that says what is wrong with them."""
    config = pulumi.Config()
    repository, environments = config.get("repository") or "", config.get_object("environments")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise pulumi.RunError(
            f'repository: "{repository}" is not owner/name. Run `pulumi config set repository owner/name`.'
        )
    named = isinstance(environments, list) and all(re.fullmatch(r"[\w-]+", str(each)) for each in environments)
    if not named or not environments:
        raise pulumi.RunError(
            f"environments: {environments} is no list of names. Write at least one, such as [dev], or leave it out."
        )
    return repository, list(environments)


def preview_statements(partition: str, bucket: pulumi.Input[str], key: pulumi.Input[str]) -> list[Statement]:
    """What a preview asks: the program's questions to its region, the recorded state, the settings' secrets."""
    services = f"arn:{partition}:ssm:*::parameter/aws/service/global-infrastructure/regions/*"
    return [
        # Neither can be narrowed to a resource.
        allow("AskRegion", ("ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypes"), "*"),
        allow("AskServices", ("ssm:GetParametersByPath",), services),
        allow("ListState", ("s3:ListBucket",), bucket),
        allow("ReadState", ("s3:GetObject",), pulumi.Output.concat(bucket, "/", STATE)),
        allow("ReadSecrets", ("kms:Decrypt",), key),
    ]


def deploy_statements(stack: str, bucket: pulumi.Input[str], key: pulumi.Input[str]) -> list[Statement]:
    """What a deployment does to its own stack's state, besides what bootstrap/deployer/ lets it do to AWS."""
    own = [pulumi.Output.concat(bucket, f"/.pulumi/*/{PROGRAM}/{stack}{end}") for end in (".json*", "/*")]
    return [
        allow("ListState", ("s3:ListBucket",), bucket),
        allow("ReadState", ("s3:GetObject",), pulumi.Output.concat(bucket, "/", STATE)),
        allow("WriteState", ("s3:DeleteObject", "s3:PutObject"), own),
        allow("UseSecrets", ("kms:Decrypt", "kms:GenerateDataKey"), key),
    ]


def state_key(account: str, partition: str) -> aws.kms.Key:
    key = aws.kms.Key(
        "key",
        description="Pulumi's state and the secrets of its stacks",
        enable_key_rotation=True,
        deletion_window_in_days=30,
        policy=document(account_decides(account, partition)),
        # Without it, no state can be read again.
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
        # S3 refuses two changes to a bucket's access at once.
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


repository, environments = settings()
region = aws.config.region or ""
account, partition = aws.get_caller_identity().account_id, aws.get_partition().partition

key = state_key(account, partition)
bucket = state_bucket(key)
github = aws.iam.OpenIdConnectProvider("github", url=f"https://{GITHUB}", client_id_lists=["sts.amazonaws.com"])

preview = aws.iam.Role(
    "preview",
    description=f"Previews on pull requests of {repository}",
    assume_role_policy=assumed_by_subject(github.arn, GITHUB, f"repo:{repository}:pull_request"),
)
aws.iam.RolePolicy(
    "preview-policy", role=preview.name, policy=document(*preview_statements(partition, bucket.arn, key.arn))
)
for stack in environments:
    deploy = aws.iam.Role(
        f"deploy-{stack}",
        name=f"{DEPLOY_ROLE}{stack}",
        description=f"Deployments of {stack} from {repository}",
        assume_role_policy=assumed_by_subject(github.arn, GITHUB, f"repo:{repository}:environment:{stack}"),
        max_session_duration=DEPLOY_HOURS * 3600,
    )
    aws.iam.RolePolicy(
        f"deploy-{stack}-state", role=deploy.name, policy=document(*deploy_statements(stack, bucket.arn, key.arn))
    )
    for part in sorted(file.stem for file in (PROJECT / "bootstrap/deployer").glob("*.json")):
        # Too long together to be the role's own; docs/permissions.md makes them, with the stack's names filled in.
        aws.iam.RolePolicyAttachment(
            f"deploy-{stack}-{part}",
            role=deploy.name,
            policy_arn=f"arn:{partition}:iam::{account}:policy/paddle-deployer-{stack}-{part}",
        )

# Named as the workflows read them: `pulumi stack output --shell` is a file of GitHub variables.
pulumi.export("AWS_REGION", region)
pulumi.export("DEPLOY_ROLE", f"arn:{partition}:iam::{account}:role/{DEPLOY_ROLE}")
pulumi.export("PREVIEW_ROLE", preview.arn)
pulumi.export("PULUMI_BACKEND_URL", pulumi.Output.concat("s3://", bucket.bucket, "?region=", region))
pulumi.export("PULUMI_SECRETS_PROVIDER", f"awskms://alias/pulumi-state?region={region}")
pulumi.export("STACKS", " ".join(environments))
