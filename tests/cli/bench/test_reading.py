import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.bench import reading
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.reading import PlannedRange


def _plan(tmp_path: Path) -> Plan:
    return Plan(folder=str(tmp_path / "store"), messages=5_000, batch=500)


def test_everything_on_the_disk_is_read_once(tmp_path: Path) -> None:
    found = reading.measure_all(_plan(tmp_path))
    assert found["published"] == found["messages"] == 5_000
    assert (found["turns"], found["lost"], found["repeated"]) == (1, 0, 0)


def test_it_is_read_again_until_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(tmp_path)
    reading.fill(plan)
    looks = count()  # a turn takes 0.15 s, whatever the machine does meanwhile
    clock = SimpleNamespace(perf_counter=lambda: next(looks) * 0.15)
    monkeypatch.setattr(reading, "time", clock)
    found = reading.read(Plan(folder=plan.folder, seconds=0.2))
    assert found["turns"] == 2
    assert found["messages"] == found["turns"] * 5_000
    assert found["seconds"] >= 0.2


class Reader:
    """Gives these runs of offsets, one batch each."""

    def __init__(self, *runs: range) -> None:
        self._runs = runs

    async def batches(self, *_range: int) -> AsyncIterator[Any]:
        for run in self._runs:
            yield SimpleNamespace(bodies=[b""] * len(run), frames=[SimpleNamespace(offsets=run)])


@pytest.mark.parametrize(
    ("runs", "skips"),
    [
        ([range(5), range(5, 10)], 0),
        ([range(5), range(6, 11)], 1),
        ([range(5), range(5)], 1),
        ([range(5, 10), range(5)], 2),
        ([range(5)], 1),
    ],
)
def test_an_offset_that_does_not_go_on_shows(runs: list[range], skips: int) -> None:
    found = asyncio.run(reading._turn(Reader(*runs), PlannedRange(0, 0, 10)))
    assert found == (sum(map(len, runs)), skips)


def test_dropping_what_is_cached_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "segment-00000001"
    path.write_bytes(b"x" * 10_000)
    reading.drop_cached(tmp_path)
    assert path.read_bytes() == b"x" * 10_000
