"""The comment on a pull request, from the engine's events to Markdown."""

import re
from typing import Any

import pytest

from tools.preview.markdown import LIMIT, redact, render, summarise, without
from tools.preview.run import secret_values

PREFIX = "urn:pulumi:dev::paddle-on-aws::paddle:infra:Storage$"


def step(op: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    changed = [*more.get("keys", ()), *more.get("diffs", ()), *more.get("detailedDiff", ())]
    inputs = {re.split(r"[.\[]", path)[0]: "any" for path in changed}
    metadata = {"op": op, "urn": f"{PREFIX}{kind}::{name}", "type": kind, "logical": True, "detailedDiff": None}
    return {"sequence": 1, "resourcePreEvent": {"metadata": {**metadata, "new": {"inputs": inputs}, **more}}}


def finding(rule: str, name: str, message: str, level: str = "mandatory") -> dict[str, Any]:
    violation = {"resourceUrn": f"{PREFIX}x::{name}", "message": message, "policyName": rule, "enforcementLevel": level}
    return {"policyEvent": violation}


def diagnostic(message: str, severity: str = "error", name: str = "") -> dict[str, Any]:
    return {"diagnosticEvent": {"urn": f"{PREFIX}x::{name}" if name else "", "message": message, "severity": severity}}


SUMMARY = {"summaryEvent": {"resourceChanges": {}, "PolicyPacks": {"paddle-on-aws": "1.0.0"}}}
REPLACES_EFS = [
    step("same", "pulumi:pulumi:Stack", "paddle-on-aws-dev"),
    step("same", "pulumi:providers:aws", "default", logical=False),
    step("create", "aws:ec2/eip:Eip", "nat-0"),
    step("update", "aws:kms/key:Key", "key", diffs=["policy"]),
    step("replace", "kubernetes:batch/v1:Job", "paddle-data"),
    step("create-replacement", "kubernetes:batch/v1:Job", "paddle-data", logical=False, keys=["spec.template"]),
    step("delete-replaced", "kubernetes:batch/v1:Job", "paddle-data", logical=False),
    step(
        "replace",
        "aws:efs/fileSystem:FileSystem",
        "efs",
        keys=["kmsKeyId"],
        detailedDiff={"kmsKeyId": {"diffKind": "update-replace"}, "tags": {"diffKind": "update"}},
    ),
    step("delete", "aws:ec2/keyPair:KeyPair", "worker-key"),
    SUMMARY,
]
DIFF = """Previewing update (dev):
@ previewing update....
  pulumi:pulumi:Stack: (same)
    +-aws:efs/fileSystem:FileSystem: (replace)
      ~ kmsKeyId: "a" => "b"
    - aws:ec2/keyPair:KeyPair: (delete)
    + aws:ec2/eip:Eip: (create)
Resources:
    + 1 to create
"""


def test_replaced_and_deleted_resources_come_first() -> None:
    text = render("dev", "abc1234", summarise(REPLACES_EFS, 0, ""), "$1.00 a month", DIFF)
    assert (
        text
        == """<!-- paddle-on-aws preview of dev -->

### Preview of `dev`

**2 replaced, 1 deleted**, 1 updated, 1 created, 1 unchanged.

| | resource | type | changed properties |
| --- | --- | --- | --- |
| **replace** | `efs` | `aws:efs/fileSystem:FileSystem` | `kmsKeyId` |
| **replace** | `paddle-data` | `kubernetes:batch/v1:Job` | a resource that it depends on |
| **delete** | `worker-key` | `aws:ec2/keyPair:KeyPair` |  |
| update | `key` | `aws:kms/key:Key` | `policy` |

**Policy:** all rules passed.

**Price:** `$1.00 a month`

<details><summary>Diff</summary>

```diff
Previewing update (dev):
  pulumi:pulumi:Stack: (same)
!   +-aws:efs/fileSystem:FileSystem: (replace)
!     ~ kmsKeyId: "a" => "b"
-   - aws:ec2/keyPair:KeyPair: (delete)
+   + aws:ec2/eip:Eip: (create)
Resources:
+   + 1 to create
```

</details>

<sub>Commit abc1234.</sub>
"""
    )


def test_properties_that_aws_computes_are_not_listed_as_changes() -> None:
    """The diff of the published plugin for a larger disk and a removed key pair."""
    changed = {
        "blockDeviceMappings[0].ebs.volumeSize": {"diffKind": "update", "inputDiff": False},
        "defaultVersion": {"diffKind": "update", "inputDiff": False},
        "keyName": {"diffKind": "delete", "inputDiff": False},
        "latestVersion": {"diffKind": "update", "inputDiff": False},
    }
    states = {
        "old": {"inputs": {"blockDeviceMappings": [], "keyName": "k"}, "outputs": {"defaultVersion": 1}},
        "new": {"inputs": {"blockDeviceMappings": []}, "outputs": {"latestVersion": 1}},
    }
    event = step("update", "aws:ec2/launchTemplate:LaunchTemplate", "workers", detailedDiff=changed, **states)
    (change,) = summarise([event], 0, "").changes
    assert change.because == ("blockDeviceMappings[0].ebs.volumeSize", "keyName")


def test_a_preview_without_changes() -> None:
    found = summarise([step("same", "pulumi:pulumi:Stack", "s"), {"summaryEvent": {}}], 0, "")
    text = render("dev", "", found, "", "")
    assert "\nNo changes: 1 unchanged.\n" in text
    assert "**Policy:** the rules did not run." in text
    assert found.passed


def test_a_violated_rule_is_listed_and_fails_a_complete_preview() -> None:
    events = [
        *REPLACES_EFS,
        finding("no-open-ingress", "efs-from-workers", "No ingress.\ncidrIpv4 allows @all <b>|"),
        finding("tags-present", "vpc", "no tags", level="advisory"),
        diagnostic("preview failed\n"),
    ]
    found = summarise(events, 1, "")
    text = render("dev", "", found, "", "")
    assert not found.passed
    assert summarise([*REPLACES_EFS, finding("r", "vpc", "m", level="advisory")], 0, "").passed
    assert "failed" not in text, "the last message of the engine gives no reason"
    assert (
        "**Policy:** 1 violated, 1 advisory.\n\n"
        "- **violated** `no-open-ingress` by `efs-from-workers`: "
        "No ingress. cidrIpv4 allows @\u200ball \\<b\\>\\|\n"
        "- advisory `tags-present` by `vpc`: no tags\n"
    ) in text


@pytest.mark.parametrize(
    ("events", "error_output", "shown"),
    [
        (
            [diagnostic("<{%fg 1%}>Nothing was made<{%reset%}>\n"), diagnostic("preview failed")],
            "error: x",
            "error: Nothing was made",
        ),
        ([diagnostic("cannot replace", name="efs")], "", "error: efs: cannot replace"),
        ([], "error: no stack named 'dev' found\n", "error: no stack named 'dev' found"),
        ([diagnostic("careful", "warning")], "it died", "error: it died\nwarning: careful"),
        ([finding("r", "vpc", "m"), diagnostic("and the program died")], "", "error: and the program died"),
        ([], "", "error: preview failed"),
    ],
)
def test_a_failure_is_shown_with_its_reason(events: list[dict[str, Any]], error_output: str, shown: str) -> None:
    found = summarise(events, 255, error_output)
    text = render("dev", "", found, "", "")
    assert not found.passed
    assert f"**The preview failed.** Up to the error: 0 unchanged.\n\n```\n{shown}\n```\n" in text


def test_an_unknown_operation_is_counted_too() -> None:
    text = render("dev", "", summarise([step("import", "aws:s3/bucket:Bucket", "old")], 0, ""), "", "")
    assert "1 import, 0 unchanged." in text
    assert "| import | `old` |" in text


LONG = "x" * 1000


@pytest.mark.parametrize(
    "diff",
    ["y" * 100_000, "+ line\n" * 40_000, "```\n" * 30_000, "`" * 70_000, "`" * 5000 + "\nx" * 40_000, "short"],
    ids=range(6),
)
def test_never_longer_than_github_accepts(diff: str) -> None:
    many: list[dict[str, Any]] = [step("replace", LONG, f"{i}{LONG}", keys=[LONG] * 20) for i in range(500)]
    many += [finding(LONG, LONG, f"{i}<{LONG}" * 9) for i in range(500)]
    many += [diagnostic(f"{i} {LONG}", "warning", name=LONG) for i in range(500)]
    text = render("dev", "abc", summarise(many, 1, ""), LONG, diff)
    assert len(text) <= LIMIT
    assert len(re.findall(r"^\.\.\. and 4\d\d more$", text, re.MULTILINE)) == 3, (
        "each list counts the lines that it leaves out"
    )
    assert text.endswith("</details>\n\n<sub>Commit abc.</sub>\n"), "the details element is always closed"


def test_a_cut_diff_has_complete_lines_and_counts_the_missing_ones() -> None:
    lines = [f"line {i} {'z' * 90}" for i in range(2000)]
    text = render("dev", "", summarise([], 0, ""), "", "\n".join(lines))
    kept = [line for line in text.splitlines() if line.startswith("line ")]
    assert kept == lines[: len(kept)]
    assert LIMIT - len(text) < 300
    assert f"... and {2000 - len(kept)} more lines" in text


def test_nothing_in_the_diff_ends_its_code_block() -> None:
    text = render("dev", "", summarise([], 0, ""), "", "a\n```\n````\nb")
    assert "\n`````diff\na\n```\n````\nb\n`````\n" in text


def test_a_name_cannot_break_the_table() -> None:
    text = render("dev", "", summarise([step("delete", "t", "a`|\n# b")], 0, ""), "", "")
    assert "| **delete** | `a# b` | `t` |  |" in text


def test_secrets_appear_nowhere() -> None:
    secret = 'pa"ss\nword-two'
    events = [
        step("delete", "t", f"key-{secret}"),
        step("update", "t", "u", diffs=[f"data.{secret}"]),
        finding("r", secret, f"{secret} is weak"),
        diagnostic(f"cannot use {secret}", name=secret),
    ]
    found = without([secret, ""], summarise(events, 1, secret))
    diff = redact(f'+ a: "{secret}" b: "pa\\"ss\\nword-two"\n+ word-two', [secret])
    text = render("dev", "", found, redact(f"unknown: {secret}", [secret]), diff)
    for part in ('pa"ss', 'pa\\"ss', "word-two"):
        assert part not in text
    assert text.count("[secret]") + text.count("\\[secret\\]") >= 6


def test_a_secret_that_is_the_start_of_another_secret() -> None:
    assert redact("hunter hunter22", ["hunter", "hunter22"]) == "[secret] [secret]"


def test_an_s3_address_is_hidden_in_its_arn_too() -> None:
    shown = redact('DATA_SOURCE: "s3://ours/words" Resource: "arn:aws:s3:::ours/words"', ["s3://ours/words"])
    assert shown == 'DATA_SOURCE: "[secret]" Resource: "arn:aws:s3:::[secret]"'


def test_only_secure_values_of_a_stack_file_are_hidden() -> None:
    encrypted = {"a": {"secure": "v1:x"}, "b": {"c": {"secure": "v1:y"}, "d": 2}, "e": [{"secure": "v1:z"}, "open"]}
    plain = {"a": "one", "b": {"c": 7, "d": 2}, "e": ["three", "open"]}
    assert secret_values(encrypted, plain) == ["one", "7", "three"]
