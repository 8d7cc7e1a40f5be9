"""report.html: what it shows, that it is one safe and readable file, and the history of attempts behind it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import contract
import page
import pytest
import report
from checkpoints import Checkpoint, read_checkpoints
from contract import Attempt
from history import next_history, read_history, write_history
from state_files import CurrentAttempt
from texts import number_text

from tests.in_pod.samples import settings
from tests.in_pod.training_run import TrainingRun

HOSTILE = "<script>alert(1)</script>\u202e\x07'\"&"
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """The page's elements and text; an element that is closed wrongly fails the test."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def found(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def write_pass(output: Path, number: int, done: Any, **files: bytes) -> Path:
    folder = output / f"pass-{number:05d}"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "done").write_text(done if isinstance(done, str) else json.dumps(done))
    return folder


def history(*reasons: str, result: str = "") -> list[Attempt]:
    """Attempts that ended for these reasons, ten seconds each; with a result the last one ended with it."""
    begin = [("", 100.0), *(("pass-00000", 100.0 + 10 * number) for number in range(1, len(reasons)))]
    ended = [Attempt("job", n, at, resume, at + 10, reasons[n - 1]) for n, (resume, at) in enumerate(begin, 1)]
    return [*ended[:-1], replace(ended[-1], result=result)]


def render(output: Path, planned: int = 3, **settings: str) -> str:
    return page.render(report.gather(output, "job", planned, settings))


