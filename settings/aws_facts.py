"""What the region supports for this account. AWS itself is asked."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
import pulumi_aws as aws
from pulumi.runtime.sync_await import _sync_await

from settings.problem import Problem
from settings.quotas import SERVICE, quotas_of
from settings.schema import DEFAULT_ZONES, KUBERNETES_VERSION, Settings
from settings.subnets import cidr_plan

# The ARN of an IAM role or user.
PRINCIPAL = r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+"
# The ARN of a KMS key. The ARN of an alias has another form.
KMS_KEY = re.compile(r"arn:(?P<partition>aws[a-z-]*):kms:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):key/[\w-]+")

Architecture = Literal["x86_64", "arm64"]

# What a trainer requests. Its limit cannot be lower.
TRAINER_MEMORY_MIB = 2048
REQUIRED_SERVICES = ("ec2", "efs", "eks", "kms", "s3", "route53")
# AWS in China bills in CNY. GovCloud has no AWS Budgets: its costs are part of the bill of a standard account.
BUDGETS_PARTITION = "aws"
# EKS cannot place a control plane in these zones. Zone names differ by account, zone ids do not.
UNUSABLE_ZONE_IDS = ("use1-az3", "usw1-az2", "cac1-az3")

# The add-ons of every cluster, and the one for storage.driver: efsCsi.
ADDONS = ("vpc-cni", "kube-proxy", "coredns")
EFS_DRIVER = "aws-efs-csi-driver"


@dataclass(frozen=True)
class InstanceType:
    """Types with the same architecture and number of GPUs are equal: they can be in one node group."""

    architecture: Architecture
    gpus: int
    vcpus: int = field(compare=False)
    memory_mib: int = field(compare=False)


@dataclass(frozen=True)
class Access:
    """Who can administer the cluster.

    `session` is the IAM role or user of this run, or None if AWS did not answer. `deployer` becomes an administrator.
    `foreign` are administrators with an access entry that this program did not create. EKS made one for the creator of
    the cluster with an earlier version of this program. `missing` are the roles and users in the settings that do not
    exist in this account.
    """

    session: str | None
    deployer: str
    foreign: frozenset[str]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class KmsKey:
    """The key in the setting kmsKeyArn, with the words of KMS: the manager is CUSTOMER or AWS."""

    manager: str
    state: str
    usage: str
    spec: str


@dataclass(frozen=True)
class AwsFacts:
    """A region as this account sees it.

    `zones` maps zone names to zone ids. `offers` maps the id of a zone to the workers' instance types that it offers.
    `is_new` is true if AWS has no subnet of the stack. `kept_zones` are the zones of the subnets that the stack already
    has, by the number of the subnet; it is empty if the settings name the zones. An unknown instance type is None.
    `quotas` maps the code of an EC2 quota to its vCPUs; a quota that Service Quotas did not answer is missing.
    `addon_versions` are the versions that EKS recommends for the Kubernetes version of the stack.
    `has_log_group` is false if the stack needs no log group. `key` is None if the stack has its own key.
    """

    account: str
    partition: str
    dns_suffix: str
    zones: Mapping[str, str]
    offers: Mapping[str, frozenset[str]]
    is_new: bool
    kept_zones: Mapping[int, str]
    services: frozenset[str]
    instance_types: Mapping[str, InstanceType | None]
    addon_versions: Mapping[str, str]
    quotas: Mapping[str, float]
    has_log_group: bool
    key: KmsKey | None
    access: Access

    @property
    def instance_type(self) -> InstanceType:
        """What all instance types of the workers have in common."""
        return next(found for found in self.instance_types.values() if found)

    @property
    def pod_memory_mib(self) -> int:
        """The memory that a pod can use on every worker. The kernel, the kubelet and other pods use the rest."""
        smallest = min(found.memory_mib for found in self.instance_types.values() if found)
        return max(int(smallest * 0.95) - 1024, TRAINER_MEMORY_MIB)

    @property
    def known_types(self) -> tuple[str, ...]:
        """The workers' instance types that this region has."""
        return tuple(name for name, found in self.instance_types.items() if found)

    @property
    def zones_for_cluster(self) -> tuple[str, ...]:
        """The zones that EKS can use for a control plane."""
        return tuple(sorted(name for name, zone_id in self.zones.items() if zone_id not in UNUSABLE_ZONE_IDS))

    def not_offered(self, zone: str) -> tuple[str, ...]:
        """The workers' instance types that a zone does not offer. None if AWS does not list the zone any more."""
        if zone not in self.zones:
            return ()
        offered = self.offers.get(self.zones[zone], frozenset())
        return tuple(name for name in self.known_types if name not in offered)

    @property
    def zones_for_workers(self) -> tuple[str, ...]:
        """The zones of `zones_for_cluster` that offer all instance types of the workers.

        EKS rejects a node group if one zone does not offer one of its types, with Spot capacity too.
        """
        return tuple(zone for zone in self.zones_for_cluster if not self.not_offered(zone))

    def zones_for(self, settings: Settings) -> tuple[str, ...]:
        """The zones of the stack. The first ones have workers. A running stack keeps its zones."""
        if settings.availability_zones:
            return settings.availability_zones
        usable = dict.fromkeys((*self.zones_for_workers, *self.zones_for_cluster))
        free = iter([zone for zone in usable if zone not in self.kept_zones.values()])
        chosen = (self.kept_zones.get(i) or next(free, None) for i in range(DEFAULT_ZONES))
        return tuple(zone for zone in chosen if zone)

    def administrators(self, settings: Settings) -> tuple[str, ...]:
        """The roles and users that become administrators of the cluster, each once: first the deployer."""
        return tuple(dict.fromkeys((self.access.deployer, *settings.admins)))

    def why_excluded(self, zone: str) -> str:
        """Why workers cannot use a zone. Empty if they can."""
        if zone not in self.zones_for_cluster:
            return f"{zone} is zone {self.zones[zone]}, where EKS cannot place a control plane"
        if missing := self.not_offered(zone):
            return f"{zone} does not offer {', '.join(missing)}"
        return ""


