"""The cluster, its workers and who can administer it."""

import base64
import binascii
import re
from pathlib import Path

import yaml

from settings.aws_errors import NoAnswerError
from settings.aws_facts import PRINCIPAL, AwsFacts
from settings.problem import Problem, Problems, at_least
from settings.quotas import most_workers, quotas_of
from settings.schema import KUBERNETES_VERSION, Settings

GPU_DISK_GIB = 100
# The official Paddle images exist only for this architecture.
PADDLE_IMAGE = re.compile(r"(docker\.io/)?paddlepaddle/paddle[:@]")


def cluster_name(s: Settings) -> Problems:
    if not re.fullmatch(r"(?!sg-)[0-9A-Za-z][0-9A-Za-z_-]{0,89}", s.cluster_name):
        why = "is not allowed as the name of an EKS cluster and its security groups"
        instead = "Use up to 90 letters, digits, - and _, not starting with sg-"
        yield Problem("clusterName", s.cluster_name, why, instead)


def kubernetes_version(s: Settings) -> Problems:
    if not re.fullmatch(KUBERNETES_VERSION, s.kubernetes_version):
        why = "is not a Kubernetes version of EKS"
        yield Problem("kubernetesVersion", s.kubernetes_version, why, 'Write it in quotes, such as "1.35"')


def worker_types(s: Settings) -> Problems:
    types = s.workers.instance_types
    if not types:
        yield Problem("workers.instanceTypes", types, "is empty", "Write at least one type, such as m6i.large")
    if len(set(types)) != len(types):
        yield Problem("workers.instanceTypes", types, "contains a type twice", "Write each type once")


def worker_sizes(s: Settings) -> Problems:
    yield from at_least({"workers.count": (s.workers.count, 0)})
    if not 20 <= s.workers.disk_gib <= 16384:
        why = "is not a disk size that the node image and EBS allow"
        yield Problem("workers.diskGiB", s.workers.disk_gib, why, "Write 20 to 16384")
    elif s.job.gpus_per_trainer and s.workers.disk_gib < GPU_DISK_GIB:
        why = "is too small for a node image and a Paddle image with GPU support"
        yield Problem("workers.diskGiB", s.workers.disk_gib, why, f"Write {GPU_DISK_GIB} or more")


def administrators(s: Settings) -> Problems:
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


def ssh_key(s: Settings) -> Problems:
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


def existing_kubeconfig(s: Settings) -> Problems:
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
        instead = "Write the path of a kubeconfig file, or leave it empty to use the EKS cluster"
        yield Problem("kubeconfig", s.kubeconfig, why, instead)


def addons_exist(s: Settings, facts: AwsFacts) -> Problems:
    """EKS has no versions of add-ons for a Kubernetes version that it does not support."""
    for name, error in list(facts.missing_addons.items())[:1]:
        why = f"has no version of the add-on {name} in {s.region}: {error}"
        instead = "Write a Kubernetes version that EKS supports: `aws eks describe-cluster-versions` lists them"
        yield Problem("kubernetesVersion", s.kubernetes_version, why, instead)


def paused_from_the_start(s: Settings, facts: AwsFacts) -> Problems:
    if s.paused and facts.is_new:
        why = "would create a stack that is already paused, and its training needs workers"
        instead = "Write at least as many workers as trainers. After the training, write 0 to pause the stack"
        yield Problem("workers.count", s.workers.count, why, instead)


def instance_types(s: Settings, facts: AwsFacts) -> Problems:
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


def vcpu_quotas(s: Settings, facts: AwsFacts) -> Problems:
    vcpus = {name: found.vcpus for name, found in facts.instance_types.items() if found}
    most = most_workers(vcpus, s.workers.capacity, facts.quotas)
    if most is not None and most < s.workers.count:
        quotas = quotas_of(vcpus, s.workers.capacity)
        listed = ", ".join(f'"{quota.name}" is {facts.quotas[quota.code]:g}' for quota in quotas)
        sizes = ", ".join(f"{name} has {count}" for name, count in vcpus.items())
        why = f"is more than the {most} workers that the vCPU quotas of your account allow: {listed}, and {sizes}"
        instead = "Request a higher quota in the console of Service Quotas, or use fewer or smaller workers"
        yield Problem("workers.count", s.workers.count, why, instead)


def principals_exist(s: Settings, facts: AwsFacts) -> Problems:
    for arn in facts.access.missing:
        why = f"does not exist in account {facts.account}"
        yield Problem("deployer" if arn == s.deployer else "admins", arn, why, "Create it first, or correct the ARN")


def session_has_access(s: Settings, facts: AwsFacts) -> Problems:
    session = facts.access.session
    if isinstance(session, NoAnswerError):
        if not s.deployer:
            why = f"is empty, and the role of this session could not be read: {session}"
            instead = "Write the ARN of the IAM role or user that runs Pulumi, or allow it iam:GetRole for itself"
            yield Problem("deployer", "", why, instead)
    elif not s.deployer:
        if not re.fullmatch(PRINCIPAL, session):
            why = f"is empty, and this session is {session}, which EKS does not accept as an administrator"
            yield Problem("deployer", "", why, "Run Pulumi with the credentials of an IAM role or user")
    # Others may preview the stack.
    elif session not in (s.deployer, *s.admins) and not facts.is_preview and re.fullmatch(PRINCIPAL, s.deployer):
        why = f"is not the role or user of this session, {session}, which would have no access to the cluster"
        yield Problem("deployer", s.deployer, why, "Use the credentials of the deployer, or add this ARN to admins")


RULES = (cluster_name, kubernetes_version, worker_types, worker_sizes, administrators, ssh_key, existing_kubeconfig)
FACTS_RULES = (addons_exist, paused_from_the_start, instance_types, vcpu_quotas, principals_exist, session_has_access)