def shown_page(output: Path, planned: int = 3, **settings: str) -> Page:
    return Page(render(output, planned, **settings))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.0, "1,234,567"), (1.5, "1.500"), (999.25, "999.2"), (0.51234567, "0.5123"), (1.5e9 + 0.5, "1.5e+09")],
)
def test_numbers_have_the_digits_that_a_reader_needs(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_report_shows_the_whole_training(output: Path) -> None:
    source = "https://me:secret@host/a.tar?X-Signature=secret#secret"
    made_from = {"source": source, "sha256": "d" * 64, "code": "c" * 64}
    (output / "made-from.json").write_text(json.dumps(made_from))
    listed = {"model.pdparams": {"bytes": 2048, "sha256": "e" * 64}}
    for number in range(3):
        numbers = {"pass": number, "loss": 0.5 / (number + 1), "accuracy": 0.8125, "records per second": 1234.5}
        write_pass(output, number, {**numbers, "files": listed})
    ended = history("trainer 1 was killed by signal 9", "all 3 trainers ended well", result="finished")
    write_history(output, ended)
    shown = shown_page(output, trainers="3")
    for words in (
        "Training job",
        "Finished. Checkpoint 3 of 3, 100%.",
        "Attempt 1 , from the beginning, started 1970-01-01 00:01:40 UTC , 10 s.",
        "Ended: trainer 1 was killed by signal 9. Caused by trainer 1.",
        "Attempt 2 , from checkpoint pass-00000,",
        "data source https://host/a.tar data.sha256 setting " + "d" * 64,
        "training code, SHA-256 " + "c" * 64,
        "model.pdparams , 2.0 KiB SHA-256 " + "e" * 64,
        "trainers 3",
    ):
        assert words in shown.text
    assert "secret" not in render(output)
    labels = [each["aria-label"] for each in shown.found("svg") if "aria-label" in each]
    assert labels == [
        "loss by checkpoint: 0.5 at checkpoint 1, 0.1667 at checkpoint 3; lowest 0.1667, highest 0.5",
        "accuracy by checkpoint: 0.8125 at checkpoint 1, 0.8125 at checkpoint 3; lowest 0.8125, highest 0.8125",
        "records per second by checkpoint: 1,234 at checkpoint 1, 1,234 at checkpoint 3; lowest 1,234, highest 1,234",
    ]


def test_a_running_and_a_failed_training_are_told_apart(output: Path) -> None:
    assert "Running. No checkpoint is complete yet." in shown_page(output).text
    write_history(output, [*history("trainer 0 ended with status 1"), Attempt("job", 2, 110.0)])
    assert "Still running." in shown_page(output).text
    write_history(output, history("no trainer 2 came", result="failed"))
    assert "Failed. No checkpoint is complete yet. no trainer 2 came" in shown_page(output).text


@pytest.mark.parametrize(
    "done",
    ["null", "[]", "not json", '{"files": ["model"]}', '{"files": {"model": 3}}', "[" * 100000, '{"loss": true}', "{}"],
)
def test_a_checkpoint_that_states_nothing_usable_is_shown_with_the_checksums_of_its_files(
    output: Path, done: str
) -> None:
    write_pass(output, 0, done, model=b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    shown = shown_page(output)
    assert f"model , 7 bytes SHA-256 {digest}" in shown.text
    assert "The checkpoints state no numbers" in shown.text


def test_numbers_that_cannot_be_drawn_are_left_out(output: Path) -> None:
    write_pass(output, 0, '{"a": NaN, "b": Infinity, "c": 1e999, "d": ' + "9" * 400 + ', "e": "1", "f": 0}')
    assert list(report.gather(output, "job", 1, {}).checkpoints[0].numbers) == ["f"]
    for number, value in enumerate((-9e299, 9e299, 1e-300, 5.0), 1):
        write_pass(output, number, {"f": value})
    drawn = render(output)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_only_complete_checkpoints_count_in_the_order_of_their_numbers(output: Path) -> None:
    for name in ("pass-100000", "pass-9", "pass-10", "pass-00012-backup"):
        (output / name).mkdir()
        (output / name / "done").write_text("{}")
    for name in ("pass-00011", ".pass-00013", "pass-" + "9" * 195):
        (output / name).mkdir()
    assert [each.number for each in read_checkpoints(output)] == [9, 10, 100000]


def test_hostile_names_are_shown_as_text(output: Path) -> None:
    (output / "made-from.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    files = {HOSTILE: {"bytes": 1, "sha256": HOSTILE}, "\ud800": {"bytes": 1, "sha256": ""}}
    write_pass(output, 0, {HOSTILE: 1, "x" * 10000: 2, "files": files})
    write_history(output, history(HOSTILE, HOSTILE + "https://h/p?token=secret", result="failed"))
    report.write_report(output, report.gather(output, HOSTILE, 1, {HOSTILE: HOSTILE}))
    text = (output / "report.html").read_text("utf-8")
    shown = Page(text)
    assert shown.found("script") == []
    assert "<script>alert(1)</script>\ufffd\ufffd'\"&" in shown.text
    assert not set("\u202e\x07") & set(text)
    assert "secret" not in text


def test_the_page_needs_nothing_but_itself(output: Path) -> None:
    write_pass(output, 0, {"loss": 1.0, "files": {}})
    text = render(output, trainers="https://host/a")
    shown = Page(text)
    links = ("src", "href", "xlink:href")
    assert [each[key] for _, each in shown.elements for key in links if key in each] == ["data:,"]
    assert not re.search(r"url\(|@import", text)
    assert [each["content"] for each in shown.found("meta") if each.get("http-equiv") == "Content-Security-Policy"] == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    ]
    assert all("aria-label" in each or each.get("aria-hidden") == "true" for each in shown.found("svg"))
    assert [name for name, _ in shown.elements if re.fullmatch("h[1-6]", name)][:2] == ["h1", "h2"]


def luminance(color: str) -> float:
    """The relative luminance of a color as WCAG defines it, and 0.05 for the light around it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05


def test_colors_have_the_contrast_that_wcag_aa_asks_for() -> None:
    light, dark = page.STYLE.split("@media (prefers-color-scheme: dark)")
    least = {"text": 4.5, "soft": 4.5, "good": 4.5, "bad": 4.5, "curve": 3}
    pairs = [(name, back, ratio) for name, ratio in least.items() for back in ("page", "card")]
    for scheme in (light, dark.split("}")[0]):
        colors = {name: luminance(color) for name, color in re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme)}
        assert len(colors) == 8
        for name, back, ratio in [*pairs, ("curve", "rule", 3), ("good", "rule", 3), ("bad", "rule", 3)]:
            low, high = sorted((colors[name], colors[back]))
            assert high / low >= ratio, (name, back)


def test_ten_thousand_checkpoints_keep_the_page_small_and_the_extremes_visible() -> None:
    values = [(number, math.sin(number / 500)) for number in range(1, 10001)]
    values[4321] = (4322, 7.0)
    kept = page.thin(values)
    assert len(kept) <= 200
    assert {values[0], values[-1], values[4321]} <= set(kept)
    checkpoints = [Checkpoint("pass", number - 1, 0.0, {"a": value}, ()) for number, value in values]
    text = page.render(page.Report("job", 10000, {}, {}, checkpoints, [], 0.0))
    assert len(text) < 40000
    assert "Values (" in text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (page.ticks(0.0, 1.0, 4), "0 0.5 1"),
        (page.ticks(0.31, 0.69, 4), "0.3 0.4 0.5 0.6 0.7"),
        (page.ticks(1150, 1610, 4), "1,000 1,200 1,400 1,600 1,800"),
        (page.ticks(0.999991, 0.999999, 4), "0.99999 0.999992 0.999994 0.999996 0.999998 1"),
        ([1000, 1500, 2000], "1,000 1,500 2,000"),
    ],
)
def test_axes_have_round_values_that_differ(values: list[float], texts: str) -> None:
    assert page.tick_texts(values) == texts.split()


def test_the_history_keeps_each_attempt_with_its_reason() -> None:
    one = CurrentAttempt("a", 1, started=1.0)
    first = next_history([], one, 1.0)
    assert next_history(first, one, 2.0) == first, "the same attempt again adds nothing"
    ended = next_history(first, replace(one, ended=3.0, reason="trainer 1 is lost"), 3.0)
    assert ended == [Attempt("a", 1, 1.0, "", 3.0, "trainer 1 is lost")]
    two = CurrentAttempt("a", 2, started=4.0, resume="pass-00001", previous="trainer 1 is lost")
    second = next_history(ended, two, 4.0)
    assert second == [*ended, Attempt("a", 2, 4.0, "pass-00001")]
    assert next_history(first, two, 4.0)[0] == Attempt("a", 1, 1.0, "", 4.0, "trainer 1 is lost"), "its end was missed"
    other = next_history(second, CurrentAttempt("b"), 9.0)
    assert other[1:] == [Attempt("a", 2, 4.0, "pass-00001", 9.0, "the Job was replaced or deleted")]
    done = CurrentAttempt("b", 1, 9.0, "", 12.0, "all ended well", contract.FINISHED)
    assert next_history(other, done, 12.0) == [*other, Attempt("b", 1, 9.0, "", 12.0, "all ended well", "finished")]


@pytest.mark.parametrize("content", ["", "null", '{"a": 1}', '[1, {"job": "a"}, {"job": 1}]', "[" * 100000])
def test_an_unreadable_history_counts_as_empty(output: Path, content: str) -> None:
    (output / contract.HISTORY_FILE).write_text(content)
    assert read_history(output) == []


def test_it_is_written_again_only_when_something_came(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    turns = iter([lambda: None, lambda: None, lambda: write_pass(output, 0, {}), lambda: None, None])

    def wait(timeout: float) -> bool:
        assert timeout >= 1, "more often than once a second"
        turn = next(turns)
        return turn is None or bool(turn() and False)

    keeper = report.ReportKeeper(replace(settings(0), job_folder=output.parent))
    monkeypatch.setattr(keeper.closed, "wait", wait)
    monkeypatch.setattr(keeper, "write", lambda: written.append(len(read_checkpoints(output))))
    keeper._keep()
    assert written == [0, 1]


def test_each_checkpoint_is_printed_once(output: Path) -> None:
    known: set[str] = set()
    for number, numbers, line in (
        (0, {"loss": 0.5}, 'checkpoint 1 of 3 {"loss": 0.5} written 1970-01-01T00:00:00Z'),
        (1, {}, "checkpoint 2 of 3 {} written 1970-01-01T00:01:00Z"),
    ):
        os.utime(write_pass(output, number, numbers) / "done", (60 * number, 60 * number))
        assert report.news(report.gather(output, "job", 3, {}), known) == [line]


def test_launchers_keep_the_report_through_a_failure(run: TrainingRun) -> None:
    run.settings["STUB_PASS_SECONDS"] = "0.6"
    for index in range(3):
        run.start(index)
    run.wait(lambda: len(run.passes()) >= 1)
    os.kill(int((run.root / "stub-1.pid").read_text()), signal.SIGKILL)
    run.wait(run.ended)
    assert run.statuses() == [0, 0, 0]
    assert len(run.all) == 3, "no pod had to be replaced"
    output = run.root / "output"
    entries = read_history(output)
    assert [(each.number, each.result) for each in entries] == [(1, ""), (2, "finished")]
    assert entries[0].reason.startswith("trainer 1 was killed by signal 9")
    assert entries[1].resume.startswith("pass-0000")
    shown = Page((output / contract.REPORT_FILE).read_text())
    for words in ("Finished. Checkpoint 3 of 3, 100%.", "Caused by trainer 1.", "pass-00002", "job.attempts 3"):
        assert words in shown.text
    printed = "".join(trainer.text() for trainer in run.all)
    assert "attempt 1 is over: trainer 1 was killed by signal 9" in printed
    for number in range(3):
        assert printed.count(f"stub: wrote pass {number}\n") == 1, "each attempt resumes from the newest checkpoint"
        assert printed.count(f"launch: checkpoint {number + 1} of 3 {{}} written 2") == 1
    assert printed.count("launch: attempts [") == 4
    assert not list(output.glob(".report*"))


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium on this machine")
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_has_to_be_scrolled_sideways(output: Path, tmp_path: Path, width: int) -> None:
    (output / "made-from.json").write_text(json.dumps({"source": "https://host/" + "long" * 100}))
    files = {"file" * 60: {"bytes": 1, "sha256": "f" * 64}}
    for number in range(12):
        write_pass(output, number, {"loss": 1e6 / (number + 1), "n" * 300: number, "files": files})
    write_history(output, history("trainer 1 " + "long" * 60, "word " * 200, result="failed"))
    report.write_report(output, report.gather(output, "job" * 30, 12, {"setting" * 20: "value" * 50}))
    (tmp_path / "frame.html").write_text(
        f'<iframe src="output/report.html" width="{width}" height="900"></iframe><script>onload = () => {{'
        "const page = document.querySelector('iframe').contentDocument.documentElement;"
        "document.title = `${page.scrollWidth} ${page.clientWidth}` }</script>"
    )
    command = "chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --dump-dom"
    address = f"file://{tmp_path}/frame.html"
    done = subprocess.run([*command.split(), address], capture_output=True, text=True, check=True)
    measured = re.search(r"<title>(\d+) (\d+)</title>", done.stdout)
    assert measured
    assert int(measured[2]) > 0.9 * width
    assert int(measured[1]) == int(measured[2])
