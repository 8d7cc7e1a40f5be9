"""Wait until the training Job is Complete; exit 1 with its reason when it Failed."""

from __future__ import annotations

import os
import sys
from typing import Any

import kubernetes_api
from contract import Env


def outcome(job: dict[str, Any]) -> tuple[str, str]:
    """`Complete` or `Failed` with the reason, or two empty strings while the Job runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "", ""


def say(message: str) -> None:
    """Print at once."""
    print(f"await_job.py: {message}", flush=True)


def main() -> int:
    """Follow the Job to its end."""
    name, namespace = os.environ[Env.JOB_NAME], os.environ[Env.JOB_NAMESPACE]
    said = ""
    for jobs in kubernetes_api.follow(
        f"/apis/batch/v1/namespaces/{namespace}/jobs", {"fieldSelector": f"metadata.name={name}"}, say
    ):
        end, reason = outcome(jobs.get(name, {}))
        if end == "Failed":
            print(f"await_job.py: the training Job {name} failed, nothing to export: {reason}", file=sys.stderr)
            return 1
        if end == "Complete":
            say(f"the training Job {name} is complete")
            return 0
        status = jobs[name].get("status", {}) if name in jobs else None
        now = (
            f"{status.get('active', 0)} active, {status.get('succeeded', 0)} succeeded"
            if status is not None
            else "not there yet"
        )
        if now != said:
            say(f"waiting for the training Job {name}: {now}")
            said = now
    raise AssertionError("follow() does not end")


if __name__ == "__main__":
    sys.exit(main())
