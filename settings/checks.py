"""What settings must hold before anything is made. Each rule names the key, the value, why not, and what to write."""

import base64
import binascii
import inspect
import ipaddress
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pulumi
import pulumi_aws as aws
import yaml

from settings.region import SERVICES, Offer, ask
from settings.schema import Problem, Settings, camel, load
from settings.subnets import ADDRESSES_PER_WORKER, LARGEST, SMALLEST, zone_capacity
from workloads.in_pod import contract

Problems = Iterator[Problem]

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
IMAGE = r"[a-z0-9]+([._/:-]+[A-Za-z0-9]+)*(@sha256:[0-9a-f]{64})?"
PRIVATE = [ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]
DOCKER_BRIDGE = ipaddress.IPv4Network("172.17.0.0/16")
# On every EKS node: kubelet and kube-proxy, NodePort services, the VPC network plugin.
TAKEN_PORTS = {
    "kubelet": range(10248, 10260),
    "NodePort services": range(30000, 32768),
    "aws-node": range(61678, 61680),
}
# A ConfigMap holds 1 MiB, and the data Job's own script travels in the same one.
CODE_BYTES = 1024 * 1024 - 64 * 1024


def checked() -> tuple[Settings, Offer]:
    """The stack's settings and its region's offer, or one error with all that is wrong with them."""
    settings, problems = load()
    problems += check(settings)
    offer, refused = ask(settings) if settings.region else (None, [])
    problems += refused if offer is None else check_offer(settings, offer)
    if offer is None or problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise pulumi.RunError(f"Nothing was made: the settings of stack {settings.stack} do not hold.\n{listed}")
    return settings, offer


def check(settings: Settings) -> list[Problem]:
    """Everything wrong with the settings that can be known without asking AWS."""
    return [problem for rule in RULES for problem in rule(settings)]


def check_offer(settings: Settings, offer: Offer) -> list[Problem]:
    """Everything wrong with the settings given what the region offers."""
    return [*_services(settings, offer), *_zones(settings, offer), *_instance_type(settings, offer)]


def _region(s: Settings) -> Problems:
    if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d", s.region):
        yield Problem("aws:region", s.region, "is no AWS region", "Write one, such as us-west-2")
    known = {camel(name) for name in inspect.signature(aws.ProviderArgs).parameters}
    for key in sorted(set(s.aws) - known - {"defaultTags"}):
        yield Problem(f"aws:{key}", s.aws[key], "is no option of the AWS provider", "Remove it")
    if "defaultTags" in s.aws:
        yield Problem("aws:defaultTags", s.aws["defaultTags"], "would be lost", "Write the tags under tags")


def _names(s: Settings) -> Problems:
    if not re.fullmatch(r"(?!sg-)[0-9A-Za-z][0-9A-Za-z_-]{0,89}", s.cluster_name):
        why = "is a name that EKS or a security group refuses"
        yield Problem("clusterName", s.cluster_name, why, "Use up to 90 letters, digits, - and _, and no leading sg-")
    if not re.fullmatch(rf"(?=.{{1,200}}$){LABEL}(\.{LABEL})*", s.zone_name):
        yield Problem("zoneName", s.zone_name, "is no DNS name", "Use lower-case labels, such as paddle")
    longest = 63 - len(f"-{s.trainers - 1}")
    if not re.fullmatch(LABEL, s.job.name) or len(s.job.name) > longest:
        why = "is a name that Kubernetes refuses for an indexed Job"
        yield Problem("job.name", s.job.name, why, f"Use up to {longest} lower-case letters, digits and -")
    if s.job.name in ("paddle-data", "paddle-export"):
        yield Problem("job.name", s.job.name, "is the name of another Job", "Use another, such as paddle-cluster-job")
    if not re.fullmatch(LABEL, s.job.namespace) or len(s.job.namespace) > 63 or s.job.namespace.startswith("kube-"):
        why = "is a namespace that Kubernetes refuses or keeps for itself"
        yield Problem("job.namespace", s.job.namespace, why, "Use up to 63 lower-case letters, digits and -")
    taken = (contract.DATA, contract.OUTPUT, contract.FETCHED)
    if not re.fullmatch(r"\w[\w.-]*", s.job.config_dir) or s.job.config_dir in taken:
        why = "cannot be a folder beside data and output"
        yield Problem("job.configDir", s.job.config_dir, why, "Use one plain name, such as quick_start")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,15}", s.pserver.nic):
        yield Problem("pserver.nic", s.pserver.nic, "is no network interface's name", "Write one, such as eth0")


