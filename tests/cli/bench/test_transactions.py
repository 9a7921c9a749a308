from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import transactions
from penstock.cli.bench.plan import Plan
from penstock.client.transaction import Transaction

SMALL = Plan(messages=500, callers=10)


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_every_unit_acks_one_and_publishes_one(is_on_disk: bool, tmp_path: Path) -> None:
    folder = str(tmp_path / "store") if is_on_disk else ""
    found = transactions.transactions(Plan(folder=folder, messages=500, callers=10))
    assert found["messages"] == 500
    assert (found["lost"], found["repeated"]) == (0, 0)
    assert found["plain_messages_per_s"] > 0
    assert found["share"] > 0


def test_a_budget_of_time_is_kept() -> None:
    found = transactions.transactions(Plan(seconds=0.3, callers=10))
    assert found["messages"] > 0
    assert (found["lost"], found["repeated"]) == (0, 0)


def test_an_ack_that_is_missing_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Transaction, message: Any) -> None:
        """Acks nothing."""

    monkeypatch.setattr(Transaction, "ack", forget)
    found = transactions.transactions(SMALL)
    assert (found["lost"], found["repeated"]) == (500, 0)


def test_a_result_stored_twice_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Transaction.publish

    def twice(self: Transaction, topic: str, body: bytes) -> None:
        publish(self, topic, body)
        publish(self, topic, body)

    monkeypatch.setattr(Transaction, "publish", twice)
    found = transactions.transactions(SMALL)
    assert (found["lost"], found["repeated"]) == (0, 500)
