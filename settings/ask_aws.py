"""Asks AWS for its facts. Each group of questions is one function, and all groups wait for their answers together."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import pulumi
import pulumi_aws as aws
from pulumi.runtime.sync_await import _sync_await

from settings.aws_errors import NoAnswerError
from settings.aws_facts import (
    ADDONS,
    EFS_DRIVER,
    KMS_KEY,
    PRINCIPAL,
    Access,
    AwsFacts,
    InstanceType,
    KmsKey,
    services_for,
)
from settings.quotas import SERVICE, quotas_of
from settings.schema import DEFAULT_ZONES, KUBERNETES_VERSION, Settings
from settings.subnets import cidr_plan

Options = pulumi.InvokeOutputOptions
K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


def ask_aws(settings: Settings, provider: aws.Provider) -> AwsFacts:
    """The facts, or NoAnswerError if AWS does not answer a question that every stack needs."""
    # Pulumi's default provider would be a second process of the AWS plugin.
    opts = Options(provider=provider)
    # The checks need the values now, and the SDK has no public function that waits for an output.
    return _sync_await(_facts(settings, opts))


async def _facts(settings: Settings, opts: Options) -> AwsFacts:
    start = asyncio.ensure_future
    groups = (
        identity := start(_need(aws.get_caller_identity_output(opts=opts))),
        partition := start(_need(aws.get_partition_output(opts=opts))),
        zones := start(_zones(opts)),
        offers := start(_offers(settings, opts)),
        subnets := start(_zones_of_subnets(settings, opts)),
        services := start(_services(settings, opts)),
        instance_types := start(_instance_types(settings, opts)),
        addons := start(_addons(settings, opts)),
        quotas := start(_quotas(settings, opts)),
        has_log_group := start(_has_log_group(settings, opts)),
        key := start(_key(settings, opts)),
        principals := start(_principals(settings, opts)),
        access := start(_access(settings, identity, principals, opts)),
    )
    # This waits for every group. Otherwise, Python would print each error that nobody has read.
    await asyncio.gather(*groups, return_exceptions=True)
    return AwsFacts(
        account=identity.result().account_id,
        partition=partition.result().partition,
        dns_suffix=partition.result().dns_suffix,
        zones=zones.result(),
        offers=offers.result(),
        is_new=bool(subnets.result()) and all(map(_is_missing, subnets.result().values())),
        kept_zones={} if settings.availability_zones else _answered(subnets.result()),
        services=services.result(),
        instance_types=instance_types.result(),
        addon_versions=_answered(addons.result()),
        missing_addons={name: found for name, found in addons.result().items() if isinstance(found, NoAnswerError)},
        quotas=quotas.result(),
        has_log_group=has_log_group.result(),
        key=key.result(),
        access=access.result(),
        is_preview=pulumi.runtime.is_dry_run(),
    )


async def _zones(opts: Options) -> dict[str, str]:
    # Local zones and Wavelength zones cannot hold a control plane or a mount target.
    usual = aws.GetAvailabilityZonesFilterArgs(name="zone-type", values=["availability-zone"])
    found = await _need(aws.get_availability_zones_output(filters=[usual], opts=opts))
    return dict(zip(found.names, found.zone_ids, strict=True))


async def _offers(settings: Settings, opts: Options) -> dict[str, frozenset[str]]:
    types = aws.ec2.GetInstanceTypeOfferingsFilterArgs(
        name="instance-type", values=list(settings.workers.instance_types)
    )
    found = await _need(
        aws.ec2.get_instance_type_offerings_output(filters=[types], location_type="availability-zone-id", opts=opts)
    )
    offers: dict[str, frozenset[str]] = {}
    for zone, instance_type in zip(found.locations, found.instance_types, strict=True):
        offers[zone] = offers.get(zone, frozenset()) | {instance_type}
    return offers


async def _zones_of_subnets(settings: Settings, opts: Options) -> dict[int, str | NoAnswerError]:
    """The zones of the worker subnets that the stack already has, by the number of the subnet."""
    try:
        plan = cidr_plan(settings.vpc_cidr, len(settings.availability_zones) or DEFAULT_ZONES)
    except ValueError:  # another check reports the range
        return {}
    tags = {"project": settings.project, "stack": settings.stack}
    return await _ask_all(
        range(len(plan.workers)),
        lambda i: aws.ec2.get_subnet_output(cidr_block=plan.workers[i], tags=tags, opts=opts),
        lambda found: found.availability_zone,
    )


async def _services(settings: Settings, opts: Options) -> frozenset[str]:
    folder = f"/aws/service/global-infrastructure/regions/{settings.region}/services"
    found = await _ask_all(
        services_for(settings),
        lambda name: aws.ssm.get_parameter_output(name=f"{folder}/{name}", opts=opts),
        lambda parameter: parameter.name,
    )
    for answer in found.values():
        if isinstance(answer, NoAnswerError) and not answer.is_missing:
            raise answer
    return frozenset(_answered(found))


async def _instance_types(settings: Settings, opts: Options) -> dict[str, InstanceType | None]:
    found = await _ask_all(
        settings.workers.instance_types,
        lambda name: aws.ec2.get_instance_type_output(instance_type=name, opts=opts),
        _instance_type,
    )
    # EC2 answers with an error for a type that it does not know.
    return {name: None if isinstance(answer, NoAnswerError) else answer for name, answer in found.items()}


def _instance_type(found: aws.ec2.GetInstanceTypeResult) -> InstanceType:
    return InstanceType(
        architecture="arm64" if "arm64" in found.supported_architectures else "x86_64",
        gpus=sum(gpu.count for gpu in found.gpuses if gpu.manufacturer.upper() == "NVIDIA"),
        vcpus=found.default_vcpus,
        memory_mib=found.memory_size,
    )


async def _addons(settings: Settings, opts: Options) -> dict[str, str | NoAnswerError]:
    version = settings.kubernetes_version
    if not re.fullmatch(KUBERNETES_VERSION, version):  # another check reports the version
        return {}
    return await _ask_all(
        (*ADDONS, EFS_DRIVER) if settings.storage.driver == "efsCsi" else ADDONS,
        lambda name: aws.eks.get_addon_version_output(name, kubernetes_version=version, opts=opts),
        lambda found: found.version,
    )


async def _quotas(settings: Settings, opts: Options) -> dict[str, float]:
    quotas = quotas_of(settings.workers.instance_types, settings.workers.capacity)
    found = await _ask_all(
        (quota.code for quota in quotas),
        lambda code: aws.servicequotas.get_service_quota_output(service_code=SERVICE, quota_code=code, opts=opts),
        lambda quota: quota.value,
    )
    return _answered(found)


async def _has_log_group(settings: Settings, opts: Options) -> bool:
    name = settings.log_group
    if not settings.control_plane_logs:
        return False
    found = await _need(aws.cloudwatch.get_log_groups_output(log_group_name_prefix=name, opts=opts))
    return name in found.log_group_names


async def _key(settings: Settings, opts: Options) -> KmsKey | NoAnswerError | None:
    if not KMS_KEY.fullmatch(settings.kms_key_arn):  # another check reports the ARN
        return None
    return await _ask(
        aws.kms.get_key_output(key_id=settings.kms_key_arn, opts=opts),
        lambda found: KmsKey(found.key_manager, found.key_state, found.key_usage, found.key_spec),
    )


async def _principals(settings: Settings, opts: Options) -> dict[str, str | NoAnswerError]:
    """The ARNs of the roles and users with the names in the settings."""
    return await _ask_all(
        (arn for arn in (settings.deployer, *settings.admins) if re.fullmatch(PRINCIPAL, arn)),
        lambda arn: _principal(arn, opts),
        lambda found: str(found.arn),
    )


async def _access(
    settings: Settings,
    identity: Awaitable[aws.GetCallerIdentityResult],
    principals: Awaitable[Mapping[str, str | NoAnswerError]],
    opts: Options,
) -> Access:
    caller = await identity
    # The ARN of a session does not contain the path of its role, and EKS does not accept it.
    session = await _ask(aws.iam.get_session_context_output(arn=caller.arn, opts=opts), lambda found: found.issuer_arn)
    deployer = settings.deployer or ("" if isinstance(session, NoAnswerError) else session)
    projects = await _ask_all(
        filter(None, (deployer, *settings.admins)),
        lambda arn: aws.eks.get_access_entry_output(cluster_name=settings.cluster_name, principal_arn=arn, opts=opts),
        lambda entry: entry.tags.get("project"),
    )
    # IAM knows only the roles and users of this account. Without the permission to ask, nothing is checked.
    asked = {arn: found for arn, found in (await principals).items() if arn.split(":")[4] == caller.account_id}
    return Access(
        session=session,
        deployer=deployer,
        # This program tags its access entries. EKS does not.
        foreign=frozenset(arn for arn, project in _answered(projects).items() if project != settings.project),
        missing=tuple(
            arn
            for arn, found in asked.items()
            # A role with this name can have another path, and so another ARN.
            if found != arn and (not isinstance(found, NoAnswerError) or found.is_missing)
        ),
    )


def _principal(arn: str, opts: Options) -> pulumi.Output[Any]:
    kind, _, name = arn.split(":", 5)[5].partition("/")
    name = name.rpartition("/")[2]
    return (
        aws.iam.get_role_output(name=name, opts=opts)
        if kind == "role"
        else aws.iam.get_user_output(user_name=name, opts=opts)
    )


async def _ask(question: pulumi.Output[T], read: Callable[[T], R]) -> R | NoAnswerError:
    # An output with an exception would end the program with that exception instead of the list of problems.
    recovered = cast(pulumi.Output[Any], question).recover(lambda error: error)
    answer: Any = await recovered.future()
    if not isinstance(answer, Exception):
        return read(answer)
    pulumi.log.debug(str(answer))
    return NoAnswerError(answer)


async def _need(question: pulumi.Output[T]) -> T:
    answer = await _ask(question, lambda found: found)
    if isinstance(answer, NoAnswerError):
        raise answer
    return answer


async def _ask_all(
    names: Iterable[K], question: Callable[[K], pulumi.Output[T]], read: Callable[[T], R]
) -> dict[K, R | NoAnswerError]:
    """One answer for each name."""
    names = tuple(names)
    answers = await asyncio.gather(*(_ask(question(name), read) for name in names))
    return dict(zip(names, answers, strict=True))


def _answered(answers: Mapping[K, R | NoAnswerError]) -> dict[K, R]:
    return {name: answer for name, answer in answers.items() if not isinstance(answer, NoAnswerError)}


def _is_missing(answer: object) -> bool:
    return isinstance(answer, NoAnswerError) and answer.is_missing
