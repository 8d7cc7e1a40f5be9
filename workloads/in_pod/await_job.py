"""Waits until the training Job is complete. If it failed, exits with status 1 and prints the reason."""

from __future__ import annotations

import os
import sys
from typing import Any

import kubernetes_api
from contract import Env


def outcome(job: dict[str, Any]) -> tuple[str, str]:
    """`Complete` or `Failed`, and the reason; two empty strings while the Job runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "", ""


def log(message: str) -> None:
    """Print the message."""
    print(f"await_job.py: {message}", flush=True)


def main() -> int:
    """Wait until the Job ends."""
    name, namespace = os.environ[Env.JOB_NAME], os.environ[Env.JOB_NAMESPACE]
    logged = ""
    for jobs in kubernetes_api.follow(
        f"/apis/batch/v1/namespaces/{namespace}/jobs", {"fieldSelector": f"metadata.name={name}"}, log
    ):
        end, reason = outcome(jobs.get(name, {}))
        if end == "Failed":
            problem = f"the training Job {name} failed, so there is nothing to export: {reason}"
            print(f"await_job.py: {problem}", file=sys.stderr)
            return 1
        if end == "Complete":
            log(f"the training Job {name} is complete")
            return 0
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


if __name__ == "__main__":
    sys.exit(main())
