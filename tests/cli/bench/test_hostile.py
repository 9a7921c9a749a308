"""The short form of the proof: good clients beside every kind of bad one, on a real server."""

from pathlib import Path

import pytest

from penstock.cli.bench import hostile
from penstock.cli.bench.hostile import Case
from penstock.cli.bench.plan import Plan
from tests.cli.conftest import Penstock

GOOD = Case(
    name="slow",
    p99=0.004,
    alone_p99=0.002,
    resident_before=50_000_000,
    resident_after=60_000_000,
    opened=60,
    ended=60,
    reasons=["dropped"],
    lost=0,
)


def _changed(**changes: object) -> Case:
    return Case(**{name: getattr(GOOD, name) for name in GOOD.__struct_fields__} | changes)


def test_twice_as_slow_is_the_limit() -> None:
    assert GOOD.problems == []
    (problem,) = _changed(p99=0.0041).problems
    assert "that of a good client alone" in problem


def test_a_millisecond_is_as_good_as_nothing() -> None:
    assert _changed(p99=0.0019, alone_p99=0.0001).problems == []
    assert _changed(p99=0.0021, alone_p99=0.0001).problems != []


def test_memory_loss_and_silence_are_problems() -> None:
    assert "memory grew" in _changed(resident_after=400_000_000).problems[0]
    assert "lost" in _changed(lost=1).problems[0]
    assert "log says nothing" in _changed(reasons=[]).problems[0]


def test_turns_count_together_by_their_medians() -> None:
    turns = [GOOD, _changed(p99=0.1, opened=1, ended=0, lost=2), _changed(alone_p99=0.003)]
    whole = hostile.together(turns)
    assert (whole.p99, whole.alone_p99) == (0.004, 0.002)
    assert (whole.opened, whole.ended, whole.lost) == (121, 120, 2)
    assert "log says nothing" in hostile.together([GOOD, _changed(reasons=[])]).problems[0]


def test_reasons_are_found_in_a_log() -> None:
    log = "a INFO ready\nb WARNING x: dropped: slow\nb WARNING x: dropped: slow\n"
    assert hostile.reasons_in(log) == ["b WARNING x: dropped: slow"]


def test_every_offender_is_dealt_with_and_nobody_else_is_harmed(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path), is_quick=True, rate=200.0)
    cases = {case.name: case for case in hostile.measure(plan)}
    assert cases.keys() == set(hostile.NAMES)
    for case in cases.values():
        assert case.lost == 0, case
        assert case.reasons, case
        assert case.resident_after - case.resident_before < hostile.GROWTH_MAX, case
    assert cases["huge"].ended == cases["huge"].opened == 3
    assert cases["slow"].ended > 0
    assert "dropped" in cases["stuck"].reasons[0]


def test_the_command_shows_each(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = _changed(name="stuck", reasons=[])
    monkeypatch.setattr(hostile, "measure", lambda _plan, _tick: iter([GOOD, bad]))
    answer = penstock("bench", "hostile", "--quick")
    assert answer.code == 1
    assert "clients that send one byte a second" in answer.out
    assert "PASS" in answer.out
    assert "the server's log says nothing about it" in answer.out
    found = penstock("bench", "hostile", "--quick", "--json").json()
    assert [row["ratio"] for row in found["cases"]] == [2.0, 2.0]
    monkeypatch.setattr(hostile, "measure", lambda _plan, _tick: iter([GOOD]))
    assert penstock("bench", "hostile", "--quick").code == 0
