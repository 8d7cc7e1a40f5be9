"""Checks of the settings before anything is created. A problem names key, value, reason and what to write instead."""

import base64
import binascii
import inspect
import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pulumi
import pulumi_aws as aws
import yaml

from settings.aws_facts import BUDGETS_PARTITION, KMS_KEY, PRINCIPAL, AwsFacts, read_aws_facts, services_for
from settings.credentials import STATIC_KEYS, not_for_cli
from settings.problem import HIDDEN, Problem
from settings.quotas import most_workers, quotas_of
from settings.schema import DEFAULT_ZONES, KUBERNETES_VERSION, Settings, camel, load
from settings.subnets import ADDRESSES_PER_WORKER, LARGEST, SMALLEST, zone_capacity
from workloads.in_pod import contract

Problems = Iterator[Problem]

NOT_A_RANGE = "is not an IPv4 range, or its address is not the first one of the range"
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
EMAIL = r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.[A-Za-z]{2,}"
IMAGE = r"[a-z0-9]+([._/:-]+[A-Za-z0-9]+)*(@sha256:[0-9a-f]{64})?"
PRIVATE = [ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
# The VPC user guide advises against this range, because some AWS services use it themselves.
USED_BY_AWS = ipaddress.IPv4Network("172.17.0.0/16")
# Ports that are in use on every EKS node.
TAKEN_PORTS = {
    "kubelet and kube-proxy": range(10248, 10260),
    "NodePort services": range(30000, 32768),
    "the VPC network plugin": range(61678, 61680),
}
# A ConfigMap can hold 1 MiB. The script of the data Job is in the same ConfigMap as the training code.
CODE_BYTES = 1024 * 1024 - 64 * 1024
GPU_DISK_GIB = 100
# Ranges that RFC 5737 reserves for documentation. Nobody has such an address.
DOCUMENTATION = [ipaddress.IPv4Network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]
# Registries that a network in China usually cannot reach, or only very slowly.
NOT_IN_CHINA = ("docker.io", "gcr.io", "ghcr.io", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io")
# The official Paddle images exist only for this architecture.
PADDLE_IMAGE = re.compile(r"(docker\.io/)?paddlepaddle/paddle[:@]")


def checked_settings() -> tuple[Settings, list[Problem]]:
    """The stack's settings and their problems, or an error if the AWS provider could not be configured with them."""
    settings, problems = load()
    problems += check(settings)
    if any(problem.key.startswith("aws:") for problem in problems):
        raise _refusal(settings, problems)
    return settings, problems


def checked_facts(settings: Settings, problems: list[Problem], provider: aws.Provider) -> AwsFacts:
    """What the region supports, or one error that lists the known problems and those with the region."""
    facts, refused = read_aws_facts(settings, provider)
    problems = problems + refused
    if facts is not None:
        problems += check_region(settings, facts)
    if facts is None or problems:
        raise _refusal(settings, problems)
    for warning in warnings(settings, facts):
        pulumi.log.warn(str(warning))
    return facts


def _refusal(settings: Settings, problems: list[Problem]) -> pulumi.RunError:
    listed = "\n".join(f"  {problem.hidden(settings.secrets)}" for problem in problems)
    return pulumi.RunError(f"Stack {settings.stack} has invalid settings. Nothing was created in AWS.\n{listed}")


def check(settings: Settings) -> list[Problem]:
    """Every problem that can be found without AWS."""
    return [problem for rule in RULES for problem in rule(settings)]


def check_region(settings: Settings, facts: AwsFacts) -> list[Problem]:
    """Every problem with what the region supports."""
    return [problem for rule in REGION_RULES for problem in rule(settings, facts)]


def warnings(settings: Settings, facts: AwsFacts) -> list[Problem]:
    """What probably does not work, but can."""
    return [problem for rule in WARNINGS for problem in rule(settings, facts)]


def _region(s: Settings) -> Problems:
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d", s.region):
        yield Problem("aws:region", s.region, "is not an AWS region", "Write one, such as us-west-2")
    known = {camel(name) for name in inspect.signature(aws.ProviderArgs).parameters}
    for key in sorted(set(s.aws) - known - {"defaultTags"}):
        yield Problem(f"aws:{key}", s.aws[key], "is not an option of the AWS provider", "Remove it")
    if "defaultTags" in s.aws:
        yield Problem("aws:defaultTags", s.aws["defaultTags"], "would be ignored", "Write the tags in the setting tags")


def _credentials(s: Settings) -> Problems:
    for key in not_for_cli(s.aws) if not s.kubeconfig else []:
        shown = "(secret)" if key in STATIC_KEYS else s.aws[key]
        why = "is not passed to `aws eks get-token`, so kubectl would have no access to the cluster"
        instead = "Write a profile of your AWS configuration in aws:profile instead"
        yield Problem(f"aws:{key}", shown, why, instead)


def _names(s: Settings) -> Problems:
    if not re.fullmatch(r"(?!sg-)[0-9A-Za-z][0-9A-Za-z_-]{0,89}", s.cluster_name):
        why = "is not allowed as the name of an EKS cluster and its security groups"
        yield Problem(
            "clusterName", s.cluster_name, why, "Use up to 90 letters, digits, - and _, not starting with sg-"
        )
    if not re.fullmatch(rf"(?=.{{1,200}}$){LABEL}(\.{LABEL})*", s.zone_name):
        yield Problem(
            "zoneName", s.zone_name, "is not a DNS name", "Use lower-case letters, digits, - and dots, such as paddle"
        )
    longest = 63 - len(f"-{s.trainers - 1}")
    if not re.fullmatch(LABEL, s.job.name) or len(s.job.name) > longest:
        why = "is not allowed as the name of an indexed Job in Kubernetes"
        yield Problem("job.name", s.job.name, why, f"Use up to {longest} lower-case letters, digits and -")
    if s.job.name in (contract.DATA_JOB, contract.EXPORT_JOB):
        yield Problem(
            "job.name",
            s.job.name,
            "is already the name of another Job of this program",
            "Use another name, such as paddle-cluster-job",
        )
    if not re.fullmatch(LABEL, s.job.namespace) or len(s.job.namespace) > 63 or s.job.namespace.startswith("kube-"):
        why = "is not a valid namespace, or Kubernetes reserves it"
        yield Problem("job.namespace", s.job.namespace, why, "Use up to 63 lower-case letters, digits and -")
    taken = (contract.DATA, contract.OUTPUT)
    if not re.fullmatch(r"\w[\w.-]*", s.job.config_dir) or s.job.config_dir in taken:
        why = "cannot be a folder next to data/ and output/"
        yield Problem("job.configDir", s.job.config_dir, why, "Use one folder name, such as quick_start")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,15}", s.pserver.nic):
        yield Problem("pserver.nic", s.pserver.nic, "is not the name of a network interface", "Write one, such as eth0")


def _workers(s: Settings) -> Problems:
    types = s.workers.instance_types
    if not types:
        yield Problem("workers.instanceTypes", types, "is empty", "Write at least one type, such as m6i.large")
    if len(set(types)) != len(types):
        yield Problem("workers.instanceTypes", types, "contains a type twice", "Write each type once")


def _numbers(s: Settings) -> Problems:
    at_least = {
        "workers.count": (s.workers.count, 0),
        "trainers": (s.trainers, 1),
        "job.passes": (s.job.passes, 1),
        "job.attempts": (s.job.attempts, 1),
        "job.peerTimeoutMinutes": (s.job.peer_timeout_minutes, 1),
        "job.stallMinutes": (s.job.stall_minutes, 0),
        "job.timeoutMinutes": (s.job.timeout_minutes, 1),
        "job.gpusPerTrainer": (s.job.gpus_per_trainer, 0),
        "job.sharedMemoryGiB": (s.job.shared_memory_gib, 1),
        "data.records": (s.data.records, 1),
        "data.timeoutMinutes": (s.data.timeout_minutes, 1),
        "pserver.ports": (s.pserver.ports, 1),
        "pserver.sparsePorts": (s.pserver.sparse_ports, 0),
        "storage.sizeGiB": (s.storage.size_gib, 1),
        "storage.claimGiB": (s.storage.claim_gib, 1),
        "notify.monthlyBudget": (s.notify.monthly_budget, 0),
    }
    for key, (value, least) in at_least.items():
        if value < least:
            yield Problem(key, value, "is too small", f"Write {least} or more")
    if not 20 <= s.workers.disk_gib <= 16384:
        why = "is not a disk size that the node image and EBS allow"
        yield Problem("workers.diskGiB", s.workers.disk_gib, why, "Write 20 to 16384")
    elif s.job.gpus_per_trainer and s.workers.disk_gib < GPU_DISK_GIB:
        why = "is too small for a node image and a Paddle image with GPU support"
        yield Problem("workers.diskGiB", s.workers.disk_gib, why, f"Write {GPU_DISK_GIB} or more")
    if s.trainers > s.workers.count and not s.paused:
        why = f"is more than the {s.workers.count} workers, and a worker can run only one trainer (host ports)"
        instead = f"Write {max(s.workers.count, 1)} or fewer, or workers.count: {s.trainers}"
        yield Problem("trainers", s.trainers, why, instead)
    if s.data_source.kind == contract.SYNTHETIC and 1 <= s.data.records < s.trainers:
        yield Problem(
            "data.records",
            s.data.records,
            "is less than the number of trainers, so one trainer would have no data",
            f"Write {s.trainers} or more",
        )
    if s.storage.claim_gib > s.storage.size_gib:
        why = f"is larger than the volume, which has {s.storage.size_gib} GiB"
        yield Problem("storage.claimGiB", s.storage.claim_gib, why, "Write a smaller claim, or raise storage.sizeGiB")


def _version(s: Settings) -> Problems:
    if not re.fullmatch(KUBERNETES_VERSION, s.kubernetes_version):
        why = "is not a Kubernetes version of EKS"
        yield Problem("kubernetesVersion", s.kubernetes_version, why, 'Write it in quotes, such as "1.35"')


def _ports(s: Settings) -> Problems:
    ports = s.pserver.host_ports
    if not ports:
        return
    span = f"means host ports {ports[0]} to {ports[-1]}"
    if ports[0] < 1024 or ports[-1] > 65535:
        instead = f"Write 1024 to {65536 - len(ports)}"
        yield Problem("pserver.port", s.pserver.port, f"{span}, and only 1024 to 65535 are allowed", instead)
    for owner, taken in TAKEN_PORTS.items():
        if ports[0] <= taken[-1] and taken[0] <= ports[-1]:
            why = f"{span}, and {taken[0]} to {taken[-1]} belong to {owner}"
            yield Problem("pserver.port", s.pserver.port, why, "Choose free ports, for example 7164")


def _addresses(s: Settings) -> Problems:
    vpc = _network(s.vpc_cidr)
    if vpc is None:
        yield Problem("vpcCidr", s.vpc_cidr, NOT_A_RANGE, "Write one, such as 10.0.0.0/16")
    elif not any(vpc.subnet_of(private) for private in PRIVATE):
        yield Problem(
            "vpcCidr", s.vpc_cidr, "is not a private range", "Write one within 10.0.0.0/8, such as 10.0.0.0/16"
        )
    elif vpc.overlaps(USED_BY_AWS):
        why = f"overlaps {USED_BY_AWS}, which some AWS services use themselves"
        yield Problem("vpcCidr", s.vpc_cidr, why, "Write another range, such as 10.0.0.0/16")
    elif not LARGEST <= vpc.prefixlen <= SMALLEST:
        why = "is too large for a VPC or too small for its subnets"
        yield Problem("vpcCidr", s.vpc_cidr, why, f"Write a range from /{LARGEST} to /{SMALLEST}")
    else:
        room = zone_capacity(vpc) * s.worker_zones(max(len(s.availability_zones), 2))
        if s.workers.count * ADDRESSES_PER_WORKER > room:
            where = "the zone of the workers" if s.workers.zones == "one" else "its zones"
            why = f"has {room} addresses in {where}, and {s.workers.count} workers need {ADDRESSES_PER_WORKER} each"
            more = "workers.zones: all" if s.workers.zones == "one" else "more zones"
            yield Problem("vpcCidr", s.vpc_cidr, why, f"Write a larger range, {more}, or fewer workers")

    networks = {cidr: _network(cidr) for cidr in s.api_access_cidrs}
    for cidr, network in networks.items():
        if network is None:
            yield Problem("apiAccessCidrs", cidr, NOT_A_RANGE, "Write your public address with /32")
        elif any(network.subnet_of(private) for private in PRIVATE):
            why = "is a private range, and the public endpoint sees only public addresses"
            yield Problem("apiAccessCidrs", cidr, why, "Write your public address, or leave the list empty")
        elif any(network.subnet_of(example) for example in DOCUMENTATION):
            why = "is a range for documentation, so nobody could reach the cluster"
            yield Problem("apiAccessCidrs", cidr, why, "Write the public range of the machine that runs `pulumi up`")
    valid = [network for network in networks.values() if network]
    for one, other in combinations(valid, 2):
        if one.overlaps(other):
            yield Problem("apiAccessCidrs", str(one), f"overlaps {other}", "Keep the wider range")
    if len(s.api_access_cidrs) != len(networks):
        yield Problem("apiAccessCidrs", s.api_access_cidrs, "contains a range twice", "Write each range once")


def _network(cidr: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def _zone_list(s: Settings) -> Problems:
    zones = s.availability_zones
    if len(set(zones)) != len(zones):
        yield Problem("availabilityZones", zones, "contains a zone twice", "Write each zone once")
    if len(set(zones)) == 1:
        yield Problem(
            "availabilityZones", zones, "is one zone, and EKS needs two", "Write two or more, or an empty list"
        )


def _people(s: Settings) -> Problems:
    named = [("admins", arn) for arn in s.admins] + ([("deployer", s.deployer)] if s.deployer else [])
    for key, arn in named:
        if not re.fullmatch(PRINCIPAL, arn):
            hint = "the ARN of the role of this session" if ":assumed-role/" in arn else "an ARN"
            why = "is not the ARN of an IAM role or user"
            yield Problem(key, arn, why, f"Write {hint}, such as arn:aws:iam::123456789012:role/admin")
    boundary = s.permissions_boundary
    if boundary and not re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+", boundary):
        why = "is not the ARN of an IAM policy"
        instead = "Write one, such as arn:aws:iam::123456789012:policy/paddle-boundary-dev, or leave it empty"
        yield Problem("permissionsBoundary", boundary, why, instead)
    if len(set(s.admins)) != len(s.admins):
        yield Problem("admins", s.admins, "contains an ARN twice", "Write each ARN once")
    if s.ssh_public_key:
        if not _is_public_key(s.ssh_public_key):
            why = "is not an OpenSSH public key that EC2 accepts"
            yield Problem("sshPublicKey", s.ssh_public_key, why, "Write an ssh-ed25519 or ssh-rsa key on one line")
        if "0.0.0.0/0" in s.api_access_cidrs:
            why = "would open SSH to the whole internet, because sshPublicKey is set"
            yield Problem("apiAccessCidrs", "0.0.0.0/0", why, "Write a narrower range, or leave sshPublicKey empty")


def _is_public_key(text: str) -> bool:
    kind, _, rest = text.strip().partition(" ")
    if kind not in ("ssh-ed25519", "ssh-rsa") or "\n" in text.strip():
        return False
    try:
        blob = base64.b64decode(rest.partition(" ")[0], validate=True)
    except binascii.Error:
        return False
    # The blob starts with the length of the kind (4 bytes) and the kind itself.
    return blob[4 : 4 + len(kind)] == kind.encode()


def _key(s: Settings) -> Problems:
    arn = s.kms_key_arn
    named = KMS_KEY.fullmatch(arn)
    if arn and not named:
        why = "is not the ARN of a KMS key"
        instead = "Write the ARN that `aws kms describe-key --key-id KEY --query KeyMetadata.Arn` prints"
        yield Problem("kmsKeyArn", arn, why, instead)
    elif named and named["region"] != s.region:
        why = f"is a key in {named['region']}, and the stack is in {s.region}"
        yield Problem("kmsKeyArn", arn, why, f"Write a key in {s.region}, or leave it empty")


def _containers(s: Settings) -> Problems:
    for key, image in s.images.items():
        if image and not re.fullmatch(IMAGE, image):
            why = "is not an image reference"
            yield Problem(key, image, why, "Write repository:tag, such as paddlepaddle/paddle:3.3.1")
    for key, command in {"job.command": s.job.command, "data.command": s.data.command}.items():
        if any(not word.strip() for word in command):
            why = "contains an empty item"
            yield Problem(key, command, why, "Write each argument as one list item, or [] for the image's own command")


def _secrets(s: Settings) -> Problems:
    beside_source = {key for key in s.stored.encrypted if re.fullmatch(r"data(\.(?!source(\[\d+\])?$).*)?", key)}
    for key in sorted((s.secrets - {"data"}) | beside_source):
        if ":" not in key:
            why = "contains a secret, but the program writes it into resources as plain text"
            yield Problem(key, HIDDEN, why, "Store it without --secret, only data.source can be a secret")


def _data(s: Settings) -> Problems:
    for i, source in enumerate(s.data_source.addresses):
        shown = contract.without_credentials(source)
        if shown != source and not s.is_secret(source):
            why = "has a query string or a password, and everybody who sees the stack file or the cluster can read it"
            key = "data.source" if isinstance(s.data.source, str) else f"data.source[{i}]"
            instead = f"Store it as a secret: pulumi config set --path {shlex.quote(key)} --secret"
            yield Problem(key, shown, why, instead)
    instead = "Write synthetic, s3://bucket/key, s3://bucket/folder/, https://host/file or a list of https:// addresses"
    if s.data_source.kind == contract.INVALID and isinstance(s.data.source, str):
        shown = contract.without_credentials(s.data.source)
        yield Problem("data.source", shown, "is not a data source", instead)
    elif s.data_source.kind == contract.INVALID:
        for source in s.data.source:
            if not contract.is_https(source):
                shown = contract.without_credentials(source)
                yield Problem("data.source", shown, "is not an https:// address", "Write https://host/file")
        if not s.data.source:
            yield Problem("data.source", s.data.source, "is an empty list", instead)
    if s.data.sha256 and not s.data_source.is_one_file:
        why = "is the checksum of one file, and data.source can be more than one"
        yield Problem("data.sha256", s.data.sha256, why, "Leave it empty")
    if not re.fullmatch(r"([0-9a-f]{64})?", s.data.sha256):
        why = "is not a SHA-256 checksum in lower-case hex"
        yield Problem("data.sha256", s.data.sha256, why, "Write 64 hex digits, or leave it empty")


def _notify(s: Settings) -> Problems:
    email, budget = s.notify.email, s.notify.monthly_budget
    if email and not re.fullmatch(EMAIL, email):
        yield Problem("notify.email", email, "is not an e-mail address", "Write one, such as team@example.com")
    if email and not s.export.enabled:
        why = "gets its messages from the export Job, and export.enabled is false"
        yield Problem("notify.email", email, why, "Set export.enabled to true, or leave notify.email empty")
    if budget > 0 and not email:
        yield Problem("notify.monthlyBudget", budget, "has nobody to warn", "Write an address in notify.email")


def _code(s: Settings) -> Problems:
    files = s.job.code_files
    if "train.py" not in files:
        why = "does not contain train.py"
        yield Problem(
            "job.code", s.job.code, why, "Write the path of a folder that contains it, relative to Pulumi.yaml"
        )
    instead = "Put the code into your own image; docs/training-code.md shows how"
    size = sum(path.stat().st_size for path in files.values())
    if size > CODE_BYTES:
        why = f"has {size} bytes, and only {CODE_BYTES} fit into the ConfigMap"
        yield Problem("job.code", s.job.code, why, instead)
    elif binary := [name for name, path in files.items() if not _is_text(path)]:
        yield Problem("job.code", s.job.code, f"contains {binary[0]}, which is not UTF-8 text", instead)


def _is_text(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _kubeconfig(s: Settings) -> Problems:
    if not s.kubeconfig:
        return
    why = ""
    try:
        content = yaml.safe_load(Path(s.kubeconfig).read_text())
        if not (isinstance(content, dict) and content.get("clusters") and content.get("current-context")):
            why = "is a file without a current context"
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except yaml.YAMLError:
        why = "is not a YAML file"
    if why:
        yield Problem(
            "kubeconfig",
            s.kubeconfig,
            why,
            "Write the path of a kubeconfig file, or leave it empty to use the EKS cluster",
        )


def _tags(s: Settings) -> Problems:
    for key, value in s.tags.items():
        if key.lower() in ("project", "stack", "name"):
            yield Problem(f"tags.{key}", value, "is a tag that the program sets itself", "Use another tag name")
        elif key.startswith("aws:") or not re.fullmatch(r"[\w .:/=+@-]{1,128}", key):
            why = "has a tag name that AWS does not allow"
            yield Problem(f"tags.{key}", value, why, "Use up to 128 letters, digits, spaces and _.:/=+-@")
        elif not re.fullmatch(r"[\w .:/=+@-]{0,256}", value):
            why = "is a tag value that AWS does not allow"
            yield Problem(f"tags.{key}", value, why, "Use up to 256 letters, digits, spaces and _.:/=+-@")
    if len(s.tags) > 40:
        yield Problem(
            "tags",
            len(s.tags),
            "is too many tags: AWS allows 50, including the tags that the program adds",
            "Write 40 or fewer",
        )


RULES: tuple[Callable[[Settings], Problems], ...] = (
    _region,
    _credentials,
    _names,
    _numbers,
    _workers,
    _version,
    _ports,
    _addresses,
    _zone_list,
    _people,
    _key,
    _containers,
    _secrets,
    _data,
    _notify,
    _code,
    _kubeconfig,
    _tags,
)


def _budget(s: Settings, facts: AwsFacts) -> Problems:
    if s.notify.monthly_budget > 0 and facts.partition != BUDGETS_PARTITION:
        why = f"needs AWS Budgets in US dollars, and partition {facts.partition} does not have that"
        yield Problem("notify.monthlyBudget", s.notify.monthly_budget, why, "Write 0")


def _paused(s: Settings, facts: AwsFacts) -> Problems:
    if s.paused and facts.is_new:
        why = "would create a stack that is already paused, and its training needs workers"
        instead = "Write at least as many workers as trainers. After the training, write 0 to pause the stack"
        yield Problem("workers.count", s.workers.count, why, instead)


def _zones(s: Settings, facts: AwsFacts) -> Problems:
    with_workers = s.worker_zones(len(s.availability_zones) or DEFAULT_ZONES)
    for i, name in enumerate(s.availability_zones):
        usable = facts.zones_for_workers if i < with_workers else facts.zones_for_cluster
        instead = f"Choose from {', '.join(usable)}"
        if name not in facts.zones:
            why = f"is not an availability zone of {s.region} for this account"
            yield Problem("availabilityZones", name, why, instead)
        elif name not in usable:
            yield Problem("availabilityZones", name, f"cannot be used: {facts.why_excluded(name)}", instead)
    for i, name in facts.kept_zones.items():
        if i < with_workers and not s.paused and (missing := facts.not_offered(name)):
            why = f"contains types that {name}, a zone of this stack, does not offer: {', '.join(missing)}"
            instead = "Write types that it offers. To use other zones, run `pulumi destroy` first"
            yield Problem("workers.instanceTypes", s.workers.instance_types, why, instead)
    if len(facts.kept_zones) == DEFAULT_ZONES:
        return
    few_for_workers = len(facts.zones_for_workers) < with_workers
    if few_for_workers or len(facts.zones_for_cluster) < DEFAULT_ZONES:
        excluded = "; ".join(why for zone in sorted(facts.zones) if (why := facts.why_excluded(zone)))
        counted = f"{len(facts.zones_for_cluster)} zones for EKS and {len(facts.zones_for_workers)} of them for workers"
        why = f"has {counted}, and the stack needs {DEFAULT_ZONES} and {with_workers}. Excluded: {excluded}"
        instead = "Choose another region"
        if few_for_workers and facts.known_types:
            instead += ", or other types in workers.instanceTypes"
        yield Problem("aws:region", s.region, why, instead)


def _instance_types(s: Settings, facts: AwsFacts) -> Problems:
    key, types, gpus = "workers.instanceTypes", facts.instance_types, s.job.gpus_per_trainer
    for name, found in types.items():
        if found is None:
            yield Problem(key, name, f"is not an instance type of {s.region}", "Choose another, such as m6i.large")
        elif gpus > found.gpus:
            why = f"has {found.gpus} NVIDIA GPUs, and job.gpusPerTrainer is {gpus}"
            yield Problem(key, name, why, "Choose a type with enough, such as g5.xlarge for one GPU")
        elif found.architecture == "arm64":
            for image_key, image in {"job.image": s.job.image, "data.image": s.data_image}.items():
                if PADDLE_IMAGE.match(image):
                    why = f"is an arm64 type, and {image_key} is {image}, an image for x86_64"
                    yield Problem(key, name, why, "Choose an x86_64 type, or use your own image for arm64")
    if len({found for found in types.values() if found}) > 1:
        why = "have different architectures or numbers of GPUs"
        yield Problem(key, s.workers.instance_types, why, "Write types with the same architecture and number of GPUs")


def _kms_key(s: Settings, facts: AwsFacts) -> Problems:
    named = KMS_KEY.fullmatch(s.kms_key_arn)
    if not named or named["region"] != s.region:
        return
    why, instead = "", "Write another key, or leave it empty"
    for part, here in (("partition", facts.partition), ("account", facts.account)):
        if named[part] != here:
            why = why or f"is a key of {part} {named[part]}, and the stack is in {part} {here}"
    key = facts.key
    if key and not why:
        if key.manager != "CUSTOMER":
            why = "is managed by AWS, and its key policy cannot change"
        elif (key.usage, key.spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
            why = f"has the type {key.spec} for {key.usage}, and AWS encrypts only with symmetric keys"
        elif key.state != "Enabled":
            why = f"has the state {key.state}, so nothing can use it"
            instead = "Enable it, write another key, or leave it empty"
    if why:
        yield Problem("kmsKeyArn", s.kms_key_arn, why, instead)


def _images_in_china(s: Settings, facts: AwsFacts) -> Problems:
    if facts.partition != "aws-cn":
        return
    for key, image in s.used_images.items():
        if (registry := registry_of(image)) in NOT_IN_CHINA:
            why = f"is on {registry}, which a region in China usually cannot reach"
            yield Problem(key, image, why, f"Write the address of a copy, for example in Amazon ECR of {s.region}")


def _images_without_digest(s: Settings, facts: AwsFacts) -> Problems:
    if not s.retain_data:
        return
    for key, image in s.used_images.items():
        if "@" not in image:
            why = "has no digest, so its owner can replace it by another image"
            yield Problem(key, image, why, f"Write {image}@sha256: and the digest that its registry shows")


def registry_of(image: str) -> str:
    """The host of an image's registry. Without a host, it is Docker Hub."""
    host, slash, _ = image.partition("/")
    return host if slash and ("." in host or ":" in host) else "docker.io"


def _quotas(s: Settings, facts: AwsFacts) -> Problems:
    vcpus = {name: found.vcpus for name, found in facts.instance_types.items() if found}
    most = most_workers(vcpus, s.workers.capacity, facts.quotas)
    if most is not None and most < s.workers.count:
        quotas = quotas_of(vcpus, s.workers.capacity)
        listed = ", ".join(f'"{quota.name}" is {facts.quotas[quota.code]:g}' for quota in quotas)
        sizes = ", ".join(f"{name} has {count}" for name, count in vcpus.items())
        why = f"is more than the {most} workers that the vCPU quotas of your account allow: {listed}, and {sizes}"
        instead = "Request a higher quota in the console of Service Quotas, or use fewer or smaller workers"
        yield Problem("workers.count", s.workers.count, why, instead)


def _services(s: Settings, facts: AwsFacts) -> Problems:
    """A warning, because AWS's list does not contain every service of every region."""
    missing = [service for service in services_for(s) if service not in facts.services]
    if missing:
        why = f"does not have {', '.join(missing)} in AWS's list of services"
        yield Problem("aws:region", s.region, why, "If creating its resources fails, choose another region")


def _access(s: Settings, facts: AwsFacts) -> Problems:
    access = facts.access
    for arn in access.missing:
        why = f"does not exist in account {facts.account}"
        yield Problem("deployer" if arn == s.deployer else "admins", arn, why, "Create it first, or correct the ARN")
    if not s.deployer and not re.fullmatch(PRINCIPAL, access.deployer):
        why = f"is empty, and this session is {access.deployer}, which EKS does not accept as an administrator"
        yield Problem("deployer", "", why, "Run Pulumi with the credentials of an IAM role or user")
    # Others may preview the stack.
    stranger = s.deployer and access.session not in (None, s.deployer, *s.admins) and not pulumi.runtime.is_dry_run()
    if stranger and re.fullmatch(PRINCIPAL, s.deployer):
        why = f"is not the role or user of this session, {access.session}, which would have no access to the cluster"
        yield Problem("deployer", s.deployer, why, "Use the credentials of the deployer, or add this ARN to admins")


REGION_RULES: tuple[Callable[[Settings, AwsFacts], Problems], ...] = (
    _paused,
    _zones,
    _instance_types,
    _quotas,
    _budget,
    _kms_key,
    _access,
)
WARNINGS: tuple[Callable[[Settings, AwsFacts], Problems], ...] = (
    _services,
    _images_in_china,
    _images_without_digest,
)
