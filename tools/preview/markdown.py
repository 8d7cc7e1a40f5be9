"""Turns the events of a preview into a Markdown comment: events -> Summary -> text. No files, no network."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

# The longest comment that GitHub accepts.
LIMIT = 65_536
# The most dangerous change comes first.
ORDER = ("replace", "delete", "update", "create")
PAST = {"replace": "replaced", "delete": "deleted", "update": "updated", "create": "created"}
# The last message of every failed preview. It gives no reason.
GENERIC = "preview failed"
# Maximum length of each list, and of each name in it. The diff uses the rest of the comment.
LIST, CELL = 14_000, 240
HIDDEN = "[secret]"


@dataclass(frozen=True)
class Change:
    """One resource that would change, and the properties that cause it."""

    kind: str
    name: str
    type: str
    because: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A policy rule that the change violates."""

    mandatory: bool
    rule: str
    name: str
    message: str


@dataclass(frozen=True)
class Notice:
    """An error or a warning of the preview."""

    severity: str
    name: str
    message: str


@dataclass(frozen=True)
class Summary:
    changes: tuple[Change, ...]
    unchanged: int
    findings: tuple[Finding, ...]
    notices: tuple[Notice, ...]
    policies_ran: bool
    complete: bool

    @property
    def passed(self) -> bool:
        return self.complete and not any(finding.mandatory for finding in self.findings)


def summarise(events: Iterable[Mapping[str, Any]], exit_code: int, error_output: str) -> Summary:
    """Count and sort the events of one preview. `error_output` is shown if the engine failed without an error event."""
    steps, findings, notices = [], [], []
    packs: Mapping[str, str] = {}
    for event in events:
        if step := event.get("resourcePreEvent"):
            steps.append(step["metadata"])
        elif found := event.get("policyEvent"):
            findings.append(
                Finding(
                    mandatory=found["enforcementLevel"] == "mandatory",
                    rule=found["policyName"],
                    name=_name(found.get("resourceUrn", "")),
                    message=_plain(found["message"]),
                )
            )
        elif (shown := event.get("diagnosticEvent")) and shown["severity"] in ("error", "warning"):
            notices.append(Notice(shown["severity"], _name(shown.get("urn", "")), _plain(shown["message"])))
        elif summary := event.get("summaryEvent"):
            packs = summary.get("PolicyPacks") or {}
    rank = {kind: place for place, kind in enumerate(ORDER)}
    # A replacement also has one step that creates and one that deletes. They are not logical steps.
    steps = [step for step in steps if step.get("logical")]
    changes = [_change(step) for step in steps if step["op"] != "same"]
    reasons = [notice for notice in notices if notice.message != GENERIC]
    broken = any(finding.mandatory for finding in findings)
    if exit_code and not broken and not any(notice.severity == "error" for notice in reasons):
        reasons.append(Notice("error", "", error_output.strip().removeprefix("error: ") or GENERIC))
    return Summary(
        changes=tuple(sorted(changes, key=lambda c: (rank.get(c.kind, len(rank)), c.name))),
        unchanged=sum(step["op"] == "same" for step in steps),
        findings=tuple(sorted(dict.fromkeys(findings), key=lambda f: (not f.mandatory, f.rule, f.name))),
        notices=tuple(sorted(dict.fromkeys(reasons), key=lambda n: n.severity)),
        policies_ran=bool(packs or findings),
        # A violated mandatory rule makes the engine fail at the end of a complete preview.
        complete=exit_code == 0 or (broken and not any(n.severity == "error" for n in reasons)),
    )


def marker(stack: str) -> str:
    """The invisible first line, which identifies the comment of the stack."""
    return f"<!-- paddle-on-aws preview of {stack} -->"


def render(stack: str, commit: str, summary: Summary, price: str, diff: str) -> str:
    """The comment. The diff is cut so that GitHub accepts the length."""
    parts = [marker(stack), f"### Preview of `{stack}`", _headline(summary)]
    if errors := [f"{n.severity}: {n.name + ': ' if n.name else ''}{n.message}" for n in summary.notices]:
        parts.append(_fenced("", "\n".join(_clip(line, 4 * CELL) for line in _capped(errors))))
    if rows := [_row(c) for c in summary.changes if c.kind != "create"]:
        table = ["| | resource | type | changed properties |", "| --- | --- | --- | --- |", *_capped(rows)]
        parts.append("\n".join(table))
    parts += [_policy(summary), f"**Price:** {_code(price)}"]
    above, below = "\n\n".join(parts), f"<sub>Commit {commit}.</sub>" if commit else ""
    room = LIMIT - len(above) - len(below) - len(_folded("")) - 100
    return "\n\n".join(filter(None, (above, _folded(_cut(_highlighted(diff), room)), below))) + "\n"


def without(secrets: Sequence[str], summary: Summary) -> Summary:
    """The summary with these values hidden in every text that can contain them."""

    def hide(text: str) -> str:
        return redact(text, secrets)

    return replace(
        summary,
        changes=tuple(
            replace(c, name=hide(c.name), because=tuple(hide(path) for path in c.because)) for c in summary.changes
        ),
        findings=tuple(replace(f, name=hide(f.name), message=hide(f.message)) for f in summary.findings),
        notices=tuple(replace(n, name=hide(n.name), message=hide(n.message)) for n in summary.notices),
    )


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without these values, plain and in the engine's quotes. The longest value is replaced first."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        quoted = secret.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        # The program also builds an ARN from s3://bucket/key.
        forms = (secret, quoted, secret.partition("://")[2], *secret.splitlines())
        for form in filter(str.strip, forms):
            text = text.replace(form, HIDDEN)
    # A stack of an older version can contain a presigned address as plain text.
    return re.sub(r"(https?://[^\s?#\"'<>]+)[?#][^\s\"'<>]*", rf"\1?{HIDDEN}", text)


