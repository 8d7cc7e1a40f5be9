"""Draws report.html, the page about a training. It loads no other file."""

from __future__ import annotations

import html
import math
import re
import time
from typing import Any, Mapping, NamedTuple, Sequence

from checkpoints import Checkpoint
from contract import FINISHED, Attempt
from texts import MOST_NUMBERS, duration_text, number_text, plain, size_text

MOST_ATTEMPTS, MOST_POINTS, MOST_FILES = 50, 200, 200


class Report(NamedTuple):
    """All facts on the page."""

    job: str
    planned: int
    settings: Mapping[str, str]
    made_from: Mapping[str, Any]
    checkpoints: Sequence[Checkpoint]
    attempts: Sequence[Attempt]
    written: float


def safe(value: object) -> str:
    """A value as escaped HTML text."""
    return html.escape(plain(value), quote=True)


def moment(seconds: float) -> str:
    """A time as HTML."""
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
    return f'<time datetime="{text.replace(" ", "T")}Z">{text}\u00a0UTC</time>'


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values that span the range."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def tick_texts(marks: Sequence[float]) -> list[str]:
    """The texts of the axis values, with enough digits to differ."""
    large = max(map(abs, marks))
    if 10 <= large < 1e7 and all(mark == int(mark) for mark in marks):
        return [f"{int(mark):,}" for mark in marks]
    for digits in range(2, 13):
        texts = [f"{mark:.{digits}g}" for mark in marks]
        if all(float(text) == mark for text, mark in zip(texts, marks)):
            return texts
    return [number_text(mark) for mark in marks]


def whole_ticks(low: int, high: int, most: int) -> list[int]:
    """The checkpoint numbers on the axis."""
    step = max(1, math.ceil((high - low) / most))
    step = next(each * 10**power for power in range(20) for each in (1, 2, 5) if each * 10**power >= step)
    inner = [each for each in range(step, high + 1, step) if each - low > step / 2 and high - each > step / 2]
    return sorted({low, *inner, high})


