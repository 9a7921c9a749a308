import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as library
from penstock.vocabulary.policy import Retry
from tests.cli.conftest import Penstock, broker_url

PATIENCE_S = 30.0


async def _fail(url: str, reasons: list[str]) -> None:
    async with library.connect(url) as client:
        await client.create_subscription("orders", "billing", retry=Retry(max_attempts=1))
        for number, reason in enumerate(reasons):
            await client.publish("orders", reason.encode(), id=f"order-{number}")
        async with client.subscribe("orders", "billing") as deliveries:
            for _ in reasons:
                message = await deliveries.receive(timeout_s=PATIENCE_S)
                assert message is not None
                message.reject((message.body or b"").decode())
            await deliveries.flush()
        ends = time.monotonic() + PATIENCE_S
        while len(await client.dead_letters("orders", "billing")) < len(reasons):
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)


@pytest.fixture
def letters(here: Path) -> None:
    asyncio.run(_fail(broker_url(), ["timeout", "wrong address", "timeout"]))


def _ids(penstock: Penstock, *words: str) -> list[Any]:
    return [
        row["id"] for row in penstock("dead", "list", "orders", "billing", *words, "--json").rows()
    ]


@pytest.mark.usefixtures("letters")
def test_dead_letters_are_listed_with_their_story(penstock: Penstock) -> None:
    text = penstock("dead", "list", "orders", "billing").out
    assert text.splitlines()[0].split() == [
        "POSITION",
        "DIED",
        "ATTEMPTS",
        "WHY",
        "ID",
        "REASON",
        "BODY",
    ]
    assert "rejected  order-1  wrong address  wrong address" in text
    rows = penstock("dead", "list", "orders", "billing", "--json").rows()
    assert [(row["id"], row["why"], row["reason"]) for row in rows][1] == (
        "order-1",
        "rejected",
        "wrong address",
    )


@pytest.mark.usefixtures("letters")
def test_the_places_with_dead_letters_are_listed(penstock: Penstock) -> None:
    assert penstock("dead", "list").out.splitlines()[1].split()[:3] == ["orders", "billing", "3"]
    (row,) = penstock("dead", "list", "orders", "--json").json()
    assert (row["dead_topic"], row["messages"]) == ("orders.dead.billing", 3)
    assert penstock("dead", "list", "other", "--json").json() == []


@pytest.mark.usefixtures("letters")
def test_letters_are_chosen_by_id_reason_and_number(penstock: Penstock) -> None:
    assert _ids(penstock, "--reason", "timeout") == ["order-0", "order-2"]
    assert _ids(penstock, "--id", "order-1") == ["order-1"]
    assert _ids(penstock, "--limit", "1") == ["order-0"]


@pytest.mark.usefixtures("letters")
def test_a_dry_run_changes_nothing(penstock: Penstock) -> None:
    words = ("orders", "billing", "--reason", "timeout", "--dry-run")
    assert penstock("dead", "redrive", *words).err == "2 dead letters would be redriven\n"
    assert penstock("dead", "purge", *words, "--json").json() == {"removed": 2, "dry_run": True}
    assert len(_ids(penstock)) == 3


@pytest.mark.usefixtures("letters")
def test_redriven_letters_come_back_to_their_subscription(penstock: Penstock) -> None:
    answer = penstock("dead", "redrive", "orders", "billing", "--id", "order-1", "--json")
    assert answer.json() == {"redriven": 1, "dry_run": False}
    (row,) = penstock("sub", "orders", "--subscription", "billing", "--count", "1", "--json").rows()
    assert (row["id"], row["headers"]) == ("order-1", {})
    assert _ids(penstock) == ["order-0", "order-2"]


@pytest.mark.usefixtures("letters")
def test_a_rate_spreads_the_redrive_over_time(penstock: Penstock) -> None:
    began = time.monotonic()
    assert penstock("dead", "redrive", "orders", "billing", "--rate", "20").code == 0
    assert time.monotonic() - began >= 0.1
    assert _ids(penstock) == []


@pytest.mark.usefixtures("letters")
def test_purged_letters_are_gone(penstock: Penstock) -> None:
    answer = penstock("dead", "purge", "orders", "billing", "--limit", "2", "--yes")
    assert (answer.code, answer.err) == (0, "2 dead letters removed\n")
    assert _ids(penstock) == ["order-2"]


def test_without_dead_letters_it_says_so(penstock: Penstock) -> None:
    penstock("subscriptions", "create", "orders", "billing")
    assert penstock("dead", "list").err == "there are no dead letters\n"
    assert penstock("dead", "list", "orders", "billing").err == "there are no such dead letters\n"


@pytest.mark.usefixtures("letters")
def test_an_unknown_subscription_is_answered_with_the_nearest(penstock: Penstock) -> None:
    answer = penstock("dead", "redrive", "orders", "biling")
    assert answer.code == 1
    assert "did you mean 'billing'?" in answer.err


def test_looking_for_a_letter_needs_a_place(penstock: Penstock) -> None:
    assert penstock("dead", "list", "--id", "order-1").code == 2


async def _fail_everywhere(url: str) -> None:
    async with library.connect(url) as client:
        await client.create_subscription("s/+", "p", retry=Retry(max_attempts=1))
        for topic in ("s/1", "s/2", "s/3"):
            await client.publish(topic, topic.encode(), id=topic)
        async with client.subscribe("s/+", "p") as deliveries:
            for _ in range(3):
                message = await deliveries.receive(timeout_s=PATIENCE_S)
                assert message is not None
                message.reject("no") if message.topic != "s/2" else message.ack()
            await deliveries.flush()
        ends = time.monotonic() + PATIENCE_S
        while len(await client.dead_letters("s/+", "p")) < 2:
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("here")
def test_a_pattern_has_the_dead_letters_of_all_its_topics(penstock: Penstock) -> None:
    asyncio.run(_fail_everywhere(broker_url()))
    text = penstock("dead", "list", "s/+", "p").out
    assert text.split()[0] == "TOPIC"
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["s/1", "s/3"]
    rows = penstock("dead", "list", "s/+", "p", "--id", "s/3", "--json").rows()
    assert [row["id"] for row in rows] == ["s/3"]
    redriven = penstock("dead", "redrive", "s/+", "p", "--id", "s/1", "--json").json()
    assert redriven["redriven"] == 1
    assert penstock("dead", "purge", "s/+", "p", "--yes", "--json").json()["removed"] == 1
    assert "no such dead letters" in penstock("dead", "list", "s/+", "p").err
    assert "no subscription 'q'" in penstock("dead", "list", "s/+", "q").err
