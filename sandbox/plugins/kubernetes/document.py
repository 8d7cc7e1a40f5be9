"""Writes docs/emulated-kubernetes-provider.md from page.md and the code.

Usage: python -m sandbox.plugins.kubernetes.document
"""

from __future__ import annotations

from pathlib import Path

from sandbox.node import pod_runner
from sandbox.paths import CHECKOUT
from sandbox.plugins.kubernetes import annotation, awaits, diff, provider

PAGE = CHECKOUT / provider.PAGE
TEMPLATE = Path(__file__).with_name("page.md")


def page() -> str:
    conditions = awaits.conditions()
    return TEMPLATE.read_text().format(
        refused=", ".join(sorted(provider.REFUSED_KINDS)),
        settings=", ".join(sorted(provider.SETTINGS)),
        kinds="\n".join(
            f"| {kind[1]} | {conditions.get(kind, 'the API server has accepted the object')} | {_fields(kind)} |"
            for kind in sorted(conditions.keys() | diff.REPLACING.keys(), key=lambda kind: kind[1])
        ),
        container_fields=", ".join(sorted(pod_runner.SUPPORTED_FIELDS - {"name", "securityContext"})),
        ignored_fields=", ".join(sorted(pod_runner.IGNORED_FIELDS)),
        security_context=", ".join(sorted(pod_runner.SECURITY_CONTEXT)),
        wait_for=annotation.WAIT_FOR,
        patch_force=annotation.PATCH_FORCE,
        propagation=annotation.DELETION_PROPAGATION,
        timeout=annotation.TIMEOUT,
        skip_await=annotation.SKIP_AWAIT,
        replace_unready=annotation.REPLACE_UNREADY,
    )


def _fields(kind: tuple[str, str]) -> str:
    """The fields that force a replacement; of a pod's containers only the group is named."""
    fields = [field.split(".*")[0].removeprefix("spec.") for field in diff.REPLACING.get(kind, [])]
    return ", ".join(dict.fromkeys(fields))


if __name__ == "__main__":
    PAGE.write_text(page())
