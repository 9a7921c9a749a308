"""What every driver promises about topics that grow, and about explaining."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.client.packing import partition_of
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import PartitionsOnlyGrow, StaleMap
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry
from penstock.vocabulary.units import Part, UnitWish
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


def test_a_unit_split_for_fewer_partitions_is_split_anew_and_keys_keep_their_order(
    broker: MemoryBroker,
) -> None:
    keys = [f"k{n}" for n in range(12)]

    async def scenario() -> None:
        async with broker.client() as client, broker.client() as other:
            async with client.transaction() as unit:
                unit.publish("orders", b"0", key="k0")
            await other.alter_topic("orders", partitions=8)
            homes = {key: partition_of(key, None, 8, 0) for key in keys}
            async with client.transaction() as unit:
                for key in keys:
                    unit.publish("orders", b"1", key=key)
                    unit.publish("copies", b"1", key=key)
            receipts = [each for each in unit.receipts if each.topic == "orders"]
            assert [each.partition for each in receipts] == [homes[key] for key in keys]
            for receipt in receipts:
                assert not receipt.duplicate

            async def commit(key: str, number: int) -> None:
                async with client.transaction() as unit:
                    unit.publish("orders", b"%d" % number, key=key)

            await other.alter_topic("orders", partitions=16)
            await asyncio.gather(*(commit(key, n) for n in range(2, 6) for key in keys))
            await asyncio.gather(
                *(client.publish("orders", b"6", key=key) for key in keys),
                *(commit(key, 7) for key in keys),
            )
            got: dict[str, list[int]] = {}
            async with client.subscribe("orders", "check", kind="key_shared") as deliveries:
                for _ in range(7 * len(keys) + 1):
                    message = await first(deliveries)
                    got.setdefault(str(message.key), []).append(int(message.body or b""))
                    message.ack()
            assert got == {
                key: [*([0] if key == "k0" else []), 1, 2, 3, 4, 5, 6, 7] for key in keys
            }

    asyncio.run(scenario())


def test_a_stale_unit_is_refused_whole_with_the_new_map(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders")
            await client.create_topic("copies")
            driver: Any = client._driver
            loop = asyncio.get_running_loop()

            async def commit(number: int, sequence: int, partitions: int) -> Any:
                answer: asyncio.Future[Any] = loop.create_future()
                batch = encode_many([b"x"])
                parts = [
                    Part("copies", 0, batch, 1, 0, sequence, 1),
                    Part("orders", 0, batch, 1, 0, sequence, partitions),
                ]
                try:
                    driver.commit_unit(UnitWish(PUBLISHER, 0, number, parts), [], answer.set_result)
                    return await answer
                except StaleMap as error:
                    return error

            first = await commit(0, 0, 1)
            assert [each.base for each in first] == [0, 0]
            await client.alter_topic("orders", partitions=2)
            refused = await commit(1, 1, 1)
            assert isinstance(refused, StaleMap)
            assert (refused.partitions, refused.topic) == (2, "orders")
            assert driver.partitions("orders") == 2
            assert [row["published"] for row in await client.topics()] == [1, 1]
            again = await commit(0, 0, 1)
            assert [each.is_duplicate for each in again] == [True, True]
            assert [each.base for each in await commit(2, 1, 2)] == [1, 1]

    asyncio.run(scenario())
