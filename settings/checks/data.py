"""The data, its storage and the key that encrypts it."""

import re
import shlex

from settings.aws_errors import NoAnswerError
from settings.aws_facts import KMS_KEY, AwsFacts
from settings.problem import HIDDEN, Problem, Problems, at_least
from settings.schema import Settings
from workloads.in_pod import contract


def secrets(s: Settings) -> Problems:
    beside_source = {key for key in s.stored.encrypted if re.fullmatch(r"data(\.(?!source(\[\d+\])?$).*)?", key)}
    for key in sorted((s.secrets - {"data"}) | beside_source):
        if ":" not in key:
            why = "contains a secret, but the program writes it into resources as plain text"
            yield Problem(key, HIDDEN, why, "Store it without --secret, only data.source can be a secret")


def data_source(s: Settings) -> Problems:
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


def data_numbers(s: Settings) -> Problems:
    yield from at_least({"data.records": (s.data.records, 1), "data.timeoutMinutes": (s.data.timeout_minutes, 1)})
    if s.data_source.kind == contract.SYNTHETIC and 1 <= s.data.records < s.trainers:
        why = "is less than the number of trainers, so one trainer would have no data"
        yield Problem("data.records", s.data.records, why, f"Write {s.trainers} or more")


def storage_sizes(s: Settings) -> Problems:
    yield from at_least({"storage.sizeGiB": (s.storage.size_gib, 1), "storage.claimGiB": (s.storage.claim_gib, 1)})
    if s.storage.claim_gib > s.storage.size_gib:
        why = f"is larger than the volume, which has {s.storage.size_gib} GiB"
        yield Problem("storage.claimGiB", s.storage.claim_gib, why, "Write a smaller claim, or raise storage.sizeGiB")


def kms_key_arn(s: Settings) -> Problems:
    arn = s.kms_key_arn
    named = KMS_KEY.fullmatch(arn)
    if arn and not named:
        why = "is not the ARN of a KMS key"
        instead = "Write the ARN that `aws kms describe-key --key-id KEY --query KeyMetadata.Arn` prints"
        yield Problem("kmsKeyArn", arn, why, instead)
    elif named and named["region"] != s.region:
        why = f"is a key in {named['region']}, and the stack is in {s.region}"
        yield Problem("kmsKeyArn", arn, why, f"Write a key in {s.region}, or leave it empty")


def kms_key(s: Settings, facts: AwsFacts) -> Problems:
    named = KMS_KEY.fullmatch(s.kms_key_arn)
    if not named or named["region"] != s.region:
        return
    why, instead = "", "Write another key, or leave it empty"
    for part, here in (("partition", facts.partition), ("account", facts.account)):
        if named[part] != here:
            why = why or f"is a key of {part} {named[part]}, and the stack is in {part} {here}"
    key = facts.key
    if key and not why:
        if isinstance(key, NoAnswerError) and key.is_missing:
            why, instead = "does not exist", "Write the ARN of a key that exists, or leave it empty"
        elif isinstance(key, NoAnswerError):
            why, instead = f"could not be read: {key}", "Allow kms:DescribeKey for this key, in IAM and in KMS"
        elif key.manager != "CUSTOMER":
            why = "is managed by AWS, and its key policy cannot change"
        elif (key.usage, key.spec) != ("ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT"):
            why = f"has the type {key.spec} for {key.usage}, and AWS encrypts only with symmetric keys"
        elif key.state != "Enabled":
            why = f"has the state {key.state}, so nothing can use it"
            instead = "Enable it, write another key, or leave it empty"
    if why:
        yield Problem("kmsKeyArn", s.kms_key_arn, why, instead)


RULES = (secrets, data_source, data_numbers, storage_sizes, kms_key_arn)
FACTS_RULES = (kms_key,)
