import asyncio
import time
from pathlib import Path

import pytest

from penstock.cli.bench import latency
from penstock.cli.bench.plan import Plan


def test_waiting_for_a_slow_one_counts() -> None:
    calls = 0

    async def publish() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.05 if calls == 1 else 0)

    times, _ = asyncio.run(latency.paced(publish, 100.0, 4))
    assert times[0] >= 0.05
    assert times[1] >= 0.035, "it was due after 10 ms and began after 50"
    assert times[2] >= 0.025


def test_publishes_keep_their_pace() -> None:
    async def publish() -> None:
        await asyncio.sleep(0)

    began = time.perf_counter()
    times, _ = asyncio.run(latency.paced(publish, 200.0, 20))
    assert len(times) == 20
    assert time.perf_counter() - began >= 0.095


@pytest.mark.parametrize("measure", [latency.latency, latency.busy])
def test_a_publish_is_measured_beside_the_raw_disk(measure: object, tmp_path: Path) -> None:
    assert callable(measure)
    found = measure(Plan(folder=str(tmp_path / "store"), messages=100, seconds=0.2))
    assert found["latency"].count == 100
    assert 0 < found["latency"].p50 <= found["latency"].p99
    assert found["raw"].p50 > 0


def test_memory_has_a_latency_too() -> None:
    assert latency.latency(Plan(messages=50))["latency"].count == 50


def test_turns_share_what_there_is() -> None:
    assert latency.shares(10, 3) == [3, 3, 4]
    assert latency.shares(2, 5) == [1, 1]
    assert sum(latency.shares(12_345, 10)) == 12_345