def services_for(settings: Settings) -> tuple[str, ...]:
    """The AWS services that the stack needs in its region."""
    return (*REQUIRED_SERVICES, "sns") if settings.notify.email else REQUIRED_SERVICES


def read_aws_facts(settings: Settings, provider: aws.Provider) -> tuple[AwsFacts | None, list[Problem]]:
    """What the region supports, and the reasons why AWS did not answer."""
    # Pulumi's default provider would be a second process of the AWS plugin.
    opts = pulumi.InvokeOutputOptions(provider=provider)
    needed = services_for(settings)
    services = f"/aws/service/global-infrastructure/regions/{settings.region}/services"
    version, addons = settings.kubernetes_version, _addons(settings)
    # Local zones and Wavelength zones cannot hold a control plane or a mount target.
    zone_type = aws.GetAvailabilityZonesFilterArgs(name="zone-type", values=["availability-zone"])
    types = aws.ec2.GetInstanceTypeOfferingsFilterArgs(
        name="instance-type", values=list(settings.workers.instance_types)
    )
    quotas = [quota.code for quota in quotas_of(settings.workers.instance_types, settings.workers.capacity)]
    logs = [settings.log_group] if settings.control_plane_logs else []
    key = settings.kms_key_arn if _is_key_here(settings) else ""
    principals = {
        arn: _principal(arn, opts) for arn in (settings.deployer, *settings.admins) if re.fullmatch(PRINCIPAL, arn)
    }
    subnets = _subnets(settings, opts)
    answers = _side_by_side(
        {
            **subnets,
            **{name: aws.cloudwatch.get_log_groups_output(log_group_name_prefix=name, opts=opts) for name in logs},
            "identity": aws.get_caller_identity_output(opts=opts),
            **principals,
            **({key: aws.kms.get_key_output(key_id=key, opts=opts)} if key else {}),
            "zones": aws.get_availability_zones_output(filters=[zone_type], opts=opts),
            "partition": aws.get_partition_output(opts=opts),
            "offers": aws.ec2.get_instance_type_offerings_output(
                filters=[types], location_type="availability-zone-id", opts=opts
            ),
            **{name: aws.ssm.get_parameter_output(name=f"{services}/{name}", opts=opts) for name in needed},
            **{name: aws.eks.get_addon_version_output(name, kubernetes_version=version, opts=opts) for name in addons},
            **{
                name: aws.ec2.get_instance_type_output(instance_type=name, opts=opts)
                for name in settings.workers.instance_types
            },
            **{
                code: aws.servicequotas.get_service_quota_output(service_code=SERVICE, quota_code=code, opts=opts)
                for code in quotas
            },
        }
    )
    for name, answer in answers.items():
        unknown_service = name in needed and _not_found(answer)
        optional = (*settings.workers.instance_types, *addons, *quotas, *principals, *subnets, key)
        expected = unknown_service or name in optional
        if isinstance(answer, Exception) and not expected:
            pulumi.log.debug(str(answer))
            why = f"could not be checked with AWS: {_reason(answer)}"
            instead = "Check the region's name, your network, and `aws sts get-caller-identity`"
            return None, [Problem("aws:region", settings.region, why, instead)]
    access = _read_access(settings, answers["identity"], {arn: answers[arn] for arn in principals}, opts)
    if isinstance(access, Problem):
        return None, [access]
    zones = answers["zones"]
    refused = [name for name in addons if isinstance(answers[name], Exception)]
    account = answers["identity"].account_id
    problems = [_no_addon(settings, name, answers[name]) for name in refused[:1]]
    # Another check rejects a key of another account.
    if key and f":{account}:" in key and isinstance(answers[key], Exception):
        problems.append(_no_key(key, answers[key]))
    return AwsFacts(
        account=account,
        partition=answers["partition"].partition,
        dns_suffix=answers["partition"].dns_suffix,
        zones=dict(zip(zones.names, zones.zone_ids, strict=True)),
        offers=_offers(zip(answers["offers"].locations, answers["offers"].instance_types, strict=True)),
        is_new=bool(subnets) and all(_not_found(answers[name]) for name in subnets),
        kept_zones={
            i: str(answers[name].availability_zone)
            for i, name in enumerate(subnets)
            if not settings.availability_zones and not isinstance(answers[name], Exception)
        },
        services=frozenset(name for name in needed if not isinstance(answers[name], Exception)),
        instance_types={name: _instance_type(answers[name]) for name in settings.workers.instance_types},
        quotas={code: answers[code].value for code in quotas if not isinstance(answers[code], Exception)},
        addon_versions={name: answers[name].version for name in addons if name not in refused},
        has_log_group=any(name in answers[name].log_group_names for name in logs),
        key=_kms_key(answers[key]) if key and not isinstance(answers[key], Exception) else None,
        access=access,
    ), problems