def _numbers(s: Settings) -> Problems:
    at_least = {
        "workers.count": (s.workers.count, 1),
        "trainers": (s.trainers, 1),
        "job.passes": (s.job.passes, 1),
        "job.attempts": (s.job.attempts, 1),
        "job.peerTimeoutMinutes": (s.job.peer_timeout_minutes, 1),
        "job.timeoutMinutes": (s.job.timeout_minutes, 1),
        "job.gpusPerTrainer": (s.job.gpus_per_trainer, 0),
        "data.records": (s.data.records, 1),
        "data.timeoutMinutes": (s.data.timeout_minutes, 1),
        "pserver.ports": (s.pserver.ports, 1),
        "pserver.sparsePorts": (s.pserver.sparse_ports, 0),
        "storage.sizeGiB": (s.storage.size_gib, 1),
        "storage.claimGiB": (s.storage.claim_gib, 1),
    }
    for key, (value, least) in at_least.items():
        if value < least:
            yield Problem(key, value, "is too few", f"Write {least} or more")
    if not 20 <= s.workers.disk_gib <= 16384:
        why = "is outside what the node image and EBS allow"
        yield Problem("workers.diskGiB", s.workers.disk_gib, why, "Write 20 to 16384")
    if s.trainers > s.workers.count:
        why = f"is more than the {s.workers.count} workers, and a trainer's host ports allow one on a node"
        instead = f"Write {max(s.workers.count, 1)} or fewer, or workers.count: {s.trainers}"
        yield Problem("trainers", s.trainers, why, instead)
    if s.data.source == "synthetic" and 1 <= s.data.records < s.trainers:
        yield Problem("data.records", s.data.records, "leaves a trainer without data", f"Write {s.trainers} or more")
    if s.storage.claim_gib > s.storage.size_gib:
        why = f"is larger than the volume's {s.storage.size_gib}"
        yield Problem("storage.claimGiB", s.storage.claim_gib, why, "Claim less, or raise storage.sizeGiB")


def _choices(s: Settings) -> Problems:
    allowed = {
        "natGateways": (s.nat_gateways, ("none", "single", "perZone")),
        "workers.capacity": (s.workers.capacity, ("onDemand", "spot")),
        "storage.driver": (s.storage.driver, ("nfs", "efsCsi")),
    }
    for key, (value, choices) in allowed.items():
        if value not in choices:
            yield Problem(key, value, "is no choice here", f"Write one of {', '.join(choices)}")
    if not re.fullmatch(r"1\.\d\d", s.kubernetes_version):
        why = "is no version of EKS"
        yield Problem("kubernetesVersion", s.kubernetes_version, why, 'Write it in quotes, such as "1.35"')


def _ports(s: Settings) -> Problems:
    ports = s.pserver.host_ports
    if not ports:
        return
    span = f"makes the host ports {ports[0]} to {ports[-1]}"
    if ports[0] < 1024 or ports[-1] > 65535:
        instead = f"Write 1024 to {65536 - len(ports)}"
        yield Problem("pserver.port", s.pserver.port, f"{span}, which leave 1024 to 65535", instead)
    for owner, taken in TAKEN_PORTS.items():
        if ports[0] <= taken[-1] and taken[0] <= ports[-1]:
            why = f"{span}, which overlap {taken[0]} to {taken[-1]} of {owner}"
            yield Problem("pserver.port", s.pserver.port, why, "Choose a free range, such as from 7164")


