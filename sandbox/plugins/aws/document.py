"""Writes docs/emulated-aws-provider.md from page.md and the tables: `python -m sandbox.plugins.aws.document`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.cloud.services import EMULATED_SERVICES
from sandbox.paths import CHECKOUT
from sandbox.plugins.aws import provider
from sandbox.plugins.aws.cloud import SETTINGS
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import REPLACES, REQUIRED, Prop
from sandbox.plugins.aws.table import ROWS

PAGE = CHECKOUT / provider.PAGE


def page() -> str:
    lines = [Path(__file__).with_name("page.md").read_text(), "## Types", ""]
    lines += [
        "Properties in **bold** are required. A change of one in *italics* forces a replacement.",
        "",
    ]
    lines += ["| type | inputs |", "|---|---|"]
    for token, row in sorted(ROWS.items()):
        lines.append(f"| {_short(token)} | {', '.join(_names(row.inputs))} |")
    lines += ["", "## Functions", "", "| function | inputs |", "|---|---|"]
    for token, invoke in sorted(INVOKES.items()):
        lines.append(f"| {_short(token)} | {', '.join(sorted(invoke.inputs)) or 'none'} |")
    lines += [
        "",
        "## Settings",
        "",
        f"`aws:` {', '.join(sorted(SETTINGS))}; endpoints of {', '.join(sorted(EMULATED_SERVICES))}.",
    ]
    return "\n".join(lines) + "\n"


def _names(props: Mapping[str, Prop]) -> Iterator[str]:
    for name, prop in props.items():
        mark = ("**" if REQUIRED in prop.how else "") + ("*" if REPLACES in prop.how else "")
        members = prop.item.members if prop.item else prop.members
        yield f"{mark}{name}{mark}" + (f" ({', '.join(_names(members))})" if members else "")


def _short(token: str) -> str:
    """The name in a program: eks.Cluster for aws:eks/cluster:Cluster."""
    _, path, name = token.split(":")
    module = path.split("/")[0]
    return name if module == "index" else f"{module}.{name}"


if __name__ == "__main__":
    PAGE.write_text(page())
