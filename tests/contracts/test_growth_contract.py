"""What every driver promises about topics that grow, and about explaining."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import PartitionsOnlyGrow, StaleMap
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry
from tests.contracts.driver_world import first, make, receive_all

PUBLISHER = b"\x01" + bytes(15)


@pytest.fixture(params=["file", "memory", "remote"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryBroker]:
    with make(request.param, tmp_path / "store") as made:
        yield made


def test_consumers_that_are_there_get_what_comes_to_new_partitions(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client, broker.client() as other:
            async with client.subscribe("orders", "billing") as deliveries:
                await client.publish("orders", b"0", key="k0")
                await other.alter_topic("orders", partitions=4)
                messages = [Message(body=b"%d" % n, key=f"k{n}") for n in range(1, 20)]
                receipts = await client.publish_many("orders", messages)
                assert {receipt.partition for receipt in receipts} == {0, 1, 2, 3}
                got = await receive_all(deliveries)
                assert sorted(int(m.body or b"") for m in got) == list(range(20))
                for message in got:
                    message.ack()
                await deliveries.flush()
            (row,) = await client.subscriptions("orders")
            assert (row["attached"], row["acked"], row["unexplained"]) == (20, 20, 0)
            with pytest.raises(PartitionsOnlyGrow):
                await client.alter_topic("orders", partitions=3)

    asyncio.run(scenario())


def test_a_stale_batch_is_refused_with_the_new_map_and_a_retry_is_answered(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders")
            driver: Any = client._driver
            loop = asyncio.get_running_loop()

            async def send(sequence: int, partitions: int) -> Any:
                """The answer, or the error, however it comes."""
                answer: asyncio.Future[Any] = loop.create_future()
                batch = encode_many([b"x"])
                try:
                    driver.publish(
                        "orders", 0, batch, 1, PUBLISHER, 0, sequence, answer.set_result, partitions
                    )
                    found = await answer
                except StaleMap as error:
                    found = error
                return found

            assert (await send(0, 1)).base == 0
            await client.alter_topic("orders", partitions=2)
            refused = await send(1, 1)
            assert isinstance(refused, StaleMap)
            assert refused.partitions == driver.partitions("orders") == 2
            again = await send(0, 1)
            assert (again.base, again.is_duplicate) == (0, True)
            assert (await send(1, 2)).base == 1

    asyncio.run(scenario())


def test_a_stuck_message_is_explained_all_the_way(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_subscription("orders", "billing", retry=Retry(max_attempts=2))
            await client.publish("orders", b"0", id="a")
            assert (await client.explain("orders", id="a"))["reason"] == "no-consumer"
            async with client.subscribe("orders", "billing", consumer="w1") as deliveries:
                message = await first(deliveries)
                found = await client.explain("orders", id="a")
                assert (found["reason"], found["consumer"]) == ("leased", "w1")
                message.nack(delay_s=5, reason="try later")
                await deliveries.flush()
                found = await client.explain("orders", id="a")
                assert (found["reason"], found["last_reason"]) == ("backing-off", "try later")
                broker.advance(6)
                (await first(deliveries)).reject("hopeless")
                await deliveries.flush()
                broker.settle()
                found = await client.explain("orders", id="a")
                assert found["reason"] == "dead-lettered"
                assert found["dead_topic"] == "orders.dead.billing"

    asyncio.run(scenario())
