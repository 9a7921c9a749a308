import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import load, side
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import Tally


@pytest.mark.parametrize("work", [load.publish, load.consume, load.end_to_end, load.callers])
def test_throughput_of_the_same_messages(work: Any, tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "store"), messages=1_000, seconds=0.2, batch=100, in_flight=0)
    found = work(plan)
    assert found["messages"] >= 1_000
    assert found["messages_per_s"] > 0
    assert found.get("lost", 0) == 0
    assert found["about"]["server"].startswith("penstock ")


def test_one_at_a_time_beside_disk_and_loopback(tmp_path: Path) -> None:
    found = load.one(Plan(folder=str(tmp_path), server="memory:one", messages=50, seconds=0.1))
    assert found["messages"] == 50
    assert found["raw"].count == found["loopback"].count == found["latency"].count == 50


def test_latency_at_a_rate() -> None:
    found = load.latency(Plan(server="memory:rate", messages=50, rate=500.0, size=20))
    assert found["confirmed"].count == found["delivered"].count == 50
    assert 0 < found["confirmed"].p50 <= found["confirmed"].worst
    assert found["lost"] == 0


class Slow:
    """A side whose broker hangs once, and whose consumer may fail or lose."""

    in_flight = 1

    def __init__(self, *, fails: bool = False, loses: bool = False) -> None:
        self.fails, self.loses = fails, loses
        self.published = 0
        self.bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def publish(self, body: bytes) -> None:
        self.published += 1
        number = self.published
        if number <= 2:
            await asyncio.sleep(0.25)  # a timer may wake a little early
        if not (self.loses and number == 1):
            self.bodies.put_nowait(body)

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self.publish(body)

    async def consume(self, tally: Tally) -> None:
        if self.fails:
            raise ConnectionError("the broker is gone")
        while tally.taken < tally.wanted:
            body = await self.bodies.get()
            tally.taken += 1
            if tally.arrived is not None:
                tally.arrived(body)

    async def about(self) -> dict[str, str]:
        return {}


def _use(monkeypatch: pytest.MonkeyPatch, chosen: Slow) -> None:
    monkeypatch.setattr(load, "side_of", lambda _plan: chosen)
    monkeypatch.setattr(load, "PATIENCE_S", 0.2)


def test_a_hanging_publish_does_not_stop_the_ones_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open loop: the third is due while the first two hang, and is sent."""

    class Hanging(Slow):
        def __init__(self) -> None:
            super().__init__()
            self.others = asyncio.Event()

        async def publish(self, body: bytes) -> None:
            if int(body[:12]) < 2:
                async with asyncio.timeout(30):
                    await self.others.wait()
                await asyncio.sleep(0.25)  # a timer may wake a little early
            self.bodies.put_nowait(body)
            self.published += 1
            if self.published == 18:
                self.others.set()

    _use(monkeypatch, Hanging())
    found = load.latency(Plan(messages=20, rate=200.0, size=20))
    confirmed = found["confirmed"]
    assert confirmed.worst >= 0.2
    assert confirmed.p50 <= confirmed.worst - 0.2, "the others did not wait for the two that hung"
    assert found["lost"] == 0


def test_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, Slow(loses=True))
    plan = Plan(messages=20, rate=200.0, size=20, batch=10)
    found = load.latency(plan)
    assert (found["lost"], found["delivered"].count) == (1, 19)
    _use(monkeypatch, Slow(loses=True))
    assert load.end_to_end(plan)["lost"] == 1


@pytest.mark.parametrize("fails_at", [1, 20])
def test_a_failing_publish_is_never_a_quick_one(
    fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Slow):
        async def publish(self, body: bytes) -> None:
            await super().publish(body)
            if int(body[:12]) == fails_at - 1:
                raise ConnectionError("the broker is gone")

    _use(monkeypatch, Failing())
    with pytest.raises(ConnectionError, match="the broker is gone"):
        load.latency(Plan(messages=20, rate=500.0, size=20))


@pytest.mark.parametrize("work", [load.consume, load.end_to_end, load.latency])
def test_a_failing_consumer_fails_the_measurement(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, Slow(fails=True))
    with pytest.raises(ConnectionError, match="the broker is gone"):
        work(Plan(messages=20, rate=200.0, size=20, batch=10))


def test_the_side_may_be_unknown() -> None:
    with pytest.raises(side.NoSide):
        load.publish(Plan(server="carrier://pigeon"))