def _change(step: Mapping[str, Any]) -> Change:
    detailed: Mapping[str, Mapping[str, Any]] = step.get("detailedDiff") or {}
    because: Sequence[str] = ()
    if step["op"] == "replace":
        forcing = [path for path, diff in detailed.items() if diff["diffKind"].endswith("-replace")]
        because = forcing or step.get("keys") or ()
    elif step["op"] == "update":
        because = list(detailed) or step.get("diffs") or ()
    # A diff also lists outputs that change with the inputs.
    inputs = {name for state in ("old", "new") for name in (step.get(state) or {}).get("inputs") or ()}
    because = [path for path in because if re.split(r"[.\[]", path)[0] in inputs]
    return Change(step["op"], _name(step["urn"]), step["type"], tuple(sorted(because)))


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _plain(message: str) -> str:
    """The message without the colour codes of the engine."""
    return re.sub(r"<\{%.*?%\}>", "", message).strip()


def _headline(summary: Summary) -> str:
    counts = Counter(change.kind for change in summary.changes)
    counted = {kind: f"{counts[kind]} {PAST.get(kind, kind)}" for kind in (*ORDER, *sorted(counts)) if counts[kind]}
    loud = ", ".join(text for kind, text in counted.items() if kind in ("replace", "delete"))
    quiet = [text for kind, text in counted.items() if kind not in ("replace", "delete")]
    line = ", ".join([*([f"**{loud}**"] if loud else []), *quiet, f"{summary.unchanged} unchanged"]) + "."
    if not summary.complete:
        return f"**The preview failed.** Up to the error: {line}"
    return line if summary.changes else f"No changes: {line}"


def _row(change: Change) -> str:
    because = ", ".join(_code(path) for path in change.because[:6]) + (", ..." if len(change.because) > 6 else "")
    because = because or ("a resource that it depends on" if change.kind == "replace" else "")
    kind = f"**{change.kind}**" if change.kind in ("replace", "delete") else change.kind
    return f"| {kind} | {_code(change.name)} | {_code(change.type)} | {because} |"


def _policy(summary: Summary) -> str:
    if not summary.findings:
        return "**Policy:** " + ("all rules passed." if summary.policies_ran else "the rules did not run.")
    mandatory = sum(finding.mandatory for finding in summary.findings)
    counts = [f"{mandatory} violated"] * bool(mandatory)
    counts += [f"{len(summary.findings) - mandatory} advisory"] * (mandatory < len(summary.findings))
    lines = [
        f"- {'**violated**' if f.mandatory else 'advisory'} {_code(f.rule)}{f' by {_code(f.name)}' if f.name else ''}: "
        f"{_escaped(_clip(' '.join(f.message.split()), 2 * CELL))}"
        for f in summary.findings
    ]
    return "\n".join([f"**Policy:** {', '.join(counts)}.", "", *_capped(lines)])


def _capped(lines: Sequence[str]) -> list[str]:
    """The lines that fit into a list, and the number of the others."""
    lengths = accumulate(len(line) + 1 for line in lines)
    kept = [line for line, length in zip(lines, lengths, strict=True) if length <= LIST]
    return kept if len(kept) == len(lines) else [*kept, f"... and {len(lines) - len(kept)} more"]


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 4] + " ..."


def _code(text: str) -> str:
    """Inline code, without characters that would end it or the table around it."""
    return f"`{_clip(re.sub(r'[`|]|[^ -~]', '', text), CELL)}`"


def _escaped(text: str) -> str:
    """Text without markup and without mentions."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text).replace("@", "@\u200b")


def _highlighted(diff: str) -> str:
    """The diff with the sign of each line in the first column, where GitHub expects it."""
    signs = {"+": "+", "-": "-", "~": "!", "+-": "!", "-+": "!", "++": "+", "--": "-"}
    lines = []
    for line in diff.splitlines():
        if line.startswith("@ "):
            continue  # progress
        sign = re.match(r" +([-+~]{1,2})(?= |[a-z])", line)
        lines.append(signs[sign[1]] + line[1:] if sign and sign[1] in signs else line)
    return "\n".join(lines)


def _folded(text: str) -> str:
    return f"<details><summary>Diff</summary>\n\n{_fenced('diff', text)}\n\n</details>"


def _fenced(language: str, text: str) -> str:
    """A code block. Its fence is longer than any fence in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def _cut(text: str, room: int) -> str:
    """The complete lines that fit."""
    # The fence uses the length of the longest run of backticks twice.
    room -= 2 * max([0, *(len(run) for run in re.findall(r"`{3,}", text))])
    if len(text) <= room:
        return text
    kept = text[:room].rpartition("\n")[0]
    missing = text.count("\n") - kept.count("\n")
    return f"{kept}\n... and {missing} more lines. The log of the workflow shows all lines."
