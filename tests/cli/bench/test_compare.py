from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import child, compare, places
from penstock.cli.bench.compare import Turn
from penstock.cli.bench.plan import Plan

TIMES = {"p50": 0.002, "p90": 0.003, "p99": 0.004, "p999": 0.005, "worst": 0.006}


def test_each_round_begins_one_further() -> None:
    assert [compare.order(["a", "b", "c"], i) for i in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_everybody_gets_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int]] = []

    def run(name: str, plan: Plan, _tick: Any) -> dict[str, Any]:
        asked.append((name, plan.url, plan.batch))
        return {"about": {}}

    reached: list[str] = []
    monkeypatch.setattr(child, "run", run)
    monkeypatch.setattr(places, "check_reached", lambda place: reached.append(place.name))
    plan = Plan(folder=str(tmp_path), batch=7)
    turns = list(compare.run("callers", ["memory:", "redis://h"], plan, 2))
    assert reached == ["memory:", "redis://h"]
    assert asked == [
        ("load-callers", "memory:bench", 7),
        ("load-callers", "redis://h", 7),
        ("load-callers", "redis://h", 7),
        ("load-callers", "memory:bench", 7),
    ]
    assert [(turn.name, turn.round) for turn in turns] == [
        ("memory:", 0),
        ("redis://h", 0),
        ("redis://h", 1),
        ("memory:", 1),
    ]


def _rates(**rates: list[float]) -> list[Turn]:
    return [
        Turn(name, number, {"messages_per_s": value, "lost": number})
        for name, values in rates.items()
        for number, value in enumerate(values)
    ]


def test_the_first_is_held_against_each_by_the_median() -> None:
    ours, other = compare.standings("publish", _rates(ours=[100, 300, 200], other=[50, 40, 60]))
    assert (ours.value, ours.ratio, ours.values) == (200, 1.0, [100, 300, 200])
    assert (other.value, other.ratio, other.lost) == (50, 4.0, 3)
    assert other.value_text == "50/s"


def test_nothing_is_infinitely_worse() -> None:
    _, other = compare.standings("publish", _rates(ours=[1.0], other=[0.0]))
    assert other.ratio == float("inf")


@pytest.mark.parametrize(
    ("mode", "name"), [("latency", "confirmed"), ("one", "latency"), ("latency", "delivered")]
)
def test_of_times_the_shorter_is_better(mode: str, name: str) -> None:
    def turn(who: str, p50: float) -> Turn:
        times = {"confirmed": TIMES, "delivered": TIMES, "latency": TIMES}
        return Turn(who, 0, {key: value | {"p50": p50} for key, value in times.items()})

    ours, other = compare.standings(mode, [turn("ours", 0.001), turn("other", 0.004)])
    assert (ours.ratio, other.ratio) == (1.0, 4.0)
    assert f"{name}: p50 4 ms, p90 3 ms, p99 4 ms, p999 5 ms, worst 6 ms" in other.note
