"""Writes docs/emulated-aws-provider.md from the table: `python -m sandbox.plugins.aws.document`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.cloud.services import SERVICES
from sandbox.plugins.aws.cloud import SETTINGS
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import REPLACES, REQUIRED, Prop
from sandbox.plugins.aws.table import ROWS

PAGE = Path(__file__).resolve().parents[3] / "docs/emulated-aws-provider.md"
INTRODUCTION = """\
# What stands in for AWS and its plugin

The sandbox's AWS is moto's server on 127.0.0.1 (`sandbox/cloud/server.py`), with what moto lacks or answers otherwise
than AWS put right at its start, a file a service, in `sandbox/cloud/patches/`. No cluster, node or disk is behind it.

The sandbox runs the published `pulumi-resource-aws` where it can be had. Otherwise `sandbox/plugins/aws` answers the
engine in its place, and says so. It knows the types below and refuses any other type, property, setting or function.

What it does is done by the AWS API, and what it reports is read back from there: a creation or an update whose result
AWS tells otherwise than asked is an error, and the engine remembers what exists all the same. It waits until a thing
is ready or gone, and up to a minute for what still holds on to it. It reads no AWS profile and no environment, and
talks to this machine only.

Names, defaults, default tags, forced replacements and ids are those of the published plugin of this version. Names
made from prefixes (`namePrefix`), policies given as objects instead of JSON, and the outputs named below are not there.

This page is written by `python -m sandbox.plugins.aws.document` from the tables it tells of.
"""


def page() -> str:
    lines = [INTRODUCTION, "## Types", ""]
    lines += [
        "**Bold** is required, *italic* forces a replacement when changed; `region` does so wherever it is accepted.",
        "",
    ]
    lines += ["| type | accepted | outputs not given |", "|---|---|---|"]
    for token, row in sorted(ROWS.items()):
        accepted = ", ".join(_told(row.inputs)) + (", region" if "region" in row.inputs else "")
        lines.append(f"| {_short(token)} | {accepted} | {', '.join(row.withheld)} |")
    lines += ["", "## Functions", "", "| function | accepted |", "|---|---|"]
    for token, invoke in sorted(INVOKES.items()):
        lines.append(f"| {_short(token)} | {', '.join(sorted(invoke.inputs)) or 'nothing'} |")
    lines += [
        "",
        "## Settings",
        "",
        f"`aws:` {', '.join(sorted(SETTINGS))}; endpoints of {', '.join(sorted(SERVICES))}.",
    ]
    return "\n".join(lines) + "\n"


def _told(props: Mapping[str, Prop]) -> Iterator[str]:
    for name, prop in props.items():
        if name == "region":
            continue
        mark = ("**" if REQUIRED in prop.how else "") + ("*" if REPLACES in prop.how else "")
        members = prop.item.members if prop.item else prop.members
        yield f"{mark}{name}{mark}" + (f" ({', '.join(_told(members))})" if members else "")


def _short(token: str) -> str:
    """aws:eks/cluster:Cluster as a program writes it: eks.Cluster."""
    _, path, name = token.split(":")
    module = path.split("/")[0]
    return name if module == "index" else f"{module}.{name}"


if __name__ == "__main__":
    PAGE.write_text(page())
