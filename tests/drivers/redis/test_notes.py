"""Numbers of Redis entries, and what a reader holds."""

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.redis.notes import id_of_number, number_of_id
from tests.contracts.suites.world import first, unique


@given(st.integers(0, 1 << 42), st.integers(0, (1 << 20) - 1))
def test_numbers_rise_with_ids_and_come_back(milliseconds: int, sequence: int) -> None:
    id = f"{milliseconds}-{sequence}"
    assert id_of_number(number_of_id(id)) == id
    assert number_of_id(f"{milliseconds + 1}-0") > number_of_id(id)


def test_a_reader_holds_what_it_has_not_committed(redis_server: Callable[..., Server]) -> None:
    topic = unique("held")

    async def scenario() -> None:
        async with penstock.connect(f"redis://{redis_server().address}") as client:
            reader = await client.reader(topic, "tables", owner="run-1")
            await client.create_subscription(topic, "billing")
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for _ in range(3):
                    (await first(deliveries)).ack()
            [(_, start, end)] = await reader.plan()
            assert [m.body async for m in reader.read(0, start, end)] == [b"0", b"1", b"2"]
            rows = await client.subscriptions(topic)
            assert [row["subscription"] for row in rows] == ["billing"]
            await reader.commit({0: end})
            async with client.subscribe(topic, "billing"):
                pass  # leaving trims
            assert (await client.describe_topic(topic))["messages"] == 0
            late = await client.reader(topic, "late", owner="x", start="latest")
            await client.publish(topic, b"3")
            assert len(await late.plan(max_bytes=1)) == 1

    asyncio.run(scenario())
