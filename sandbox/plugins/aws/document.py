"""Writes docs/emulated-aws-provider.md from the tables: `python -m sandbox.plugins.aws.document`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.cloud.services import EMULATED_SERVICES
from sandbox.paths import CHECKOUT
from sandbox.plugins.aws import provider
from sandbox.plugins.aws.cloud import SETTINGS
from sandbox.plugins.aws.invokes import INVOKES
from sandbox.plugins.aws.props import REPLACES, REQUIRED, Prop
from sandbox.plugins.aws.table import ROWS

PAGE = CHECKOUT / provider.PAGE
INTRODUCTION = """\
# The emulated AWS and the emulated AWS provider

The AWS of the sandbox is the moto server on 127.0.0.1 (`sandbox/cloud/server.py`). The patches in
`sandbox/cloud/patches/` (one file per service) add what moto lacks, and correct what it answers differently from AWS.
There are no clusters, nodes or disks behind its answers.

The sandbox uses the official `pulumi-resource-aws` if it can find or download it. Otherwise it uses the emulated
provider in `sandbox/plugins/aws`, and `make sandbox` reports this. The emulated provider supports the types below. It
rejects all other types, properties, settings and functions.

It does everything through the AWS API, and it reads the result back. If AWS has stored other values than requested,
the create or update fails, and the engine still stores what exists. It waits until a resource is ready or deleted. A
delete is repeated for up to one minute while another resource still uses the deleted one. The provider does not read
AWS profiles or AWS environment variables, and it only connects to this machine.

Names, defaults, default tags, forced replacements and IDs are those of the official provider of the same version. Not
supported: names from prefixes (`namePrefix`), policies given as objects instead of JSON, and the outputs listed below.

`python -m sandbox.plugins.aws.document` writes this page from the tables in the code.
"""


def page() -> str:
    lines = [INTRODUCTION, "## Types", ""]
    lines += [
        "Properties in **bold** are required. A change of one in *italics*, or of `region`, forces a replacement.",
        "",
    ]
    lines += ["| type | inputs | outputs that are missing |", "|---|---|---|"]
    for token, row in sorted(ROWS.items()):
        inputs = ", ".join(_names(row.inputs)) + (", region" if "region" in row.inputs else "")
        lines.append(f"| {_short(token)} | {inputs} | {', '.join(row.withheld)} |")
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
        if name == "region":
            continue
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
