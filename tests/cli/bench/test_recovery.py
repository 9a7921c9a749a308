from pathlib import Path

from penstock.cli.bench import recovery
from penstock.cli.bench.plan import Plan


def test_a_killed_store_is_opened_again_with_everything(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "store"), messages=20_000)
    found = recovery.measure_all(plan)
    assert found["confirmed"] >= 20_000
    assert found["held"] >= found["confirmed"]
    assert found["lost"] == 0
    assert found["killed_log_bytes"] > 0
    assert found["clean_open_s"] > 0


def test_a_clean_stop_is_seen(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "store"), messages=1_000)
    assert recovery.fill(plan)["messages"] >= 1_000
    found = recovery.reopen(plan)
    assert found["is_clean"]
    assert found["messages_held"] >= 1_000