def thin(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most MOST_POINTS points: the first, the last, and the lowest and highest of each section."""
    if len(points) <= MOST_POINTS:
        return list(points)
    kept = {0, len(points) - 1}
    stretches = MOST_POINTS // 2 - 1
    for index in range(stretches):
        places = range(len(points) * index // stretches, len(points) * (index + 1) // stretches)
        kept |= {min(places, key=lambda i: points[i][1]), max(places, key=lambda i: points[i][1])}
    return [points[index] for index in sorted(kept)]


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 220, 62, 12, 10, 40


def curve(name: str, points: Sequence[tuple[int, float]]) -> str:
    """One number over the checkpoints, as a picture with axes and as text."""
    values = [value for _, value in points]
    marks = ticks(min(values), max(values), 4)
    low, high = marks[0], marks[-1]
    first, last = points[0][0], points[-1][0]

    def x(number: float) -> float:
        share = (number - first) / (last - first) if last > first else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    drawn = thin(points)
    if len(points) > 1:
        words = (
            f"{name} by checkpoint: {number_text(values[0])} at checkpoint {first}, {number_text(values[-1])} at "
            f"checkpoint {last}; lowest {number_text(min(values))}, highest {number_text(max(values))}"
        )
    else:
        words = f"{name}: {number_text(values[0])} at checkpoint {first}"
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(words)}">']
    for mark, text in zip(marks, tick_texts(marks)):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark)}" y2="{y(mark)}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(mark) + 4}" text-anchor="end">{text}</text>')
    for tick in whole_ticks(first, last, 6):
        anchor = "end" if tick == last > 99 else "middle"
        parts.append(f'<text x="{x(tick)}" y="{HEIGHT - BOTTOM + 17}" text-anchor="{anchor}">{tick:,}</text>')
    middle = (LEFT + WIDTH - RIGHT) // 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">checkpoint</text>')
    path = " ".join(f"{x(number)},{y(value)}" for number, value in drawn)
    parts.append(f'<polyline class="curve" points="{path}"/>')
    if len(drawn) <= 40:
        parts += [
            f'<circle class="point" cx="{x(number)}" cy="{y(value)}" r="3.5">'
            f"<title>checkpoint {number}: {safe(number_text(value))}</title></circle>"
            for number, value in drawn
        ]
    parts.append("</svg>")
    rows = "".join(f"<li>checkpoint {number:,}: {safe(number_text(value))}</li>" for number, value in drawn)
    note = f" ({len(drawn)} of {len(points):,})" if len(drawn) < len(points) else ""
    table = f"<details><summary>Values{note}</summary><ul>{rows}</ul></details>"
    return f"<figure><figcaption>{safe(name)}</figcaption>{''.join(parts)}{table}</figure>"


def curves(checkpoints: Sequence[Checkpoint]) -> dict[str, list[tuple[int, float]]]:
    """For each metric, its value at each checkpoint that reports it. The first checkpoint is number 1."""
    series: dict[str, list[tuple[int, float]]] = {}
    for checkpoint in checkpoints:
        for name, value in checkpoint.numbers.items():
            series.setdefault(name, []).append((checkpoint.number + 1, value))
    return series


STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f8fa; --text: #1b1f24; --soft: #4d5761; --rule: #d0d7de;
  --curve: #0a58b0; --good: #116329; --bad: #a8200d; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1419; --card: #182028; --text: #e6edf3; --soft: #a9b4bf;
  --rule: #3a444e; --curve: #79b8ff; --good: #63d977; --bad: #ff9b8f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; line-height: 1.2; } h2 { font-size: 1.2rem; margin: 2rem 0 0.6rem; }
p { margin: 0.3rem 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
.tiles { display: grid; gap: 0.8rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 10rem), 1fr)); }
.tiles > div, figure, .attempts > li { background: var(--card); border: 1px solid var(--rule); border-radius: 0.5rem;
  padding: 0.7rem 0.9rem; margin: 0; min-width: 0; }
.tiles b { display: block; font-size: 1.4rem; line-height: 1.3; }
figcaption { font-weight: 600; margin-bottom: 0.4rem; } svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; } .grid { stroke: var(--rule); }
.curve { fill: none; stroke: var(--curve); stroke-width: 2; stroke-linejoin: round; } .point { fill: var(--curve); }
.attempts { list-style: none; padding: 0; margin: 0; display: grid; gap: 0.6rem; }
.attempts svg { height: 0.7rem; margin: 0.4rem 0; } .track { fill: var(--rule); } .bar { fill: var(--curve); }
.bar.bad { fill: var(--bad); } .bar.good { fill: var(--good); }
details { margin-top: 0.4rem; } summary { cursor: pointer; color: var(--soft); }
details ul { max-height: 14rem; overflow-y: auto; margin: 0.3rem 0 0; padding-left: 1.2rem; }
dl { display: grid; grid-template-columns: minmax(7rem, 14rem) 1fr; gap: 0.25rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; } code { font-family: ui-monospace, monospace; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } }
.files { padding-left: 1.2rem; } .files li { margin-bottom: 0.4rem; }
"""


def state_of(report: Report) -> tuple[str, str]:
    """The training's state in one word, and its color."""
    result = report.attempts[-1].result if report.attempts else ""
    if result == FINISHED:
        return "Finished", "good"
    return ("Failed", "bad") if result else ("Running", "soft")


def head(report: Report) -> str:
    """Title, state and the newest numbers."""
    state, color = state_of(report)
    reached = report.checkpoints[-1].number + 1 if report.checkpoints else 0
    share = f", {min(100, 100 * reached // report.planned)}%" if report.planned else ""
    words = f"Checkpoint {reached:,} of {report.planned:,}{share}." if reached else "No checkpoint is complete yet."
    why = ""
    if report.attempts and report.attempts[-1].result not in ("", FINISHED):
        why = f"<p>{safe(report.attempts[-1].reason)}</p>"
    tiles = ""
    if report.checkpoints:
        tiles = "".join(
            f"<div>{safe(name)}<b>{safe(number_text(points[-1][1]))}</b>"
            f'<span class="soft">at checkpoint {points[-1][0]:,}</span></div>'
            for name, points in list(curves(report.checkpoints).items())[:MOST_NUMBERS]
        )
    return (
        f"<header><h1>Training {safe(report.job)}</h1>"
        f'<p><strong class="{color}">{state}.</strong> {words}</p>{why}'
        f'<p class="soft">This page was written at {moment(report.written)}.</p></header>'
        + (f'<div class="tiles">{tiles}</div>' if tiles else "")
    )


def section(title: str, body: str) -> str:
    """A part of the page under its heading."""
    return f"<section><h2>{title}</h2>{body}</section>"


MADE_FROM = {
    "source": "data source",
    "sha256": "data.sha256 setting",
    "digest": "data, SHA-256",
    "code": "training code, SHA-256",
}


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values as a list of terms."""
    rows = "".join(
        f"<dt>{safe(MADE_FROM.get(name, name))}</dt><dd>{safe(value) or '(empty)'}</dd>"
        for name, value in values.items()
    )
    return f"<dl>{rows}</dl>"


def culprit(reason: str) -> str:
    """The trainer that a reason names first."""
    found = re.search(r"\btrainer (\d+)\b", reason)
    return f"trainer {found[1]}" if found else ""


def timeline(attempts: Sequence[Attempt], now: float) -> str:
    """Each attempt: a bar on the time axis, where it started and why it ended."""
    shown = attempts[-MOST_ATTEMPTS:]
    begin = min(each.started for each in shown)
    span = max(1e-9, max(each.ended or now for each in shown) - begin)
    jobs = list(dict.fromkeys(each.job for each in attempts))
    items = []
    for each in shown:
        end = each.ended or now
        color = "good" if each.result == FINISHED else "bad" if each.ended else ""
        left = round(1000 * (each.started - begin) / span, 1)
        wide = max(6.0, round(1000 * (end - each.started) / span, 1))
        left = min(left, 1000 - wide)
        of_job = f" of Job {jobs.index(each.job) + 1}" if len(jobs) > 1 else ""
        start = f"from checkpoint {safe(each.resume)}" if each.resume else "from the beginning"
        ended = f"Ended: {safe(each.reason) or 'no reason is known'}." if each.ended else "Still running."
        who = culprit(each.reason) if color == "bad" else ""
        cause = f" <strong>Caused by {safe(who)}.</strong>" if who else ""
        # Hidden from screen readers: the text has the same facts.
        bar = (
            '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="track" width="1000" height="10"/>'
            f'<rect class="bar {color}" x="{left}" width="{wide}" height="10"/></svg>'
        )
        items.append(
            f"<li><strong>Attempt {each.number}{of_job}</strong>, {start}, started {moment(each.started)}, "
            f'{duration_text(end - each.started)}.{bar}<span class="{color}">{ended}{cause}</span></li>'
        )
    more = len(attempts) - len(shown)
    note = f'<p class="soft">{more} earlier attempts are not shown.</p>' if more else ""
    return f'{note}<ol class="attempts">{"".join(items)}</ol>'


def files(checkpoint: Checkpoint) -> str:
    """The newest checkpoint's files."""
    items = "".join(
        f"<li><strong>{safe(each.name)}</strong>, {size_text(each.size)}<br>"
        + (f"SHA-256 <code>{safe(each.sha256)}</code></li>" if each.sha256 else "no checksum</li>")
        for each in checkpoint.files[:MOST_FILES]
    )
    more = len(checkpoint.files) - MOST_FILES
    note = f'<p class="soft">{more} more files are not shown.</p>' if more > 0 else ""
    return (
        f"<p>Checkpoint {safe(checkpoint.name)}, written at {moment(checkpoint.written)}, "
        f'{size_text(sum(each.size for each in checkpoint.files))}.</p><ul class="files">{items}</ul>{note}'
    )


def render(report: Report) -> str:
    """The HTML page. It loads no other file."""
    series = curves(report.checkpoints)
    figures = "".join(curve(name, points) for name, points in list(series.items())[:MOST_NUMBERS])
    if len(series) > MOST_NUMBERS:
        figures += f"<p>{len(series) - MOST_NUMBERS} more numbers are not shown.</p>"
    no_numbers = '<p class="soft">The checkpoints state no numbers: docs/training-code.md says how they can.</p>'
    made_from = {MADE_FROM.get(name, name): value for name, value in report.made_from.items()}
    body = [head(report)]
    if report.checkpoints:
        body.append(section("Numbers by checkpoint", f'<div class="cards">{figures}</div>' if figures else no_numbers))
    if report.attempts:
        body.append(section("Attempts", timeline(report.attempts, report.written)))
    if report.checkpoints:
        body.append(section("Model files", files(report.checkpoints[-1])))
    body.append(section("Data and code", pairs(made_from) if made_from else "<p>Unknown.</p>"))
    body.append(section("Settings", pairs(report.settings)))
    title = f"{state_of(report)[0]}: training {safe(report.job)}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>\n'
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
