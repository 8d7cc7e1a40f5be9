"""export.sh with the real aws command and an emulated S3, and with an aws command that damages what it copies."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import boto3
import contract
import pytest

from settings.schema import read
from tests.in_pod.conftest import Bucket
from tests.in_pod.training_run import TRAINER
from workloads.next_steps import fetch_model

PREFIX = "job/output/"
DAY = 24 * 3600
HOUR_AGO = time.time() - 3600
TOPIC = ("sns", "sqs")


@dataclass
class Export:
    """The output of one training, a bucket, and the environment of the export Job."""

    output: Path
    bucket: Bucket
    environment: dict[str, str]

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", TRAINER / "export.sh"], env=self.environment, capture_output=True, text=True, errors="replace"
        )

    def succeed(self) -> str:
        result = self.run()
        assert result.returncode == 0, result.stderr
        assert not result.stderr
        return result.stdout

    def exported(self) -> dict[str, bytes]:
        """What the bucket contains besides the address of the newest checkpoint, by the path below the output."""
        found = self.bucket.objects()
        found.pop(PREFIX + "newest-checkpoint", None)
        assert all(key.startswith(PREFIX) for key in found)
        return {key[len(PREFIX) :]: content for key, content in found.items()}

    def newest(self) -> str:
        return self.bucket.objects()[f"{PREFIX}newest-checkpoint"].decode()

    def files(self, *without: str) -> dict[str, bytes]:
        paths = [path for path in self.output.rglob("*") if path.is_file()]
        found = {str(path.relative_to(self.output)): path.read_bytes() for path in paths}
        return {name: content for name, content in found.items() if not name.startswith(without)}

    def end_training(self, subject: str, **more: str) -> None:
        """Write what await_job.py writes."""
        for name, text in {"subject": subject, "message": f"{subject}\ntext of the message", **more}.items():
            Path(self.environment[f"{name.upper()}_FILE"]).write_text(text)

    def receive(self) -> Callable[[], list[tuple[str, str]]]:
        """Create a topic, and return a function that reads the messages: subject and text."""
        keys = {"region_name": "us-east-1", "aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        sns, sqs = (boto3.client(name, endpoint_url=self.environment["AWS_ENDPOINT_URL"], **keys) for name in TOPIC)
        topic = sns.create_topic(Name=f"messages-{uuid.uuid4().hex}")["TopicArn"]
        queue = sqs.create_queue(QueueName=f"messages-{uuid.uuid4().hex}")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"])
        self.environment["TOPIC_ARN"] = topic

        def read() -> list[tuple[str, str]]:
            got = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
            bodies = [json.loads(each["Body"]) for each in got]
            return [(body["Subject"], body["Message"]) for body in bodies]

        return read

    def put(self, name: str, content: bytes) -> None:
        """Leave an object of an earlier training in the bucket."""
        self.bucket.client.put_object(Bucket="bucket", Key=PREFIX + name, Body=content)

    def replace_programs(self, folder: Path, *programs: str, before: str = "", after: str = "") -> None:
        """Put programs first on PATH that run the real ones between these lines of bash."""
        path = self.environment["PATH"]
        for program in programs:
            script = folder / program
            call = f'PATH={path} {program} "$@"; status=$?'
            write(script, f"#!/bin/bash\nuse={program}\n{before}\n{call}\nPATH={path}\n{after}\nexit $status\n")
            script.chmod(0o755)
        self.environment["PATH"] = f"{folder}{os.pathsep}{path}"

    def fail(self) -> str:
        result = self.run()
        assert result.returncode == 1
        return result.stderr


def add_checkpoint(output: Path, name: str, done: bool = True) -> Path:
    folder = output / name
    write(folder / "model.pdparams", os.urandom(1000).hex())
    if done:
        write(folder / "done", "{}")
    age(folder)
    return folder


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def age(folder: Path) -> None:
    """Make all files an hour old: S3 stores whole seconds, so a file of the second of its upload would look newer."""
    for path in folder.rglob("*"):
        os.utime(path, (HOUR_AGO, HOUR_AGO))


@pytest.fixture
def export(bucket: Bucket, tmp_path: Path) -> Export:
    """Two complete checkpoints and logs."""
    output = tmp_path / "job" / "output"
    add_checkpoint(output, "pass-00000")
    add_checkpoint(output, "pass-00001")
    write(output / "node_0" / "train.log", "pass 1/2: loss 0.1\n")
    write(output / "made-from.json", '{"digest": "1", "id": "first"}')
    age(output)
    environment = {
        **bucket.environment,
        "OUTPUT_DIR": str(output),
        "CHECKPOINT": contract.CHECKPOINT.pattern,
        "DONE_FILE": "done",
        "MADE_FROM_FILE": "made-from.json",
        "NEWEST_FILE": "newest-checkpoint",
        "DESTINATION": f"s3://bucket/{PREFIX}",
        "JOB_NAME": "job",
        "EXPORT_AGAIN": contract.run_again(contract.EXPORT_JOB),
        "TRAINING_AGAIN": contract.run_again("job"),
        **{f"{name.upper()}_FILE": str(tmp_path / name) for name in ("failure", "subject", "message")},
    }
    # The export Job sets only AWS_REGION.
    del environment["AWS_DEFAULT_REGION"]
    export = Export(output, bucket, environment)
    export.end_training("Model is ready: job")
    return export


def test_the_bucket_contains_exactly_the_output(export: Export) -> None:
    add_checkpoint(export.output, "pass-00002", done=False)
    write(export.output / ".pass-00003" / "model.pdparams", "half")
    export.put("pass-00000/file of an earlier model", b"old")
    export.put("pass-00007/model.pdparams", b"the last checkpoint of a longer training")
    export.put("node_9/train.log", b"old")
    printed = export.succeed()
    assert export.exported() == export.files("pass-00002", ".pass")
    assert "pass-00002 is skipped: the checkpoint is not complete, because it has no file done" in printed
    assert ".pass-00003 is skipped: " in printed
    assert printed.splitlines()[-1] == "export.sh: the newest checkpoint is s3://bucket/job/output/pass-00001"
    assert "sent the message" not in printed, "without a topic"
    for name, content in export.exported().items():
        head = export.bucket.client.head_object(Bucket="bucket", Key=PREFIX + name, ChecksumMode="ENABLED")
        # S3 refuses content that does not have the checksum that comes with it; the emulator only stores it.
        assert base64.b64decode(head["ChecksumSHA256"]) == hashlib.sha256(content).digest()
    old = export.bucket.versions(f"{PREFIX}pass-00007/model.pdparams")
    assert old == [b"the last checkpoint of a longer training"], "it survives as an old version"


@pytest.mark.parametrize("stamp", ['{"digest": "1", "id": "second"}', None])
def test_the_files_of_another_training_are_replaced_though_size_and_time_do_not_show_it(
    export: Export, stamp: str | None
) -> None:
    """As when a person renames output-before-1 back to output."""
    export.succeed()
    model = export.output / "pass-00000" / "model.pdparams"
    model.write_bytes(b"x" * model.stat().st_size)
    os.utime(model, (DAY, DAY))
    (export.output / "made-from.json").unlink()
    if stamp:
        write(export.output / "made-from.json", stamp)
    export.succeed()
    assert export.exported() == export.files()


def test_a_later_export_uploads_only_what_a_continued_training_added(export: Export) -> None:
    export.succeed()
    export.succeed()
    assert export.exported() == export.files()
    names = [*export.files(), "newest-checkpoint"]
    assert all(len(export.bucket.versions(PREFIX + name)) == 1 for name in names), "nothing was uploaded again"
    add_checkpoint(export.output, "pass-00002")
    (export.output / "node_0" / "train.log").write_text("pass 2/2: loss 0.2\n")
    assert "the newest checkpoint is s3://bucket/job/output/pass-00002" in export.succeed()
    assert export.exported() == export.files()
    assert len(export.bucket.versions(f"{PREFIX}pass-00000/model.pdparams")) == 1


MODEL = "s3://bucket/job/output/pass-00000/model.pdparams"


@pytest.mark.parametrize("damage", [f"aws s3 rm {MODEL}", f"echo short | aws s3 cp - {MODEL}"])
def test_an_object_that_differs_after_the_copy_fails_the_export(export: Export, tmp_path: Path, damage: str) -> None:
    after = f'[[ $2 == sync && "$*" != *dryrun* ]] && {damage} >/dev/null'
    export.replace_programs(tmp_path / "programs", "aws", after=after)
    result = export.run()
    assert result.returncode == 1
    assert "export.sh: s3://bucket/job/output differs from the output after the copy" in result.stderr
    assert MODEL in result.stderr
    assert "newest" not in result.stdout


def test_strange_names_arrive_and_what_s3_cannot_store_is_named(export: Export) -> None:
    checkpoint = export.output / "pass-00000"
    for name in ("-rf", "--delete", "a b", "[*]?", ".hidden", "\u00e9\u4e2d\U0001f600", "back\\slash", "'quoted\""):
        write(checkpoint / name, name)
    write(export.output / "-folder" / "-file")
    (checkpoint / "link").symlink_to("model.pdparams")
    kept = export.files()
    (checkpoint / "dangling\nlink").symlink_to("nothing")
    os.mkfifo(checkpoint / "fifo")
    (export.output / "latest").symlink_to("pass-00001")
    long = "/".join(["n" * 250] * 4)
    not_utf8 = os.fsdecode(b"pass-00000/mod\xe8le")
    for name in ("pass-00000/.nfs0001", "two\nlines/file", not_utf8, f"{long}/model.pdparams", "newest-checkpoint"):
        write(export.output / name)
    printed = export.succeed().splitlines()
    assert export.exported() == kept
    assert export.newest() == "s3://bucket/job/output/pass-00001/\n"
    for name, reason in {
        "newest-checkpoint": "the export itself writes a file with this name",
        "$'pass-00000/dangling\\nlink'": "it is a link to a file that does not exist",
        "$'two\\nlines/file'": "its name contains a line break or another control character",
        "pass-00000/fifo": "it is not a regular file",
        "latest": "it is a link to a folder",
        "pass-00000/.nfs0001": "it is a deleted file that a process still uses",
        "$'pass-00000/mod\\350le'": "its name is not UTF-8 text",
        f"{long}/model.pdparams": "its name in S3 has 1029 bytes, and S3 accepts 1024",
    }.items():
        assert f"export.sh: {name} is skipped: {reason}" in printed


def test_the_newest_checkpoint_has_the_highest_number_and_the_command_of_the_next_steps_copies_it(
    export: Export, tmp_path: Path
) -> None:
    settings = dataclasses.replace(read({})[0], aws={"region": "us-east-1"})

    def fetch() -> subprocess.CompletedProcess[str]:
        command = fetch_model(settings, f"s3://bucket/{PREFIX}")
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=export.environment, capture_output=True, text=True, check=False
        )

    before = fetch()
    assert before.returncode != 0
    assert "newest-checkpoint" in before.stderr + before.stdout or "404" in before.stderr
    assert not (tmp_path / "model").exists()
    for name in ("pass-9", "pass-100000", "pass-00010", "pass-00099-backup", "pass-", "pass-1234567890"):
        add_checkpoint(export.output, name)
    assert "the newest checkpoint is s3://bucket/job/output/pass-100000\n" in export.succeed()
    assert export.exported() == export.files()
    assert export.newest() == "s3://bucket/job/output/pass-100000/\n"
    done = fetch()
    assert done.returncode == 0, done.stderr
    model = (export.output / "pass-100000" / "model.pdparams").read_bytes()
    assert (tmp_path / "model/model.pdparams").read_bytes() == model
    shutil.rmtree(export.output / "pass-100000")
    export.succeed()
    assert export.newest() == "s3://bucket/job/output/pass-00010/\n", "as after a training with fewer passes"


def test_errors_of_the_volume_that_pass_do_not_fail_the_export(export: Export, tmp_path: Path) -> None:
    """Each program fails at its first use of the volume. `stat` is asked about a file that bash does not find."""
    done, hidden, failed = export.output / "pass-00001" / "done", tmp_path / "hidden", tmp_path / "failed"
    done.rename(hidden)
    failed.mkdir()
    script = f"""
        [[ $use == aws && "$*" == *--recursive* ]] && use=aws-cp
        [[ $use == aws && "$*" == *sync*--no-progress* ]] && use=aws-sync
        if [[ $use != aws && ! -e {failed}/$use ]]; then
            touch {failed}/$use
            [[ $use == stat ]] && mv {hidden} {done}
            [[ $use == c* ]] && echo "$use: Input/output error" >&2 || echo "$use: Stale file handle" >&2
            exit 1
        fi"""
    export.replace_programs(tmp_path / "programs", "ls", "stat", "cp", "cat", "aws", before=script)
    export.succeed()
    assert sorted(each.name for each in failed.iterdir()) == ["aws-cp", "aws-sync", "cat", "cp", "ls", "stat"]
    assert export.exported() == export.files()
    assert export.newest() == "s3://bucket/job/output/pass-00001/\n"


@pytest.mark.parametrize("skipped", ["warning: Skipping file /x. File does not exist.", "[Errno 13] Permission denied"])
def test_another_error_of_the_transfer_is_not_repeated_but_a_skipped_file_is(
    export: Export, tmp_path: Path, skipped: str
) -> None:
    once = tmp_path / "once"
    script = f'if [[ $2 == sync && ! -e {once} ]]; then touch {once}; echo "{skipped}" >&2; exit 2; fi'
    export.replace_programs(tmp_path / "programs", "aws", before=script)
    if "Skipping" in skipped:
        export.succeed()
    else:
        assert skipped in export.fail()


def test_no_complete_checkpoint_is_an_error_and_nothing_is_deleted(export: Export) -> None:
    export.put("pass-00000/model.pdparams", b"old")
    for done in export.output.glob("*/done"):
        done.unlink()
    assert "has no complete checkpoint: there is nothing to export" in export.fail()
    assert export.exported() == {"pass-00000/model.pdparams": b"old"}


@pytest.mark.parametrize(("value", "message"), [("", "DESTINATION is not set"), ("bucket", "it must be s3://bucket")])
def test_a_wrong_destination_is_named(export: Export, value: str, message: str) -> None:
    export.environment["DESTINATION"] = value
    assert message in export.fail()


def test_the_message_is_sent_after_the_results_are_in_the_bucket(export: Export, tmp_path: Path) -> None:
    read = export.receive()
    export.replace_programs(tmp_path / "programs", "aws", before=f'echo "$1" >>{tmp_path}/log')
    assert "export.sh: sent the message 'Model is ready: job'" in export.succeed()
    assert read() == [("Model is ready: job", "Model is ready: job\ntext of the message")]
    calls = (tmp_path / "log").read_text().split()
    assert calls.count("sns") == 1
    assert calls[-1] == "sns"


def test_after_a_failed_training_the_reason_is_sent_once_and_nothing_is_exported(export: Export) -> None:
    why = "trainer 1: ValueError: $(touch /tmp/x) `id` bad"
    export.end_training("Training failed: job", failure=why)
    read = export.receive()
    assert export.fail().splitlines() == [
        f"The training Job job failed, so there is nothing to export: {why}",
        "To run the training again: pulumi up --replace '**Job::job'",
    ]
    assert read() == [("Training failed: job", "Training failed: job\ntext of the message")]
    assert export.exported() == {}


def test_a_failed_export_is_reported_too(export: Export) -> None:
    read = export.receive()
    export.environment["DESTINATION"] = "s3://nobody/job/output/"
    assert "export.sh: the output cannot be copied to s3://nobody/job/output" in export.fail()
    ((subject, text),) = read()
    assert subject == "Export failed: job"
    assert "its results could not be exported: the output cannot be copied to s3://nobody/job/output" in text
    assert "pulumi up --replace '**Job::paddle-export'" in text


def test_a_message_that_cannot_be_sent_does_not_fail_the_export(export: Export) -> None:
    export.environment["TOPIC_ARN"] = "arn:aws:sns:us-east-1:123456789012:nobody"
    result = export.run()
    assert result.returncode == 0
    assert "the message 'Model is ready: job' could not be sent to arn:aws:sns" in result.stderr
    assert export.exported() == export.files()