def _addresses(s: Settings) -> Problems:
    vpc = _network(s.vpc_cidr)
    if vpc is None:
        why = "is no IPv4 range that starts at its own first address"
        yield Problem("vpcCidr", s.vpc_cidr, why, "Write one, such as 10.0.0.0/16")
    elif not any(vpc.subnet_of(private) for private in PRIVATE):
        yield Problem("vpcCidr", s.vpc_cidr, "is not private", "Write one within 10.0.0.0/8, such as 10.0.0.0/16")
    elif vpc.overlaps(DOCKER_BRIDGE):
        why = f"overlaps {DOCKER_BRIDGE}, which containers use on each node"
        yield Problem("vpcCidr", s.vpc_cidr, why, "Write another, such as 10.0.0.0/16")
    elif not LARGEST <= vpc.prefixlen <= SMALLEST:
        why = "is outside the sizes that AWS and the subnet plan allow"
        yield Problem("vpcCidr", s.vpc_cidr, why, f"Write /{LARGEST} to /{SMALLEST}")
    else:
        room = zone_capacity(vpc) * max(len(s.availability_zones), 2)
        if s.workers.count * ADDRESSES_PER_WORKER > room:
            why = f"has {room} addresses for {s.workers.count} workers of {ADDRESSES_PER_WORKER} each"
            yield Problem("vpcCidr", s.vpc_cidr, why, "Write a larger range, name more zones, or use fewer workers")

    networks = {cidr: _network(cidr) for cidr in s.api_access_cidrs}
    for cidr, network in networks.items():
        if network is None:
            why = "holds what is no IPv4 range that starts at its own first address"
            yield Problem("apiAccessCidrs", cidr, why, "Write one, such as 203.0.113.7/32")
        elif any(network.subnet_of(private) for private in PRIVATE):
            why = "is private, and never seen by the public endpoint"
            yield Problem("apiAccessCidrs", cidr, why, "Write your public address, or leave the list empty")
    valid = [network for network in networks.values() if network]
    for one, other in combinations(valid, 2):
        if one.overlaps(other):
            yield Problem("apiAccessCidrs", str(one), f"overlaps {other}", "Keep the wider one")
    if len(s.api_access_cidrs) != len(networks):
        yield Problem("apiAccessCidrs", s.api_access_cidrs, "names a range twice", "Name each once")


