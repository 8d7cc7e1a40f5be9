"""Short texts for numbers, times and states, and the plain lines for output that is not a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from tools.watch.snapshot import DONE, FAILED, Cost, Job, Pod, Snapshot
from tools.watch.training_log import Progress, share_done, time_left

BARS = "▁▂▃▄▅▆▇█"
MOST_NAMED = 5


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {whole % 60:02} s" if minutes else f"{whole} s"


def number(value: float) -> str:
    """A number with about four digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as small bars, the newest at the right; each bar is the mean of its stretch."""
    if len(values) > width:
        edges = [len(values) * i // width for i in range(width + 1)]
        stretches = [values[a:b] for a, b in pairwise(edges)]
        values = [sum(stretch) / len(stretch) for stretch in stretches]
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] if span else BARS[3] for value in values)


def series(progress: Progress) -> dict[str, list[float]]:
    """The values of each number, in the order of the checkpoints."""
    found: dict[str, list[float]] = {}
    for _, numbers in sorted(progress.checkpoints.items()):
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
    return found


def cost(cost: Cost, now: float, sandbox: bool) -> str:
    """The cost per hour and so far."""
    without = f" without {', '.join(cost.unknown)}" if cost.unknown else ""
    if sandbox:
        return f"on AWS ${cost.hourly:.2f} an hour{without}, here nothing"
    so_far = f", ${cost.hourly * max(0.0, now - cost.since) / 3600:.2f} so far" if cost.since else ""
    return f"${cost.hourly:.2f} an hour{so_far}{without}"


def pod_name(pod: Pod) -> str:
    return pod.name if pod.trainer is None else f"trainer {pod.trainer}"


def pods_in_words(job: Job) -> list[str]:
    """Counts by state, then the pods that wait or failed, by name."""
    counts = Counter(pod.state for pod in job.pods)
    text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    missing = job.wanted - len(job.pods)
    if missing > 0 and job.state not in (DONE, FAILED):
        text += f"{', ' if text else ''}{missing} not created"
    troubled = [pod for pod in job.pods if pod.note]
    lines = [text] if text else []
    lines += [f"{pod_name(pod)} {pod.state}: {pod.note}" for pod in troubled[:MOST_NAMED]]
    if len(troubled) > MOST_NAMED:
        lines.append(f"and {len(troubled) - MOST_NAMED} more")
    return lines


def nodes_in_words(snapshot: Snapshot) -> str:
    ready = sum(node.ready for node in snapshot.nodes)
    waiting = [node.name for node in snapshot.nodes if not node.ready]
    names = f"; not ready: {', '.join(waiting[:MOST_NAMED])}" if waiting else ""
    more = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
    return f"{ready} of {max(snapshot.names.workers, len(snapshot.nodes))} nodes ready{names}{more}"


def is_finished(snapshot: Snapshot) -> bool:
    """Whether every Job of the stack is complete."""
    return len(snapshot.jobs) == len(snapshot.names.jobs) and all(job.state == DONE for job in snapshot.jobs)


def model_numbers(snapshot: Snapshot) -> str:
    """The numbers of the newest checkpoint in one line."""
    progress = snapshot.progress.get("training", Progress())
    newest = progress.checkpoints[max(progress.checkpoints)] if progress.checkpoints else {}
    return ", ".join(f"{name} {number(value)}" for name, value in newest.items())


def lines(snapshot: Snapshot) -> list[str]:
    """The snapshot as lines. They contain no durations, so a line changes only when something happens."""
    where = "the sandbox" if snapshot.names.sandbox else f"AWS {snapshot.names.region}"
    found = [f"stack {snapshot.names.stack} in {where}"]
    if snapshot.cost:
        found.append(f"cost: ${snapshot.cost.hourly:.2f} an hour" + (" on AWS" if snapshot.names.sandbox else ""))
    found += [f"pulumi up: {operation}" for operation, _ in snapshot.operations]
    if snapshot.nodes:
        found.append(nodes_in_words(snapshot))
    for job in snapshot.jobs:
        reason = f": {job.reason}" if job.reason else ""
        found.append(f"{job.role} Job {job.name}: {job.state}{reason}")
        found += [f"{job.role} Job {job.name}: {line}" for line in pods_in_words(job)]
        if job.role == "training":
            found += _training_lines(snapshot)
    found += [f"trouble: {each}" for each in snapshot.trouble]
    if is_finished(snapshot):
        found.append(f"the model is ready: {model_numbers(snapshot)}".rstrip(": "))
        if snapshot.fetch:
            found.append(f"to fetch it: {snapshot.fetch}")
    return found


def _training_lines(snapshot: Snapshot) -> list[str]:
    progress = snapshot.progress.get("training", Progress())
    found = []
    for reached, numbers in sorted(progress.checkpoints.items()):
        text = ", ".join(f"{name} {number(value)}" for name, value in numbers.items())
        found.append(f"checkpoint {reached} of {progress.planned}: {text}".rstrip(": "))
    for attempt in progress.attempts:
        if attempt.ended:
            found.append(f"attempt {attempt.number} {attempt.result or 'ended'}: {attempt.reason}")
        else:
            found.append(f"attempt {attempt.number} began")
    return found


def progress_in_words(progress: Progress, now: float) -> str:
    """Checkpoint k of N, the percentage and the time left."""
    reached = max(progress.checkpoints, default=0)
    left = time_left(progress, now)
    text = f"checkpoint {reached} of {progress.planned}, {100 * share_done(progress):.0f}%"
    return text if left is None or reached >= progress.planned else f"{text}, {duration(left)} left"