def _subnets(settings: Settings, opts: pulumi.InvokeOutputOptions) -> dict[str, pulumi.Output[Any]]:
    """Ask EC2 for the subnets that the stack already has, by their ranges."""
    try:
        plan = cidr_plan(settings.vpc_cidr, len(settings.availability_zones) or DEFAULT_ZONES)
    except ValueError:  # another check reports the range
        return {}
    tags = {"project": settings.project, "stack": settings.stack}
    return {cidr: aws.ec2.get_subnet_output(cidr_block=cidr, tags=tags, opts=opts) for cidr in plan.workers}


def _principal(arn: str, opts: pulumi.InvokeOutputOptions) -> pulumi.Output[Any]:
    """Ask IAM for a role or user."""
    kind, _, name = arn.split(":", 5)[5].partition("/")
    name = name.rpartition("/")[2]
    return (
        aws.iam.get_role_output(name=name, opts=opts)
        if kind == "role"
        else aws.iam.get_user_output(user_name=name, opts=opts)
    )


def _read_access(
    settings: Settings, identity: Any, principals: Mapping[str, Any], opts: pulumi.InvokeOutputOptions
) -> Access | Problem:
    """`principals` are the answers of IAM for the roles and users in the settings."""
    # The ARN of a session does not contain the path of its role, and EKS does not accept it.
    session = _side_by_side({"": aws.iam.get_session_context_output(arn=identity.arn, opts=opts)})[""]
    issuer = None if isinstance(session, Exception) else str(session.issuer_arn)
    if not issuer and not settings.deployer:
        why = f"is empty, and the role of this session could not be read: {_reason(session)}"
        instead = "Write the ARN of the IAM role or user that runs Pulumi, or allow it iam:GetRole for itself"
        return Problem("deployer", settings.deployer, why, instead)
    deployer = settings.deployer or str(issuer)
    entries = _side_by_side(
        {
            arn: aws.eks.get_access_entry_output(cluster_name=settings.cluster_name, principal_arn=arn, opts=opts)
            for arn in dict.fromkeys((deployer, *settings.admins))
        }
    )
    # IAM knows only the roles and users of this account. Without the permission to ask, nothing is checked.
    asked = {arn: answer for arn, answer in principals.items() if arn.split(":")[4] == identity.account_id}
    return Access(
        session=issuer,
        deployer=deployer,
        # This program tags its access entries. EKS does not.
        foreign=frozenset(
            arn
            for arn, entry in entries.items()
            if not isinstance(entry, Exception) and entry.tags.get("project") != settings.project
        ),
        missing=tuple(arn for arn, answer in asked.items() if _is_missing(arn, answer)),
    )


