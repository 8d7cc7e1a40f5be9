"""What the program and the scripts in the pods agree on: names, mount points, the data source and the volume.

The program imports this file. Every Job gets a copy of it beside its scripts.
"""

from __future__ import annotations

import calendar
import dataclasses
import json
import re
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, NamedTuple, TypeVar

T = TypeVar("T")

# The names of the Jobs beside the training Job, which has its name from the settings. paddle-data is the tutorial's.
DATA_JOB = "paddle-data"
EXPORT_JOB = "paddle-export"

# Mount points. /home/jobpath and /efs are the tutorial's.
SCRIPTS = "/paddle-job"
LAUNCH_SCRIPT = f"{SCRIPTS}/launch.py"
PREPARE_SCRIPT = f"{SCRIPTS}/prepare.py"
TRAINING_VOLUME = "/home/jobpath"
DATA_VOLUME = "/efs"
EXPORT_VOLUME = "/efs"
OUTCOME_VOLUME = "/paddle-outcome"


class Env:
    """Names of environment variables."""

    # The training Job; these ten names are the tutorial's.
    JOB_NAME = "JOB_NAME"
    JOB_PATH = "JOB_PATH"
    JOB_NAMESPACE = "JOB_NAMESPACE"
    TRAIN_CONFIG_DIR = "TRAIN_CONFIG_DIR"
    NIC = "CONF_PADDLE_NIC"
    PORT = "CONF_PADDLE_PORT"
    PORTS = "CONF_PADDLE_PORTS_NUM"
    SPARSE_PORTS = "CONF_PADDLE_PORTS_NUM_SPARSE"
    TRAINERS = "CONF_PADDLE_GRADIENT_NUM"
    TRAINER_COUNT = "TRAINER_COUNT"
    # The training Job; these names are our own.
    PASSES = "PASSES"
    MAX_ATTEMPTS = "MAX_ATTEMPTS"
    PEER_TIMEOUT_SECONDS = "PEER_TIMEOUT_SECONDS"
    STALL_SECONDS = "STALL_SECONDS"
    # Kubernetes fills these in for each pod.
    POD_NAME = "POD_NAME"
    POD_UID = "POD_UID"
    POD_IP = "POD_IP"
    JOB_UID = "JOB_UID"
    COMPLETION_INDEX = "JOB_COMPLETION_INDEX"
    # launch.py sets these for train.py; docs/training-code.md describes them.
    DATA_DIR = "DATA_DIR"
    OUTPUT_DIR = "OUTPUT_DIR"
    RESUME_FROM = "RESUME_FROM"
    # The data Job; OUT_DIR and SPLIT_COUNT are the tutorial's.
    OUT_DIR = "OUT_DIR"
    SPLIT_COUNT = "SPLIT_COUNT"
    DATA_SOURCE = "DATA_SOURCE"
    FETCH_ADDRESS = "FETCH_ADDRESS"
    FETCH_PREFIX = "FETCH_PREFIX"
    DATA_SHA256 = "DATA_SHA256"
    DATA_RECORDS = "DATA_RECORDS"
    # The export Job.
    DESTINATION = "DESTINATION"
    CHECKPOINT = "CHECKPOINT"
    DONE_FILE = "DONE_FILE"
    MADE_FROM_FILE = "MADE_FROM_FILE"
    EXPORT_AGAIN = "EXPORT_AGAIN"
    TRAINING_AGAIN = "TRAINING_AGAIN"
    NEWEST_FILE = "NEWEST_FILE"
    STACK = "STACK"
    FAILURE_FILE = "FAILURE_FILE"
    SUBJECT_FILE = "SUBJECT_FILE"
    MESSAGE_FILE = "MESSAGE_FILE"
    TOPIC_ARN = "TOPIC_ARN"
    # The AWS CLI reads these.
    AWS_REGION = "AWS_REGION"
    AWS_ROLE_ARN = "AWS_ROLE_ARN"
    AWS_TOKEN_FILE = "AWS_WEB_IDENTITY_TOKEN_FILE"


# Folders of a Job on the volume, beside the folder with the training code.
DATA = "data"
OUTPUT = "output"
LAUNCHERS = ".launchers"
FETCHED = ".fetched-"  # followed by the UID of the pod

