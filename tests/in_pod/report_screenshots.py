"""`python -m tests.in_pod.report_screenshots FOLDER`: report.html of an invented training as four pictures."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads/in_pod"))
import report

SIZES = {400: 4200, 1400: 2000}
SCHEMES = {"dark": 0, "light": 1}


def sample(output: Path) -> None:
    """A training of twelve checkpoints and three attempts."""
    made_from = {"source": "https://data.example/reviews.tar.gz", "sha256": "a" * 64, "code": "c" * 64}
    (output / "made-from.json").write_text(json.dumps(made_from))
    history = report.next_history([], "job", 1, "", "", "", 1.79e9)
    reasons = ["trainer 1's pod was deleted: spot interruption", "trainer 2 was killed by signal 9"]
    for number, reason in enumerate(reasons, 2):
        history = report.next_history(history, "job", number, f"pass-0000{number}", reason, "", 1.79e9 + 300 * number)
    ended = report.next_history(history, "job", 3, "", "all 3 trainers ended well", "finished", 1.79e9 + 2400)
    report.write_history(output, ended)
    files = {"model.pdparams": {"bytes": 262144, "sha256": "d" * 64}}
    for number in range(12):
        folder = output / f"pass-{number:05d}"
        folder.mkdir()
        numbers = {
            "loss": 0.1 + 0.6 * 0.8**number,
            "accuracy": 1 - 0.5 * 0.8**number,
            "records per second": 5200 + number,
        }
        (folder / "done").write_text(json.dumps({**numbers, "files": files}))


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        sample(output)
        report.write_report(output, report.gather(output, "paddle-cluster-job", 12, {"trainers": "3"}))
        for width, height in SIZES.items():
            # A window has a smallest width; a frame has none.
            frame = (
                f'<body style="margin:0"><iframe src="report.html" width="{width}" height="{height}" style="border:0">'
            )
            (output / "frame.html").write_text(frame)
            for scheme, number in SCHEMES.items():
                picture = target / f"report-{width}-{scheme}.png"
                command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
                command += [
                    f"--blink-settings=preferredColorScheme={number}",
                    f"--window-size={max(width, 500)},{height}",
                ]
                command += [f"--screenshot={picture}", f"file://{output}/frame.html"]
                subprocess.run(command, check=True, capture_output=True)
                print(picture)


if __name__ == "__main__":
    main()
