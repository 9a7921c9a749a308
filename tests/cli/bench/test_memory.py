from pathlib import Path

from penstock.cli.bench import memory
from penstock.cli.bench.plan import Plan


def test_unacked_messages_take_little_state(tmp_path: Path) -> None:
    found = memory.unacked(Plan(folder=str(tmp_path / "store"), messages=5_000))
    assert (found["unacked"], found["deliveries"]) == (5_000, 50)
    assert 0 < found["state_bytes"] < 500_000


def test_a_backlog_is_held(tmp_path: Path) -> None:
    found = memory.backlog(Plan(folder=str(tmp_path / "store"), messages=1_000, callers=10))
    assert found["messages_held"] == 1_000
    assert found["resident_bytes"] > 1_000_000
