"""What AWS answered about the account, the stack, its KMS key and its region."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from settings.aws_errors import NoAnswerError
from settings.schema import DEFAULT_ZONES, Settings

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
    """Who can administer the cluster."""

    # The IAM role or user of this run.
    session: str | NoAnswerError
    # Becomes an administrator. Empty if neither the settings nor AWS name it.
    deployer: str
    # Administrators with an access entry that this program did not create. EKS made one for the creator of the cluster
    # with an earlier version of this program.
    foreign: frozenset[str]
    # The roles and users in the settings that do not exist in this account.
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
    account: str
    partition: str
    dns_suffix: str
    # Zone ids by zone name.
    zones: Mapping[str, str]
    # The workers' instance types that a zone offers, by zone id.
    offers: Mapping[str, frozenset[str]]
    # AWS has no subnet of the stack.
    is_new: bool
    # The zones of the subnets that the stack already has, by its number. Empty if the settings name zones.
    kept_zones: Mapping[int, str]
    services: frozenset[str]
    # None for an instance type that the region does not have.
    instance_types: Mapping[str, InstanceType | None]
    # The versions that EKS recommends for the Kubernetes version of the stack.
    addon_versions: Mapping[str, str]
    # Add-ons without a version, because EKS does not support the Kubernetes version.
    missing_addons: Mapping[str, NoAnswerError]
    # The vCPUs of an EC2 quota by its code. A quota that Service Quotas did not answer is missing.
    quotas: Mapping[str, float]
    # False if the stack needs no log group.
    has_log_group: bool
    # None if the stack creates its own key.
    key: KmsKey | NoAnswerError | None
    access: Access
    is_preview: bool

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
