import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock.cli.sample import Look, TopicRow, find_oldest, look, ordered, own, view


def subscription(topic: str, name: str, **counts: Any) -> dict[str, Any]:
    zeros = {"waiting": 0, "leased": 0, "delayed": 0, "acked": 0, "consumers": []}
    return {"topic": topic, "subscription": name, **zeros, **counts}


def seen(at: float, published: int, *rows: dict[str, Any]) -> Look:
    stats = {
        "health": {"status": "ok", "reasons": []},
        "subscriptions": len(rows),
        "consumers": 3,
        "messages_held": 5,
        "disk_bytes": 7,
    }
    topic = {"published": published, "messages": 2, "bytes": 30, "partitions": 1}
    subscriptions = {(row["topic"], row["subscription"]): row for row in rows}
    return Look(at, stats, {"orders": topic}, subscriptions)


def test_rates_are_what_happened_between_two_looks() -> None:
    before = seen(10.0, 100, subscription("orders", "a", acked=50))
    now = seen(
        12.0,
        300,
        subscription("orders", "a", acked=60, waiting=7, leased=2, delayed=1, consumers=["x"]),
        subscription("orders", "b", acked=30, waiting=3, consumers=["y"]),
    )
    found = view(before, now)
    (row,) = found.rows
    assert (row.in_s, row.out_s, row.backlog, row.consumers) == (100.0, 20.0, 10, 2)
    assert (found.in_s, found.out_s, found.health, found.topics) == (100.0, 20.0, "ok", 1)


def test_a_topic_deleted_and_made_again_has_no_negative_rate() -> None:
    (row,) = view(seen(1.0, 100), seen(2.0, 3)).rows
    assert (row.in_s, row.out_s) == (0.0, 0.0)


def test_sums_of_several_do_not_count_twice() -> None:
    rows = (
        subscription("orders", "screens", acked=9, members=["screens@a"]),
        subscription("orders", "screens@a", acked=9),
        subscription("orders", "all", acked=9, topics=["orders"]),
    )
    assert [row["subscription"] for row in own(seen(0, 0, *rows), "orders")] == ["screens@a"]


def test_orders() -> None:
    def row(topic: str, **values: Any) -> TopicRow:
        zeros = {"in_s": 0.0, "out_s": 0.0, "backlog": 0, "messages": 0, "bytes": 0, "consumers": 0}
        return TopicRow(topic, **{**zeros, **values})

    rows = [row("c"), row("b", backlog=5, oldest_s=1.0), row("a", in_s=1.0, oldest_s=9.0)]
    assert [each.topic for each in ordered(rows, "traffic")] == ["a", "b", "c"]
    assert [each.topic for each in ordered(rows, "backlog")] == ["b", "a", "c"]
    assert [each.topic for each in ordered(rows, "oldest")] == ["a", "b", "c"]
    assert [each.topic for each in ordered(rows, "name")] == ["a", "b", "c"]


def test_the_oldest_unacked_message_of_a_real_broker() -> None:
    async def scenario() -> None:
        async with penstock.connect("memory:") as client:
            await client.create_topic("orders", partitions=2)
            await client.create_subscription("orders", "billing")
            await client.create_subscription("quiet", "billing")
            receipts = [await client.publish("orders", b"x", key=str(n)) for n in range(8)]
            async with client.subscribe("orders", "billing") as deliveries:
                for _ in range(8):
                    message = await deliveries.receive(timeout_s=10)
                    assert message is not None
                    if message.position != receipts[7].position:
                        message.ack()
                await deliveries.flush()
                now = await look(client, time.time() + 100)
                found = view(now, now)
                await find_oldest(client, now, found.rows)
            oldest = {row.topic: row.oldest_s for row in found.rows}
            assert oldest["quiet"] is None
            assert oldest["orders"] == pytest.approx(100, abs=50)

    asyncio.run(scenario())