# Names inside a folder with the objects from S3.
FETCH_OBJECTS = "objects"
FETCH_DONE = "done"

# Files.
RECORDS_FILE = "records.txt"
MANIFEST_FILE = "manifest.json"
MADE_FROM_FILE = "made-from.json"
DONE_FILE = "done"
TRAIN_LOG = "train.log"
ATTEMPT_FILE = "attempt.json"
HISTORY_FILE = "attempts.json"
REPORT_FILE = "report.html"
# In the bucket, beside the checkpoints: the address of the newest one. The export Job writes it last.
NEWEST_FILE = "newest-checkpoint"

# In the export Job: why the training failed (missing after a success), and the message about its end.
FAILURE_FILE = f"{OUTCOME_VOLUME}/failure"
SUBJECT_FILE = f"{OUTCOME_VOLUME}/subject"
MESSAGE_FILE = f"{OUTCOME_VOLUME}/message"

# launch.py exits with this status when another attempt cannot help. The Job then fails without a retry.
FINAL_FAILURE = 100
# The statuses of a container whose command cannot be executed, is not found, or cannot be started by the runtime.
NOT_STARTED = (126, 127, 128)

# How a training ends.
FINISHED, FAILED = "finished", "failed"

# export.sh uses this expression too, so it must mean the same in bash.
CHECKPOINT = re.compile("pass-([0-9]{1,9})")


def run_again(job: str) -> str:
    """The command that runs a Job again."""
    return f"pulumi up --replace '**Job::{job}'"


def repeat(job: str) -> str:
    """The last line of a failed Job."""
    return f"To run this Job again: {run_again(job)}"


SPLIT_AGAIN = f"run the data Job again: {run_again(DATA_JOB)}"

HTTPS_PORT = 443
SYNTHETIC, S3, HTTPS, INVALID = "synthetic", "s3", "https", "invalid"


@dataclass(frozen=True)
class DataSource:
    """Where the data comes from: generated (without an address), from one address in S3, or from https addresses."""

    kind: str = INVALID
    addresses: tuple[str, ...] = ()

    @classmethod
    def parse(cls, setting: str | tuple[str, ...]) -> DataSource:
        """From the setting data.source. The checks refuse the kind INVALID."""
        if setting == SYNTHETIC:
            return cls(SYNTHETIC, ())
        addresses = (setting,) if isinstance(setting, str) else setting
        if isinstance(setting, str) and re.fullmatch(r"s3://[a-z0-9.-]{3,63}/\S+", setting):
            return cls(S3, addresses)
        return cls(HTTPS if addresses and all(map(is_https, addresses)) else INVALID, addresses)

    @classmethod
    def from_json(cls, text: str) -> DataSource:
        return from_json(cls, parse_json(text, dict)) or cls()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @property
    def is_one_file(self) -> bool:
        return len(self.addresses) < 2 and not "".join(self.addresses).endswith("/")

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the servers with the data. S3 uses the port of https, too."""
        return tuple(sorted({HTTPS_PORT, *(urllib.parse.urlsplit(each).port or HTTPS_PORT for each in self.addresses)}))

    @property
    def bucket(self) -> str:
        """The bucket in S3, or nothing."""
        return self.addresses[0].split("/")[2] if self.kind == S3 else ""

    @property
    def shown(self) -> str:
        """The source as it may appear in logs and files."""
        return " ".join(map(without_credentials, self.addresses)) or self.kind


def is_https(address: str) -> bool:
    try:
        return urllib.parse.urlsplit(address).port != 0 and bool(re.fullmatch(r"https://[^\s/]+/\S+", address))
    except ValueError:
        return False


def without_credentials(source: str) -> str:
    """The address without the parts that can be a credential: user, password, query and fragment."""
    if not re.match("https?://", source):
        return source
    return re.sub(r"^(\w+://)[^/]*@", r"\1", re.split("[?#]", source, maxsplit=1)[0])


def shard(job_folder: Path, trainer: int) -> Path:
    """The folder with one trainer's part of the data."""
    return job_folder / DATA / str(trainer)


def fetched_folder(job_folder: Path, pod_uid: str) -> Path:
    """The folder where fetch.sh puts the objects of an S3 source; each pod has its own."""
    return job_folder / f"{FETCHED}{pod_uid}"


