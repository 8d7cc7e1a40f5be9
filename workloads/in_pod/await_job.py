"""Waits until the training Job ends. Then writes the message about the end and, after a failure, the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_api
import messages
from checkpoints import read_checkpoints
from contract import FAILED, Env
from files import retry_transient
from history import read_history
from texts import plain


def outcome(job: dict[str, Any]) -> tuple[str, str]:
    """`Complete` or `Failed`, and the reason; two empty strings while the Job runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "", ""


def launcher_reason(output: Path, job_uid: str) -> str:
    """Why the launcher of trainer 0 gave up; empty if it did not, for example if the Job reached its time limit."""
    attempts = [each for each in read_history(output) if each.job == job_uid]
    return plain(attempts[-1].reason) if attempts and attempts[-1].result == FAILED else ""


def hint(output: Path, job_uid: str, namespace: str, name: str) -> str:
    """Where to look if no launcher has even begun an attempt: Kubernetes does not say why the pods failed."""
    if any(each.job == job_uid for each in read_history(output)):
        return ""
    show = f"kubectl --namespace {namespace} describe pods --selector job-name={name}"
    example = "for example because job.image does not contain the program in job.command"
    return f". No attempt is recorded, so perhaps the pods could not start, {example}. To see why: {show}"


def log(message: str) -> None:
    """Print the message."""
    print(f"await_job.py: {message}", flush=True)


def wait_for_end(name: str, namespace: str) -> tuple[str, str, str]:
    """How the Job ended, why, and its UID."""
    logged = ""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    for jobs in kubernetes_api.follow(path, {"fieldSelector": f"metadata.name={name}"}, log):
        end, reason = outcome(jobs.get(name, {}))
        if end:
            return end, reason, jobs[name]["metadata"]["uid"]
        status = jobs[name].get("status", {}) if name in jobs else None
        now = (
            f"{status.get('active', 0)} active, {status.get('succeeded', 0)} succeeded"
            if status is not None
            else "it does not exist yet"
        )
        if now != logged:
            log(f"waiting for the training Job {name}: {now}")
            logged = now
    raise AssertionError("follow() does not end")


def main() -> None:
    """Wait, and write the files."""
    name, stack, region = os.environ[Env.JOB_NAME], os.environ[Env.STACK], os.environ[Env.AWS_REGION]
    output = Path(os.environ[Env.OUTPUT_DIR])
    namespace = os.environ[Env.JOB_NAMESPACE]
    end, reason, uid = wait_for_end(name, namespace)
    if end == "Failed":
        reason = launcher_reason(output, uid) or reason + hint(output, uid, namespace, name)
        log(f"the training Job {name} failed: {reason}")
        Path(os.environ[Env.FAILURE_FILE]).write_text(reason, encoding="utf-8")
        message = messages.failed(name, stack, region, reason)
    else:
        log(f"the training Job {name} is complete")
        checkpoints = retry_transient(lambda: read_checkpoints(output))
        destination, newest = os.environ[Env.DESTINATION], checkpoints[-1] if checkpoints else None
        message = messages.ready(name, stack, region, destination, newest)
    Path(os.environ[Env.SUBJECT_FILE]).write_text(message.subject, encoding="utf-8")
    Path(os.environ[Env.MESSAGE_FILE]).write_text(message.text, encoding="utf-8")


if __name__ == "__main__":
    main()
