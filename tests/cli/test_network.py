"""Every command does over the network what it does on a folder: the same tests, another URL."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.blocking import connect_blocking
from tests.cli import (
    test_backup,
    test_dead,
    test_explain,
    test_peek,
    test_pub,
    test_stats,
    test_sub,
    test_subscriptions,
    test_tail,
    test_top,
    test_topic_log,
    test_topics,
)
from tests.cli.conftest import Penstock
from tests.server.serving import Served

MODULES = (
    test_backup,
    test_dead,
    test_explain,
    test_peek,
    test_pub,
    test_stats,
    test_sub,
    test_subscriptions,
    test_tail,
    test_top,
    test_topic_log,
    test_topics,
)
ABOUT_FOLDERS = (
    "test_a_broker_that_is_not_there",
    "test_a_store_that_is_not_there_is_not_made",
    "test_looking_creates_no_store",
    "test_without_a_store_there_are_no_numbers",
    "test_without_a_store_there_is_nothing_to_follow",
)
"""Tests of what a command does without a folder."""


def _is_about_a_broker(name: str, found: object) -> bool:
    if not name.startswith("test_") or not inspect.isfunction(found) or name in ABOUT_FOLDERS:
        return False
    return "penstock" in inspect.signature(found).parameters


for _module in MODULES:
    for _name, _found in vars(_module).items():
        if _is_about_a_broker(_name, _found):
            globals()[f"{_name}_over_the_network"] = _found
letters = test_dead.letters


@pytest.fixture(autouse=True)
def served(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that every command of the test means."""
    with connect_blocking(f"file:{here / 'served'}"):
        pass  # so that the last stop was clean, as in the other tests
    with Served(here / "served") as found:
        monkeypatch.setenv("PENSTOCK_URL", found.url)
        yield found


def test_no_store_is_made_here(penstock: Penstock, here: Path) -> None:
    assert penstock("pub", "orders", "x").code == 0
    assert not (here / "penstock-data").exists()


def test_a_broker_that_is_not_there_is_exit_code_3(
    penstock: Penstock, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "penstock://127.0.0.1:1?connect_timeout_s=0"
    for words in (
        ("pub", "t", "x"),
        ("sub", "t"),
        ("topics", "list"),
        ("stats",),
        ("top", "--once"),
    ):
        answer = penstock(*words, "--url", url, "--json")
        assert (answer.code, answer.error()["code"]) == (3, "unavailable")
    monkeypatch.setenv("PENSTOCK_URL", url)
    assert "($PENSTOCK_URL: penstock://127.0.0.1:1" in penstock("topics", "list").err
    monkeypatch.delenv("PENSTOCK_URL")
    penstock("context", "add", "shop", url)
    assert "(context 'shop': penstock://127.0.0.1:1" in penstock("topics", "list").err


def test_topic_names_are_completed(penstock: Penstock, served: Served) -> None:
    penstock("pub", "orders", "x")
    assert penstock("completion", "topics").out == "orders\n"
    here = penstock("completion", "topics", "--url", f"file:{served.folder}")
    assert here.out == "orders\n"
