"""Rounds over many connections, and what is logged when many are ended."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from penstock.server.rounds import ENDS_MAX, LOOKS_MAX, SAID_MAX, Complaints, Rounds


async def until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - whatever it is that becomes so
            await asyncio.sleep(0.005)


async def rounds_over(things: list[int], ending: set[int]) -> tuple[list[int], list[int]]:
    """What was looked at in the first round, and how many ended in each turn of the loop."""
    loop = asyncio.get_running_loop()
    looked: list[int] = []
    turns: list[int] = [0]

    def look(thing: int, _now: float) -> bool:
        looked.append(thing)
        if thing in ending:
            turns[-1] += 1
        return thing in ending

    def whole() -> list[int]:
        return [] if looked else things

    rounds = Rounds(loop, 0.01, whole, look)
    while len(looked) < len(things):
        await asyncio.sleep(0)
        turns.append(0)
    rounds.stop()
    return looked, turns


def test_everything_is_looked_at_once_a_round() -> None:
    things = list(range(LOOKS_MAX * 2 + 5))
    looked, _ = asyncio.run(rounds_over(things, set()))
    assert sorted(looked) == things


def test_few_are_ended_between_two_turns_of_the_loop() -> None:
    things = list(range(ENDS_MAX * 5))
    looked, turns = asyncio.run(rounds_over(things, set(things)))
    assert sorted(looked) == things
    assert max(turns) == ENDS_MAX


def test_rounds_go_on_until_they_are_stopped() -> None:
    async def run() -> tuple[int, int]:
        count = 0

        def look(_thing: str, _now: float) -> bool:
            nonlocal count
            count += 1
            return False

        rounds = Rounds(asyncio.get_running_loop(), 0.005, lambda: ["one"], look)
        await until(lambda: count >= 3)
        rounds.stop()
        seen = count
        await asyncio.sleep(0.05)
        return seen, count

    seen, count = asyncio.run(run())
    assert seen == count


def test_rounds_may_be_stopped_by_what_they_look_at() -> None:
    async def run() -> int:
        count = 0

        def look(_thing: str, _now: float) -> bool:
            nonlocal count
            count += 1
            rounds.stop()
            return True

        rounds = Rounds(asyncio.get_running_loop(), 0.001, lambda: ["one"], look)
        await until(lambda: count > 0)
        await asyncio.sleep(0.05)
        return count

    assert asyncio.run(run()) == 1


def test_many_complaints_of_a_second_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("penstock.server"))
    with caplog.at_level(logging.INFO, "penstock.server"):
        for number in range(SAID_MAX + 30):
            complaints.say(100.0 + number / 100, f"client {number}: too slow")
        complaints.sum_up(100.9)
        said = [record.getMessage() for record in caplog.records]
        assert said == [f"client {number}: too slow" for number in range(SAID_MAX)]
        complaints.sum_up(101.5)
        complaints.sum_up(103.0)
    (last,) = [record.getMessage() for record in caplog.records][SAID_MAX:]
    assert last.startswith("30 more connections were ended")
    assert last.endswith(f"client {SAID_MAX + 29}: too slow")


def test_few_complaints_are_logged_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("penstock.server"))
    with caplog.at_level(logging.INFO, "penstock.server"):
        for second in range(20):
            complaints.say(float(second), "one", logging.INFO)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 20
