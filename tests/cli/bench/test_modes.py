from typing import Any

import pytest

from penstock.cli.bench import child, modes
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("mode", ["publish", "consume", "end-to-end", "latency", "callers"])
def test_a_plain_mode_is_one_child(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "run", lambda name, _plan, _tick: {"name": name})
    assert modes.measure(mode, Plan()) == {"name": mode}


def test_memory_is_two_children_in_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, plan: Plan, _tick: Any) -> dict[str, Any]:
        return {name: plan.folder}

    monkeypatch.setattr(child, "run", run)
    assert modes.measure("memory", Plan(folder="f")) == {
        "unacked": "f-unacked",
        "backlog": "f-backlog",
    }


def test_every_mode_on_disk_is_a_mode() -> None:
    assert set(modes.MODES) >= modes.ON_DISK


def test_ids_are_two_children_in_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, plan: Plan, _tick: Any) -> dict[str, Any]:
        return {name: plan.folder}

    monkeypatch.setattr(child, "run", run)
    assert modes.measure("ids", Plan(folder="f")) == {"ids": "f", "ids-memory": "f-memory"}


def test_a_reader_is_measured_on_a_store_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "run", lambda name, plan, _tick: {name: plan.folder})
    found = modes.measure("reader", Plan(folder="f"))
    assert found == {"reader-fill": "f", "reader-read": "f"}
