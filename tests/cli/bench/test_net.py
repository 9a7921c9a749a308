from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import net, places, servers
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("mode", [*net.PORTS, net.CONNECTIONS])
def test_a_protocol_is_measured_on_a_server_of_its_own(mode: str, tmp_path: Path) -> None:
    # These messages are not counted out: they go through the connections until the time is over.
    messages, seconds = (20, 5.0) if mode == net.CONNECTIONS else (1_000, 0.3)
    plan = Plan(folder=str(tmp_path), messages=messages, seconds=seconds, callers=10, is_quick=True)
    ticks: list[None] = []
    found = net.measure(mode, plan, lambda: ticks.append(None))
    assert found["messages"] >= 20
    assert found.get("lost", 0) == 0
    assert found["server_resident_bytes"] > 10_000_000
    assert ticks


def test_one_publish_at_a_time_beside_disk_and_wire(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path), messages=30, seconds=0.3, is_quick=True)
    found = net.measure("net-one", plan)
    assert found["raw"]["count"] == found["loopback"]["count"] == 30
    assert found["absent"] == []


def test_who_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_names: str) -> Any:
        raise servers.Missing("not here")

    monkeypatch.setattr(servers, "program_of", missing)
    plan = Plan(folder=str(tmp_path), messages=500, seconds=0.3, batch=100, is_quick=True)
    found = net.measure("net-end-to-end", plan)
    assert found["absent"] == ["nats:", "redis:"]
    assert found["ratios"] == {}
    assert found["values"].keys() == {places.SERVE}
    assert found["lost"] == 0


def test_tasks_beside_the_others(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path), messages=200, seconds=0.3, callers=10, is_quick=True)
    found = net.measure("net-tasks", plan)
    assert found["ratios"].keys() | set(found["absent"]) == {"nats:always", "redis:always"}
    assert all(ratio > 0 for ratio in found["ratios"].values())
