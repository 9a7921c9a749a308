"""Waiting for messages: many waiters, cancellation, time-outs, renewal, a failed store."""

import asyncio
import errno
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.broker.broker import Broker
from penstock.client.deliveries import Deliveries
from penstock.journal.memory import MemoryDisk, Op, Verb
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import Closed, InvalidArgument, StoreFailed
from penstock.vocabulary.wishes import Wish
from tests.client.recorder import Recorder

PATIENCE_S = 30.0


async def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.002)


def test_several_tasks_share_one_subscription() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            async with client.subscribe("t", "s") as deliveries:
                got: list[list[int]] = [[], [], []]

                async def consume(mine: list[int]) -> None:
                    async for message in deliveries:
                        mine.append(message.at)
                        message.ack()
                        await asyncio.sleep(0)

                tasks = [asyncio.create_task(consume(mine)) for mine in got]
                await client.publish_many("t", [b"x"] * 30)
                await until(lambda: sum(map(len, got)) == 30)
                assert sorted(sum(got, [])) == list(range(30))  # noqa: RUF017 - three short lists
                assert all(got)
                await deliveries.close()
                await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    asyncio.run(scenario())


def test_a_receive_cancelled_just_when_it_was_woken_loses_no_message() -> None:
    class OneSlice:
        """A driver whose consumer gets a slice when the test says so."""

        async def attach(self, _wish: Wish, _sink: Any) -> Any:
            return Recorder()

    async def scenario() -> None:
        driver: Any = OneSlice()
        wish = Wish("t", "s", None, None, 10, 10, "c")
        async with Deliveries(driver, asyncio.get_running_loop(), wish) as deliveries:
            waiting = [asyncio.create_task(deliveries.receive()) for _ in range(2)]
            await asyncio.sleep(0)
            frame = Frame(encode_many([b"x"]), range(1), range(1), 0, bytes(16), 0, 0)
            deliveries.on_slice(Slice(1, 0, 0, 1, 1, [frame]))
            waiting[0].cancel()
            message = await asyncio.wait_for(waiting[1], PATIENCE_S)
            assert message is not None
            assert message.body == b"x"
            with pytest.raises(asyncio.CancelledError):
                await waiting[0]

    asyncio.run(scenario())


def test_a_subscription_must_be_opened_first_and_cannot_be_reopened() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            deliveries = client.subscribe("t", "s")
            with pytest.raises(Closed, match="not open yet"):
                await deliveries.receive()
            with pytest.raises(Closed, match="not open yet"):
                await deliveries.flush()
            async with deliveries:
                assert (deliveries.topic, deliveries.subscription) == ("t", "s")
            with pytest.raises(Closed, match="was closed"):
                await deliveries.open()
            with pytest.raises(Closed, match="was closed"):
                await deliveries.flush()

    asyncio.run(scenario())


def test_leases_are_renewed_while_messages_wait_in_the_client() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", [b"0", b"1"])
            async with client.subscribe("t", "s", lease_s=0.05) as deliveries:
                assert await deliveries.receive(timeout_s=PATIENCE_S) is not None
                renewed: list[Any] = []
                attachment: Any = deliveries._attachment
                attachment.extend = lambda *given: renewed.append(given)
                await until(lambda: len(renewed) > 2)
                [[(_, start, end)], seconds] = renewed[0]
                assert (start, end) == (1, None)
                assert seconds == pytest.approx(0.055)

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [0, -1, 10**9])
def test_a_batch_has_a_sensible_size(size: int) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish("t", b"x")
            async with client.subscribe("t", "s") as deliveries:
                with pytest.raises(InvalidArgument, match="max_messages"):
                    async for _ in deliveries.batches(size):
                        pass

    asyncio.run(scenario())


def test_batches_and_single_messages_can_be_mixed() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", [str(n) for n in range(10)])
            async with client.subscribe("t", "s") as deliveries:
                one = await deliveries.receive()
                assert one is not None
                batch = await anext(aiter(deliveries.batches(4)))
                other = await deliveries.receive()
                assert other is not None
                assert [one.body, *batch.bodies, other.body] == [b"0", b"1", b"2", b"3", b"4", b"5"]
                other.ack(cumulative=True)
                await deliveries.flush()
                assert (await client.subscriptions("t"))[0]["acked"] == 6

    asyncio.run(scenario())


def test_stopping_hands_out_nothing_more() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", [b"0", b"1"])
            async with client.subscribe("t", "s") as deliveries:
                message = await deliveries.receive()
                assert message is not None
                deliveries.stop()
                assert await deliveries.receive() is None
                message.ack()
            async with client.subscribe("t", "s") as deliveries:
                again = await deliveries.receive()
                assert again is not None
                assert (again.body, again.attempt) == (b"1", 1)

    asyncio.run(scenario())


class FailingBroker(MemoryBroker):
    """Its disk can be told to fail."""

    def open_broker(self) -> Broker:
        self.disk = MemoryDisk(record=True)
        return Broker.open(self.disk, clock=self.clock, timers=False)

    def fail(self) -> None:
        def refuse(op: Op) -> None:
            if op.verb is Verb.SYNC:
                raise OSError(errno.EIO, "Input/output error")

        self.disk.on_operation = refuse


def test_a_failed_store_tells_publishers_and_consumers() -> None:
    async def scenario() -> None:
        broker = FailingBroker()
        client = broker.client()
        await client.publish_many("t", [b"0", b"1"])
        deliveries = await client.subscribe("t", "s", credit=1)
        message = await deliveries.receive(timeout_s=PATIENCE_S)
        assert message is not None
        waiting = asyncio.create_task(deliveries.receive())
        await asyncio.sleep(0)
        broker.fail()
        with pytest.raises(StoreFailed, match="Input/output"):
            await client.publish("t", b"2")
        with pytest.raises(StoreFailed):
            await client.publish("t", b"3")
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(waiting, PATIENCE_S)
        with pytest.raises(StoreFailed):
            async for _ in deliveries:
                pass
        message.ack()
        with pytest.raises(StoreFailed):
            await deliveries.flush()
        with pytest.raises(StoreFailed):
            await deliveries.close()
        await client.close()
        broker.close()

    asyncio.run(scenario())
