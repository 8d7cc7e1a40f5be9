"""The Jobs: their names, numbers, ports, images, training code and messages."""

import re
from pathlib import Path

from settings.aws_facts import BUDGETS_PARTITION, AwsFacts
from settings.checks.network import LABEL
from settings.problem import Problem, Problems, at_least
from settings.schema import Settings, code_files
from workloads.in_pod import contract

EMAIL = r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.[A-Za-z]{2,}"
IMAGE = r"[a-z0-9]+([._/:-]+[A-Za-z0-9]+)*(@sha256:[0-9a-f]{64})?"
# Ports that are in use on every EKS node.
TAKEN_PORTS = {
    "kubelet and kube-proxy": range(10248, 10260),
    "NodePort services": range(30000, 32768),
    "the VPC network plugin": range(61678, 61680),
}
# A ConfigMap can hold 1 MiB. The script of the data Job is in the same ConfigMap as the training code.
CODE_BYTES = 1024 * 1024 - 64 * 1024
# Registries that a network in China usually cannot reach, or only very slowly.
NOT_IN_CHINA = ("docker.io", "gcr.io", "ghcr.io", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io")


def job_names(s: Settings) -> Problems:
    longest = 63 - len(f"-{s.trainers - 1}")
    if not re.fullmatch(LABEL, s.job.name) or len(s.job.name) > longest:
        why = "is not allowed as the name of an indexed Job in Kubernetes"
        yield Problem("job.name", s.job.name, why, f"Use up to {longest} lower-case letters, digits and -")
    if s.job.name in (contract.DATA_JOB, contract.EXPORT_JOB):
        why = "is already the name of another Job of this program"
        yield Problem("job.name", s.job.name, why, "Use another name, such as paddle-cluster-job")
    if not re.fullmatch(LABEL, s.job.namespace) or len(s.job.namespace) > 63 or s.job.namespace.startswith("kube-"):
        why = "is not a valid namespace, or Kubernetes reserves it"
        yield Problem("job.namespace", s.job.namespace, why, "Use up to 63 lower-case letters, digits and -")
    taken = (contract.DATA, contract.OUTPUT)
    if not re.fullmatch(r"\w[\w.-]*", s.job.config_dir) or s.job.config_dir in taken:
        why = "cannot be a folder next to data/ and output/"
        yield Problem("job.configDir", s.job.config_dir, why, "Use one folder name, such as quick_start")


def job_numbers(s: Settings) -> Problems:
    yield from at_least(
        {
            "job.passes": (s.job.passes, 1),
            "job.attempts": (s.job.attempts, 1),
            "job.peerTimeoutMinutes": (s.job.peer_timeout_minutes, 1),
            "job.stallMinutes": (s.job.stall_minutes, 0),
            "job.timeoutMinutes": (s.job.timeout_minutes, 1),
            "job.gpusPerTrainer": (s.job.gpus_per_trainer, 0),
            "job.sharedMemoryGiB": (s.job.shared_memory_gib, 1),
        }
    )


def trainer_count(s: Settings) -> Problems:
    yield from at_least({"trainers": (s.trainers, 1)})
    if s.trainers > s.workers.count and not s.paused:
        why = f"is more than the {s.workers.count} workers, and a worker can run only one trainer (host ports)"
        instead = f"Write {max(s.workers.count, 1)} or fewer, or workers.count: {s.trainers}"
        yield Problem("trainers", s.trainers, why, instead)


def network_interface(s: Settings) -> Problems:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,15}", s.pserver.nic):
        yield Problem("pserver.nic", s.pserver.nic, "is not the name of a network interface", "Write one, such as eth0")


def host_ports(s: Settings) -> Problems:
    yield from at_least({"pserver.ports": (s.pserver.ports, 1), "pserver.sparsePorts": (s.pserver.sparse_ports, 0)})
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


def containers(s: Settings) -> Problems:
    for key, image in s.images.items():
        if image and not re.fullmatch(IMAGE, image):
            why = "is not an image reference"
            yield Problem(key, image, why, "Write repository:tag, such as paddlepaddle/paddle:3.3.1")
    for key, command in {"job.command": s.job.command, "data.command": s.data.command}.items():
        if any(not word.strip() for word in command):
            why = "contains an empty item"
            yield Problem(key, command, why, "Write each argument as one list item, or [] for the image's own command")


def training_code(s: Settings) -> Problems:
    files = code_files(s.job)
    if "train.py" not in files:
        instead = "Write the path of a folder that contains it, relative to Pulumi.yaml"
        yield Problem("job.code", s.job.code, "does not contain train.py", instead)
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


def messages(s: Settings) -> Problems:
    email, budget = s.notify.email, s.notify.monthly_budget
    yield from at_least({"notify.monthlyBudget": (budget, 0)})
    if email and not re.fullmatch(EMAIL, email):
        yield Problem("notify.email", email, "is not an e-mail address", "Write one, such as team@example.com")
    if email and not s.export.enabled:
        why = "gets its messages from the export Job, and export.enabled is false"
        yield Problem("notify.email", email, why, "Set export.enabled to true, or leave notify.email empty")
    if budget > 0 and not email:
        yield Problem("notify.monthlyBudget", budget, "has nobody to warn", "Write an address in notify.email")


def budget_in_dollars(s: Settings, facts: AwsFacts) -> Problems:
    if s.notify.monthly_budget > 0 and facts.partition != BUDGETS_PARTITION:
        why = f"needs AWS Budgets in US dollars, and partition {facts.partition} does not have that"
        yield Problem("notify.monthlyBudget", s.notify.monthly_budget, why, "Write 0")


def images_in_china(s: Settings, facts: AwsFacts) -> Problems:
    if facts.partition != "aws-cn":
        return
    for key, image in s.used_images.items():
        if (registry := registry_of(image)) in NOT_IN_CHINA:
            why = f"is on {registry}, which a region in China usually cannot reach"
            yield Problem(key, image, why, f"Write the address of a copy, for example in Amazon ECR of {s.region}")


def images_without_digest(s: Settings, facts: AwsFacts) -> Problems:
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


RULES = (job_names, job_numbers, trainer_count, network_interface, host_ports, containers, training_code, messages)
FACTS_RULES = (budget_in_dollars,)
WARNINGS = (images_in_china, images_without_digest)
