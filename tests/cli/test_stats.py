from pathlib import Path

from penstock.cli import stats
from tests.cli.conftest import Penstock


def test_the_broker_in_numbers(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello")
    text = penstock("stats").out
    assert "health           ok" in text
    assert "messages held    1" in text
    assert "the last stop was clean" in text
    assert "billing" in text


def test_the_numbers_for_machines(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    penstock("pub", "orders", "hello")
    found = penstock("stats", "--json").json()
    assert (found["messages_held"], found["subscriptions"]) == (1, 1)
    assert found["recovery"]["is_clean"] is True
    assert found["subscription_rows"][0]["waiting"] == 1


def test_one_topic_in_numbers(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    assert penstock("stats", "--topic", "orders", "--json").json()["messages"] == 1
    assert penstock("stats", "--topic", "ordesr").code == 1


def test_without_a_store_there_are_no_numbers(penstock: Penstock, here: Path) -> None:
    assert penstock("stats").code == 3
    assert list(here.iterdir()) == []


def test_a_stop_that_was_not_clean_is_told() -> None:
    report = {
        "is_clean": False,
        "torn_bytes": 700,
        "damages": [],
        "records": 12,
        "log_bytes": 5_000,
    }
    assert stats.recovery_line(report) == (
        "the last stop was not clean: 12 records (5.0 kB) read again, "
        "700 unconfirmed bytes set aside"
    )


def test_the_time_may_be_confirmed(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    found = penstock("stats", "--confirm-time", "--json").json()
    assert found["time"] == {"is_paused": False, "jumped_s": 0.0}
