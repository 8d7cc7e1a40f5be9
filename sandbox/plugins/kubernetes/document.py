"""Writes docs/emulated-kubernetes-provider.md from page.md and the code.

Usage: python -m sandbox.plugins.kubernetes.document
"""

from __future__ import annotations

from pathlib import Path

from sandbox.node import pod_context, pod_runner
from sandbox.paths import CHECKOUT
from sandbox.plugins.kubernetes import awaits, kinds, provider

PAGE = CHECKOUT / "docs/emulated-kubernetes-provider.md"
TEMPLATE = Path(__file__).with_name("page.md")


def page() -> str:
    waits = awaits.conditions()
    rows = [
        (rule.kind.kind, waits.get(rule.kind.kind, "the API server has accepted the object"), ", ".join(rule.replacing))
        for rule in kinds.RULES
    ]
    return TEMPLATE.read_text().format(
        settings=" and ".join(f"`{name}`" for name in provider.SETTINGS),
        annotations=" and ".join(f"`{name}`" for name in awaits.ANNOTATIONS),
        kinds="\n".join(f"| {kind} | {condition} | {fields} |" for kind, condition, fields in rows),
        pod_fields=", ".join(sorted(pod_context.POD_FIELDS - {"restartPolicy", "securityContext"})),
        ignored_pod_fields=", ".join(sorted(pod_context.IGNORED_POD_FIELDS)),
        container_fields=", ".join(sorted(pod_runner.SUPPORTED_FIELDS - {"name", "securityContext"})),
        ignored_fields=", ".join(sorted(pod_runner.IGNORED_FIELDS)),
        security_context=", ".join(sorted(pod_runner.SECURITY_CONTEXT)),
    )


if __name__ == "__main__":
    PAGE.write_text(page())
