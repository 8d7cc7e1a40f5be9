"""Draws a snapshot in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tools.watch import words
from tools.watch.snapshot import DONE, FAILED, READY, RUNNING, WAITING, Job, Snapshot
from tools.watch.training_log import Progress, share_done

STYLES = {READY: "green", DONE: "green", RUNNING: "cyan", WAITING: "yellow", FAILED: "bold red"}
MOST_NODES, MOST_NUMBERS, MOST_ATTEMPTS = 6, 6, 4


def draw(snapshot: Snapshot, width: int) -> RenderableType:
    """The whole picture for a terminal of this width."""
    parts = [_head(snapshot), *_operations(snapshot)]
    if snapshot.nodes:
        parts.append(_panel("Nodes", _nodes(snapshot)))
    if snapshot.jobs:
        parts.append(_panel("Jobs", _jobs(snapshot)))
    progress = snapshot.progress.get("training", Progress())
    if progress.checkpoints or progress.attempts:
        parts.append(_panel("Training", _training(progress, snapshot.now, width)))
    parts += [Text(each, style="bold red") for each in snapshot.trouble]
    if words.is_finished(snapshot):
        parts.append(_ready(snapshot))
    return Group(*parts)


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", box=box.ROUNDED, border_style="dim")


def _head(snapshot: Snapshot) -> Text:
    names = snapshot.names
    where = "in the sandbox" if names.sandbox else f"on AWS, {names.region}"
    text = Text.assemble((f"Stack {names.stack}", "bold"), f" {where}, {snapshot.resources} resources")
    if snapshot.cost:
        text.append(f"\nCost: {words.cost(snapshot.cost, snapshot.now, names.sandbox)}", style="dim")
    return text


def _operations(snapshot: Snapshot) -> Iterable[RenderableType]:
    if not snapshot.operations:
        return
    rows = [f"{text} ({words.duration(snapshot.now - since)})" for text, since in snapshot.operations]
    shown = rows[:8] + ([f"and {len(rows) - 8} more"] if len(rows) > 8 else [])
    yield _panel("`pulumi up` is waiting for", Text("\n".join(shown)))


def _nodes(snapshot: Snapshot) -> RenderableType:
    summary = Text(words.nodes_in_words(snapshot))
    if len(snapshot.nodes) > MOST_NODES:
        return summary
    jobs: dict[str, list[str]] = {}
    for job in snapshot.jobs:
        for pod in job.pods:
            if pod.node and pod.state == RUNNING:
                jobs.setdefault(pod.node, []).append(words.pod_name(pod))
    table = Table.grid(padding=(0, 2))
    for node in snapshot.nodes:
        state = READY if node.ready else WAITING
        table.add_row(
            node.name,
            Text("ready" if node.ready else "not ready", style=STYLES[state]),
            node.zone,
            node.instance_type,
            ", ".join(jobs.get(node.name, [])),
        )
    return Group(summary, table)


def _jobs(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(ratio=1, overflow="fold")
    for job in snapshot.jobs:
        took = words.duration((job.ended or snapshot.now) - job.began) if job.began else ""
        table.add_row(job.role, Text(job.state, style=STYLES[job.state]), took, _job_details(job, snapshot))
    return table


def _job_details(job: Job, snapshot: Snapshot) -> Text:
    lines = words.pods_in_words(job) if job.wanted > 1 or any(pod.note for pod in job.pods) else []
    if job.reason:
        lines.insert(0, job.reason)
    progress = snapshot.progress.get(job.role, Progress())
    if job.state == RUNNING and progress.last_line:
        lines.append(progress.last_line)
    return Text("\n".join(lines), style="" if job.state != FAILED else "red")


def _training(progress: Progress, now: float, width: int) -> RenderableType:
    parts: list[RenderableType] = []
    if progress.planned:
        bar = ProgressBar(total=1.0, completed=share_done(progress), width=max(10, width - 60))
        line = Table.grid(padding=(0, 2))
        line.add_row(Text(words.progress_in_words(progress, now)), bar)
        parts.append(line)
    numbers = Table.grid(padding=(0, 2))
    found = words.series(progress)
    for name, values in list(found.items())[:MOST_NUMBERS]:
        numbers.add_row(
            name[:24], Text(words.number(values[-1]), style="bold"), words.sparkline(values, width // 2 - 10)
        )
    parts.append(numbers)
    if len(found) > MOST_NUMBERS:
        parts.append(Text(f"and {len(found) - MOST_NUMBERS} more numbers in report.html", style="dim"))
    for attempt in progress.attempts[-MOST_ATTEMPTS:]:
        took = words.duration((attempt.ended or now) - attempt.started)
        state = attempt.result or ("ended" if attempt.ended else "running")
        style = "green" if state == "finished" else "cyan" if state == "running" else "red"
        reason = f": {attempt.reason}" if attempt.ended and attempt.reason else ""
        parts.append(
            Text.assemble(
                f"attempt {attempt.number} ", (state, style), f" {'after' if attempt.ended else 'for'} {took}{reason}"
            )
        )
    return Group(*parts)


def _ready(snapshot: Snapshot) -> RenderableType:
    # No frame, so that the command can be copied.
    text = Text.assemble(("The model is ready. ", "bold green"), words.model_numbers(snapshot))
    if snapshot.fetch:
        text.append("\nTo fetch it: ")
        text.append(snapshot.fetch, style="bold")
    return text
