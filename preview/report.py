"""What a preview found, as one Markdown comment: engine events -> Summary -> text. No files, no network."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

# GitHub refuses a longer comment.
LIMIT = 65_536
# What a reader must not miss comes first.
ORDER = ("replace", "delete", "update", "create")
PAST = {"replace": "replaced", "delete": "deleted", "update": "updated", "create": "created"}
# What the engine says last whatever went wrong.
GENERIC = "preview failed"
# How much of it each list may take, and a name in a list; the diff gets the rest.
LIST, CELL = 14_000, 240
HIDDEN = "[secret]"


@dataclass(frozen=True)
class Change:
    """One resource that would not stay as it is, and the properties that are the reason."""

    kind: str
    name: str
    type: str
    because: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A policy that does not hold."""

    mandatory: bool
    rule: str
    name: str
    message: str


@dataclass(frozen=True)
class Notice:
    """An error or a warning of the preview itself."""

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


def summarise(events: Iterable[Mapping[str, Any]], exit_code: int, complaint: str) -> Summary:
    """The engine's events of one preview, counted and put in order; `complaint` tells what no event did."""
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
        elif (said := event.get("diagnosticEvent")) and said["severity"] in ("error", "warning"):
            notices.append(Notice(said["severity"], _name(said.get("urn", "")), _plain(said["message"])))
        elif summary := event.get("summaryEvent"):
            packs = summary.get("PolicyPacks") or {}
    rank = {kind: place for place, kind in enumerate(ORDER)}
    # The two halves of a replacement are steps as well, but not logical ones.
    steps = [step for step in steps if step.get("logical")]
    changes = [_change(step) for step in steps if step["op"] != "same"]
    told = [notice for notice in notices if notice.message != GENERIC]
    broken = any(finding.mandatory for finding in findings)
    if exit_code and not broken and not any(notice.severity == "error" for notice in told):
        told.append(Notice("error", "", complaint.strip().removeprefix("error: ") or GENERIC))
    return Summary(
        changes=tuple(sorted(changes, key=lambda c: (rank.get(c.kind, len(rank)), c.name))),
        unchanged=sum(step["op"] == "same" for step in steps),
        findings=tuple(sorted(dict.fromkeys(findings), key=lambda f: (not f.mandatory, f.rule, f.name))),
        notices=tuple(sorted(dict.fromkeys(told), key=lambda n: n.severity)),
        policies_ran=bool(packs or findings),
        # A mandatory rule that does not hold ends the preview with an error, and yet the preview is whole.
        complete=exit_code == 0 or (broken and not any(n.severity == "error" for n in told)),
    )


def marker(stack: str) -> str:
    """The invisible first line that the stack's comment is found again by."""
    return f"<!-- paddle-on-aws preview of {stack} -->"


def render(stack: str, commit: str, summary: Summary, price: str, diff: str) -> str:
    """The whole comment, never longer than GitHub takes: what does not fit is cut from the diff."""
    parts = [marker(stack), f"### Preview of `{stack}`", _headline(summary)]
    if errors := [f"{n.severity}: {n.name + ': ' if n.name else ''}{n.message}" for n in summary.notices]:
        parts.append(_fenced("", "\n".join(_clip(line, 4 * CELL) for line in _capped(errors))))
    if rows := [_row(c) for c in summary.changes if c.kind != "create"]:
        table = ["| | resource | type | because of |", "| --- | --- | --- | --- |", *_capped(rows)]
        parts.append("\n".join(table))
    parts += [_policy(summary), f"**Price:** {_code(price)}"]
    above, below = "\n\n".join(parts), f"<sub>Commit {commit}.</sub>" if commit else ""
    room = LIMIT - len(above) - len(below) - len(_folded("")) - 100
    return "\n\n".join(filter(None, (above, _folded(_cut(_highlighted(diff), room)), below))) + "\n"