def _network(cidr: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def _zone_list(s: Settings) -> Problems:
    zones = s.availability_zones
    if len(set(zones)) != len(zones):
        yield Problem("availabilityZones", zones, "names a zone twice", "Name each once")
    if len(set(zones)) == 1:
        yield Problem("availabilityZones", zones, "is fewer than the two zones EKS needs", "Name two or more, or none")


def _people(s: Settings) -> Problems:
    for arn in s.admins:
        if not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+", arn):
            hint = "the role behind the session" if ":assumed-role/" in arn else "a role's or user's"
            why = "holds what is no ARN of an IAM role or user"
            yield Problem("admins", arn, why, f"Write {hint}, such as arn:aws:iam::123456789012:role/admin")
    if len(set(s.admins)) != len(s.admins):
        yield Problem("admins", s.admins, "names somebody twice", "Name each once")
    if s.ssh_public_key:
        if not _is_public_key(s.ssh_public_key):
            why = "is no OpenSSH public key of a kind EC2 takes"
            yield Problem("sshPublicKey", s.ssh_public_key, why, "Write an ssh-ed25519 or ssh-rsa one, on one line")
        if "0.0.0.0/0" in s.api_access_cidrs:
            why = "would open SSH to the whole internet, as apiAccessCidrs is"
            yield Problem("apiAccessCidrs", "0.0.0.0/0", why, "Narrow it, or leave sshPublicKey empty")


def _is_public_key(text: str) -> bool:
    kind, _, rest = text.strip().partition(" ")
    if kind not in ("ssh-ed25519", "ssh-rsa") or "\n" in text.strip():
        return False
    try:
        blob = base64.b64decode(rest.partition(" ")[0], validate=True)
    except binascii.Error:
        return False
    # The blob repeats the kind, behind its length.
    return blob[4 : 4 + len(kind)] == kind.encode()


def _containers(s: Settings) -> Problems:
    for key, image in {"job.image": s.job.image, "data.image": s.data.image, "export.image": s.export.image}.items():
        if not re.fullmatch(IMAGE, image):
            yield Problem(
                key, image, "is no image reference", "Write repository:tag, such as paddlepaddle/paddle:3.3.1"
            )
    for key, command in {"job.command": s.job.command, "data.command": s.data.command}.items():
        if any(not word.strip() for word in command):
            why = "has an empty word"
            yield Problem(key, command, why, "Write one list item a word, or [] for the image's own command")


def _data(s: Settings) -> Problems:
    source = s.data.source
    if source != "synthetic" and not re.fullmatch(r"https://[^\s/]+/\S+|s3://[a-z0-9.-]{3,63}/\S+", source):
        why = "is no source of data"
        yield Problem("data.source", source, why, "Write synthetic, https://host/file or s3://bucket/key")
    if not re.fullmatch(r"([0-9a-f]{64})?", s.data.sha256):
        why = "is no SHA-256 in lower-case hex"
        yield Problem("data.sha256", s.data.sha256, why, "Write its 64 digits, or leave it empty")


def _code(s: Settings) -> Problems:
    files = s.job.code_files
    if "train.py" not in files:
        why = "holds no train.py"
        yield Problem("job.code", s.job.code, why, "Name a folder with one, by its path from Pulumi.yaml")
    instead = "Put the code in an image of yours; docs/training-code.md shows how"
    size = sum(path.stat().st_size for path in files.values())
    if size > CODE_BYTES:
        why = f"holds {size} bytes, more than the {CODE_BYTES} that travel in a ConfigMap"
        yield Problem("job.code", s.job.code, why, instead)
    elif binary := [name for name, path in files.items() if not _is_text(path)]:
        yield Problem("job.code", s.job.code, f"holds {binary[0]}, which is no UTF-8 text", instead)


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
            why = "is a file with no current context in it"
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except yaml.YAMLError:
        why = "is a file that is no YAML"
    if why:
        yield Problem("kubeconfig", s.kubeconfig, why, "Name a kubeconfig file, or leave it empty to use EKS's own")


def _tags(s: Settings) -> Problems:
    for key, value in s.tags.items():
        if key.lower() in ("project", "stack", "name"):
            yield Problem(f"tags.{key}", value, "is a tag that the program sets itself", "Use another key")
        elif key.startswith("aws:") or not re.fullmatch(r"[\w .:/=+@-]{1,128}", key):
            why = "has a key that AWS refuses"
            yield Problem(f"tags.{key}", value, why, "Use up to 128 letters, digits, spaces and _.:/=+-@")
        elif not re.fullmatch(r"[\w .:/=+@-]{0,256}", value):
            why = "is a value that AWS refuses"
            yield Problem(f"tags.{key}", value, why, "Use up to 256 letters, digits, spaces and _.:/=+-@")
    if len(s.tags) > 40:
        yield Problem("tags", len(s.tags), "tags are more than AWS allows beside ours", "Use 40 or fewer")


RULES: tuple[Callable[[Settings], Problems], ...] = (
    _region,
    _names,
    _numbers,
    _choices,
    _ports,
    _addresses,
    _zone_list,
    _people,
    _containers,
    _data,
    _code,
    _kubeconfig,
    _tags,
)


def _services(s: Settings, offer: Offer) -> Problems:
    missing = [service for service in SERVICES if service not in offer.services]
    if missing:
        why = f"does not offer {', '.join(missing)}"
        yield Problem("aws:region", s.region, why, f"Choose a region with all of {', '.join(SERVICES)}")


def _zones(s: Settings, offer: Offer) -> Problems:
    for name in s.availability_zones:
        if name not in offer.zones:
            why = f"is no availability zone of {s.region} for this account"
            yield Problem("availabilityZones", name, why, f"Choose from {', '.join(offer.usable)}")
        elif name not in offer.usable:
            why = f"is {offer.zones[name]}, where EKS runs no control plane"
            yield Problem("availabilityZones", name, why, f"Choose from {', '.join(offer.usable)}")
    if len(offer.usable) < 2:
        why = f"leaves {len(offer.usable)} usable zones of the two that EKS needs"
        yield Problem("aws:region", s.region, why, "Choose a region with more")


def _instance_type(s: Settings, offer: Offer) -> Problems:
    kind, gpus = s.workers.instance_type, s.job.gpus_per_trainer
    if not offer.architecture:
        why = f"is no instance type that {s.region} offers"
        yield Problem("workers.instanceType", kind, why, "Choose another, such as m6i.large")
    elif gpus > offer.gpus:
        has = f"has {offer.gpus} NVIDIA GPUs" if offer.gpus else "has no NVIDIA GPU"
        why = f"{has}, and job.gpusPerTrainer asks for {gpus}"
        yield Problem("workers.instanceType", kind, why, "Choose one with enough, such as g5.xlarge for one")