def _is_missing(arn: str, answer: Any) -> bool:
    return _not_found(answer) if isinstance(answer, Exception) else answer.arn != arn


def _addons(settings: Settings) -> tuple[str, ...]:
    """The add-ons of the stack. None if the Kubernetes version is invalid, which another check reports."""
    if not re.fullmatch(KUBERNETES_VERSION, settings.kubernetes_version):
        return ()
    return (*ADDONS, EFS_DRIVER) if settings.storage.driver == "efsCsi" else ADDONS


def _no_addon(settings: Settings, name: str, error: Exception) -> Problem:
    """EKS has no versions of add-ons for a Kubernetes version that it does not support."""
    pulumi.log.debug(str(error))
    why = f"has no version of the add-on {name} in {settings.region}: {_reason(error)}"
    instead = "Write a Kubernetes version that EKS supports: `aws eks describe-cluster-versions` lists them"
    return Problem("kubernetesVersion", settings.kubernetes_version, why, instead)


def _is_key_here(settings: Settings) -> bool:
    """Whether the setting is the ARN of a key in the region of the stack. Another check reports a wrong one."""
    named = KMS_KEY.fullmatch(settings.kms_key_arn)
    return named is not None and named["region"] == settings.region


def _kms_key(found: Any) -> KmsKey:
    return KmsKey(found.key_manager, found.key_state, found.key_usage, found.key_spec)


def _no_key(arn: str, error: Exception) -> Problem:
    """KMS does not know the key, or this session may not read it."""
    pulumi.log.debug(str(error))
    if _not_found(error):
        why, instead = "does not exist", "Write the ARN of a key that exists, or leave it empty"
    else:
        why, instead = f"could not be read: {_reason(error)}", "Allow kms:DescribeKey for this key, in IAM and in KMS"
    return Problem("kmsKeyArn", arn, why, instead)


def _offers(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """The instance types of each zone, from pairs of a zone and an instance type."""
    offers: dict[str, frozenset[str]] = {}
    for zone, instance_type in pairs:
        offers[zone] = offers.get(zone, frozenset()) | {instance_type}
    return offers


def _side_by_side(calls: Mapping[str, pulumi.Output[Any]]) -> dict[str, Any]:
    """The answers of several calls that run at the same time. A failed call answers with its exception."""
    # Outputs with an exception would end the program with that exception instead of the list of problems.
    outputs = [call.recover(lambda error: error) for call in calls.values()]

    async def answers() -> dict[str, Any]:
        return dict(zip(calls, await asyncio.gather(*(output.future() for output in outputs)), strict=True))

    # The checks need the values now, and the SDK has no public function that waits for an output.
    return _sync_await(answers())


def _not_found(answer: Any) -> bool:
    """Whether the resource does not exist: AWS's error, or the text that the AWS provider writes instead."""
    texts = ("couldn't find resource", "no matching EC2 Subnet found", "ParameterNotFound", "NoSuchEntity")
    return isinstance(answer, Exception) and any(text in str(answer) for text in texts)


def _instance_type(found: Any) -> InstanceType | None:
    """What the program uses of an instance type, or None if the region does not have it."""
    if isinstance(found, Exception):  # a type that EC2 does not know is an error of the call
        pulumi.log.debug(str(found))
        return None
    gpus = sum(gpu.count for gpu in found.gpuses if gpu.manufacturer.upper() == "NVIDIA")
    architecture: Architecture = "arm64" if "arm64" in found.supported_architectures else "x86_64"
    return InstanceType(architecture, gpus, found.default_vcpus, found.memory_size)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