def log_folder(job_folder: Path, trainer: int) -> Path:
    """The folder with one trainer's logs."""
    return job_folder / OUTPUT / f"node_{trainer}"


def status_file(job_folder: Path, trainer: int) -> Path:
    """The file in which one trainer's launcher reports to the launcher of trainer 0."""
    return job_folder / LAUNCHERS / f"trainer-{trainer}.json"


def checkpoint_number(name: str) -> int | None:
    """The number in the name of a checkpoint's folder; None if it is not such a name."""
    found = CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else None


def parse_json(text: str | bytes, kind: type[T]) -> T:
    """The value if the text is JSON of this type, else an empty value of this type."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, kind) else kind()


def from_json(kind: type[T], value: Any) -> T | None:
    """A dataclass from a JSON object; None if a field has an unexpected type. Without a value, it has its default."""
    if not isinstance(value, dict):
        return None
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        given = value.get(field.name)
        if given is None:
            given = field.default
        if isinstance(field.default, tuple) and isinstance(given, list) and all(isinstance(v, str) for v in given):
            given = tuple(given)
        if isinstance(field.default, float) and type(given) is int:
            try:
                given = float(given)
            except OverflowError:
                return None
        if type(given) is not type(field.default):
            return None
        found[field.name] = given
    return kind(**found)


def finite_numbers(value: Any) -> dict[str, float]:
    """The finite numbers in a JSON object."""
    found = {}
    for name, number in value.items() if isinstance(value, dict) else ():
        if isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) < 1e300:
            found[str(name)] = float(number)
    return found


@dataclass(frozen=True)
class Attempt:
    """One attempt of a training, as in attempts.json and in the log of trainer 0."""

    job: str = ""  # the UID of the Job
    number: int = 0
    started: float = 0.0
    resume: str = ""  # the checkpoint that it started from
    ended: float = 0.0
    reason: str = ""  # why it ended
    result: str = ""  # FINISHED or FAILED: the training ended with this attempt

    @property
    def is_running(self) -> bool:
        return bool(self.number) and not self.ended

    @property
    def is_over(self) -> bool:
        return bool(self.ended)

    @property
    def has_result(self) -> bool:
        return bool(self.result)


# The lines below are in the log of trainer 0, which `make watch` reads.
LAUNCHER = "launch: "
ATTEMPTS_LINE = re.compile(LAUNCHER + r"attempts (\[.*\])$")
CHECKPOINT_LINE = re.compile(LAUNCHER + r"checkpoint (\d{1,9}) of (\d{1,9}) (\{.*\}) written (\S+)$")
WRITTEN = "%Y-%m-%dT%H:%M:%SZ"


def launcher_line(message: str) -> str:
    """A line of the launcher's log."""
    return f"{time.strftime('%H:%M:%S')} {LAUNCHER}{message}"


def parse_attempts(entries: Iterable[Any]) -> list[Attempt]:
    """Attempts from JSON, without those that are not understood."""
    found = (from_json(Attempt, entry) for entry in entries)
    return [attempt for attempt in found if attempt and attempt.number]


def attempts_message(attempts: Iterable[Attempt]) -> str:
    return f"attempts {json.dumps([dataclasses.asdict(attempt) for attempt in attempts])}"


def read_attempts_line(line: str) -> list[Attempt] | None:
    """The attempts in a line; None if it is another line."""
    found = ATTEMPTS_LINE.search(line)
    return parse_attempts(parse_json(found[1], list)) if found else None


class CheckpointLine(NamedTuple):
    """A complete checkpoint; the first one is number 1."""

    number: int
    planned: int
    numbers: dict[str, float]
    written: float

    def message(self) -> str:
        at = time.strftime(WRITTEN, time.gmtime(self.written))
        return f"checkpoint {self.number} of {self.planned} {json.dumps(self.numbers)} written {at}"


def read_checkpoint_line(line: str) -> CheckpointLine | None:
    """The checkpoint in a line; None if it is another line."""
    found = CHECKPOINT_LINE.search(line)
    if not found:
        return None
    try:
        written = calendar.timegm(time.strptime(found[4], WRITTEN))
    except ValueError:
        return None
    return CheckpointLine(int(found[1]), int(found[2]), finite_numbers(parse_json(found[3], dict)), float(written))