def without(secrets: Sequence[str], summary: Summary) -> Summary:
    """The summary with these values hidden wherever text of the stack's own is shown."""

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
    """The text without these values, the longest first, as they stand and as the engine quotes them."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        quoted = secret.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        # Of s3://bucket/key, the program also makes an ARN.
        forms = (secret, quoted, secret.partition("://")[2], *secret.splitlines())
        for form in filter(str.strip, forms):
            text = text.replace(form, HIDDEN)
    return text


def _change(step: Mapping[str, Any]) -> Change:
    detailed: Mapping[str, Mapping[str, Any]] = step.get("detailedDiff") or {}
    because: Sequence[str] = ()
    if step["op"] == "replace":
        forcing = [path for path, diff in detailed.items() if diff["diffKind"].endswith("-replace")]
        because = forcing or step.get("keys") or ()
    elif step["op"] == "update":
        because = list(detailed) or step.get("diffs") or ()
    return Change(step["op"], _name(step["urn"]), step["type"], tuple(sorted(because)))


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _plain(message: str) -> str:
    """A message without the engine's colour marks."""
    return re.sub(r"<\{%.*?%\}>", "", message).strip()


def _headline(summary: Summary) -> str:
    counts = Counter(change.kind for change in summary.changes)
    told = {kind: f"{counts[kind]} {PAST.get(kind, kind)}" for kind in (*ORDER, *sorted(counts)) if counts[kind]}
    loud = ", ".join(text for kind, text in told.items() if kind in ("replace", "delete"))
    quiet = [text for kind, text in told.items() if kind not in ("replace", "delete")]
    line = ", ".join([*([f"**{loud}**"] if loud else []), *quiet, f"{summary.unchanged} unchanged"]) + "."
    if not summary.complete:
        return f"**The preview failed**; as far as it came: {line}"
    return line if summary.changes else f"Nothing would change: {line}"


def _row(change: Change) -> str:
    because = ", ".join(_code(path) for path in change.because[:6]) + (", ..." if len(change.because) > 6 else "")
    because = because or ("what it depends on" if change.kind == "replace" else "")
    kind = f"**{change.kind}**" if change.kind in ("replace", "delete") else change.kind
    return f"| {kind} | {_code(change.name)} | {_code(change.type)} | {because} |"


def _policy(summary: Summary) -> str:
    if not summary.findings:
        return "**Policy:** " + ("every rule holds." if summary.policies_ran else "the rules were not run.")
    mandatory = sum(finding.mandatory for finding in summary.findings)
    counts = [f"{mandatory} broken"] * bool(mandatory)
    counts += [f"{len(summary.findings) - mandatory} advised"] * (mandatory < len(summary.findings))
    lines = [
        f"- {'**broken**' if f.mandatory else 'advised'} {_code(f.rule)}{f' by {_code(f.name)}' if f.name else ''}: "
        f"{_escaped(_clip(' '.join(f.message.split()), 2 * CELL))}"
        for f in summary.findings
    ]
    return "\n".join([f"**Policy:** {', '.join(counts)}.", "", *_capped(lines)])


def _capped(lines: Sequence[str]) -> list[str]:
    """As many of the lines as a list may hold, and how many there are besides."""
    lengths = accumulate(len(line) + 1 for line in lines)
    kept = [line for line, length in zip(lines, lengths, strict=True) if length <= LIST]
    return kept if len(kept) == len(lines) else [*kept, f"... and {len(lines) - len(kept)} more"]


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 4] + " ..."


def _code(text: str) -> str:
    """A word in code type; what would end it, or the table around it, is left out."""
    return f"`{_clip(re.sub(r'[`|]|[^ -~]', '', text), CELL)}`"


def _escaped(text: str) -> str:
    """Prose that can be neither markup nor a mention."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text).replace("@", "@\u200b")


def _highlighted(diff: str) -> str:
    """The engine's diff with each line's sign in the first column, where GitHub looks for it."""
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
    """A code block that nothing within it can end."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def _cut(text: str, room: int) -> str:
    """As many whole lines as there is room for."""
    # A fence is as long as the longest run of backticks within, twice.
    room -= 2 * max([0, *(len(run) for run in re.findall(r"`{3,}", text))])
    if len(text) <= room:
        return text
    kept = text[:room].rpartition("\n")[0]
    return f"{kept}\n... and {text.count(chr(10)) - kept.count(chr(10))} more lines: the run's log has them all"
