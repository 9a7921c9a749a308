from pathlib import Path

from penstock.cli.bench import publish
from penstock.cli.bench.plan import Plan


def test_batches_are_counted_beside_the_raw_disk(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "s"), messages=5_000, batch=100, seconds=0.2, in_flight=2)
    found = publish.publish(plan)
    assert found["messages"] >= 5_000
    assert found["messages_per_s"] > 0
    assert found["raw_bytes_per_s"] > 0
    assert found["raw_share"] > 0
    assert found["group_bytes"] >= 100 * 100


def test_memory_has_no_raw_disk() -> None:
    found = publish.publish(Plan(messages=1_000, seconds=0.1))
    assert "raw_share" not in found


def test_callers_have_latencies(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "s"), messages=200, callers=10, seconds=0.1)
    found = publish.callers(plan)
    assert found["messages"] == found["latency"].count == 200
    assert 0 < found["latency"].p50 <= found["latency"].p99


def test_rates_are_per_second() -> None:
    assert publish.rates(Plan(size=10), 500, 2.0) == {
        "messages": 500,
        "seconds": 2.0,
        "messages_per_s": 250.0,
        "bytes_per_s": 2_500.0,
    }
