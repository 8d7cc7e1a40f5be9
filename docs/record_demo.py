"""`python -m docs.record_demo FILE.svg`: run `make sandbox` and the live view, and draw both as one moving picture.

Every frame is a real moment of that run. Stop the sandbox first: the picture begins with an empty machine.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from settings.schema import PROJECT
from settings.stack_file import stack_settings
from tools.watch import words
from tools.watch.__main__ import View
from tools.watch.errors import WatchError
from tools.watch.screen import draw
from tools.watch.snapshot import Snapshot

STACK, WIDTH, SANDBOX_LINES, FRAMES, LARGEST = "local", 100, 9, 10, 300_000
SECONDS_PER_FRAME, SECONDS_FOR_LAST = 2.5, 8.0
# The default format of rich loads a font from the internet.
FORMAT = """<g class="frame" id="{unique_id}"><style>{styles}</style>
<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{char_height}px">
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
{matrix}</g></g></g>
<!--{width} {height}-->"""


@dataclass(frozen=True)
class Moment:
    """What `make sandbox` had printed, and what the live view showed."""

    printed: tuple[str, ...]
    shown: Snapshot | None


def record() -> list[Moment]:
    """Run `make sandbox` and look at the stack once a second until it ends."""
    printed: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "up"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(anonymous(line.rstrip()))

    reader = threading.Thread(target=read)
    reader.start()
    moments: list[Moment] = []
    view: View | None = None
    while process.poll() is None:
        view = view or connected()
        moments.append(Moment(tuple(printed), look(view) if view else None))
        time.sleep(1)
    reader.join()
    if process.returncode or not view:
        raise SystemExit("`make sandbox` failed: there is nothing to record")
    moments.append(Moment(tuple(printed), look(view)))
    return moments


def anonymous(line: str) -> str:
    """The line without the paths of this machine."""
    return line.replace(f"{PROJECT}/", "").replace(str(PROJECT), ".").replace(str(Path.home()), "~")


def connected() -> View | None:
    """The view, as soon as there is a stack."""
    try:
        return View(STACK, stack_settings(STACK))
    except WatchError:
        return None


def look(view: View) -> Snapshot:
    view.read_state()
    view.connect()
    return view.snapshot()


def key_moments(moments: Sequence[Moment]) -> list[Moment]:
    """Evenly chosen moments at which something had changed. The last moment is always included."""
    changed: list[Moment] = []
    before: object = None
    for moment in moments:
        now = (moment.printed, words.lines(moment.shown) if moment.shown else [])
        if now != before:
            changed.append(moment)
            before = now
    step = max(1.0, (len(changed) - 1) / (FRAMES - 1))
    chosen = [changed[min(len(changed) - 1, round(index * step))] for index in range(min(FRAMES, len(changed)))]
    return [*chosen[:-1], changed[-1]]


def frame(moment: Moment, name: str) -> tuple[str, float, float]:
    """One picture, with its width and height."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text("$ make sandbox", style="bold"))
        for line in moment.printed[-SANDBOX_LINES:]:
            console.print(Text.from_ansi(line)[:WIDTH])
        if moment.shown:
            console.print(Text("\n$ make watch STACK=local", style="bold"))
            console.print(draw(moment.shown, WIDTH))
        drawn = console.export_svg(title="paddle-on-aws", code_format=FORMAT, unique_id=name)
    body, _, size = drawn.rpartition("<!--")
    width, height = map(float, size.removesuffix("-->").split())
    return body, width, height


def animation(moments: Sequence[Moment]) -> str:
    """The frames one after the other. With the browser setting for reduced motion, only the last one."""
    frames = [frame(moment, f"f{number}") for number, moment in enumerate(moments)]
    total = SECONDS_PER_FRAME * (len(frames) - 1) + SECONDS_FOR_LAST
    rules = [".frame { visibility: hidden; }", f"#f{len(frames) - 1} {{ visibility: visible; }}"]
    moving = []
    for number in range(len(frames)):
        begin = 100 * SECONDS_PER_FRAME * number / total
        end = 100 * SECONDS_PER_FRAME * (number + 1) / total if number < len(frames) - 1 else 100.0
        steps = (
            f"0% {{ visibility: {'visible' if number == 0 else 'hidden'}; }} {begin:.2f}% {{ visibility: visible; }}"
        )
        steps += f" {end:.2f}% {{ visibility: {'visible' if end == 100 else 'hidden'}; }}"
        moving.append(f"@keyframes k{number} {{ {steps} }}")
        moving.append(f"#f{number} {{ animation: k{number} {total:g}s step-end infinite; }}")
    style = "\n".join([*rules, "@media (prefers-reduced-motion: no-preference) {", *moving, "}"])
    width, height = max(each[1] for each in frames), max(each[2] for each in frames)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        'aria-label="make sandbox and make watch: from nothing to a trained model">\n'
        f"<style>{style}</style>\n" + "\n".join(each[0] for each in frames) + "\n</svg>\n"
    )


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("Name the file to write: python -m docs.record_demo docs/demo.svg")
    if (PROJECT / ".sandbox").exists():
        raise SystemExit("The sandbox exists already. Run `make sandbox-down` first.")
    text = animation(key_moments(record()))
    size = len(text.encode())
    if size > LARGEST:
        raise SystemExit(f"The picture has {size} bytes, more than {LARGEST}: take fewer frames")
    Path(sys.argv[1]).write_text(text)
    print(f"{sys.argv[1]}: {size} bytes")


if __name__ == "__main__":
    main()
