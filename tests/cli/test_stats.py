from pathlib import Path

import pytest

from penstock.cli import stats
from penstock.cli.output import Output
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


def test_a_new_store_was_never_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"is_clean": False, "torn_bytes": 0, "damages": [], "records": 0, "log_bytes": 0}
    found = {
        "health": {"status": "ok", "reasons": []}, "topics": 0, "subscriptions": 0, "consumers": 0,
        "messages_held": 0, "disk_bytes": 0, "segments": 1, "spare_segments": 0, "live_bytes": 0,
        "snapshots": 0, "records": 1, "recovery": report, "generation": 1,
    }  # fmt: skip
    stats.show(Output(), found)
    assert "recovery         nothing, the store was new" in capsys.readouterr().out
    stats.show(Output(), {**found, "generation": 2})
    assert "the last stop was not clean" in capsys.readouterr().out


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
