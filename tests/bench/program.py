"""Measures the processor time of the program with mocked AWS, for 3 and for 1000 trainers. Run `make bench`."""

import time

import pytest

from tests.unit.program import config_of, run, with_workers

ROUNDS = 30
LIMIT = 1.1


def seconds(monkeypatch: pytest.MonkeyPatch, trainers: int) -> tuple[float, int]:
    config = with_workers(config_of("dev"), trainers)
    start = time.process_time()
    graph = run(monkeypatch, config)
    return time.process_time() - start, len(graph.resources)


def main() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        seconds(monkeypatch, 3)  # the first run imports the SDK
        pairs = [(seconds(monkeypatch, 3), seconds(monkeypatch, 1000)) for _ in range(ROUNDS)]
    few, many = (min(pair[side][0] for pair in pairs) for side in (0, 1))
    (_, few_resources), (_, many_resources) = pairs[0]
    ratio = many / few
    print(f"   3 trainers: {few:.3f} s, {few_resources} resources (fastest of {ROUNDS} runs)")
    print(f"1000 trainers: {many:.3f} s, {many_resources} resources")
    print(f"ratio {ratio:.2f}, limit {LIMIT}")
    if ratio >= LIMIT or few_resources != many_resources:
        raise SystemExit("The time or the number of resources grows with the number of trainers.")


if __name__ == "__main__":
    main()
