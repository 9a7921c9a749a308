"""Kind `key_shared`: the order of each key, whatever is nacked, by however many consumers."""

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import AckRefused
from penstock.vocabulary.message import Nack
from tests.client.keyed_rig import KEYED, Plan, Witness, run

KEYS = st.text("aaabbc.", min_size=5, max_size=40)
NACKS = st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=11)


@settings(max_examples=25, deadline=None)
@given(KEYS, NACKS, st.integers(1, 3), st.integers(2, 4), st.integers(1, 40), st.integers(0, 5))
def test_push_keeps_order_whatever_fails(
    keys: str, nacks: list[int], consumers: int, concurrency: int, size: int, pauses: int
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            plan, witness = Plan(keys, nacks), Witness()
            clients = [broker.client() for _ in range(consumers)]
            for client in clients:

                @client.on_message("t", "s", concurrency=concurrency, credit=20, **KEYED)
                async def handle(body: str) -> Nack | None:
                    witness.begin(body)
                    for _ in range((witness.handed_out * 7) % (pauses + 1)):
                        await asyncio.sleep(0)
                    is_nacked = plan.is_nacked(body)
                    witness.end(body, is_nacked=is_nacked)
                    return Nack(delay_s=0) if is_nacked else None

            await clients[0].create_subscription("t", "s", **KEYED)
            running = [asyncio.create_task(client.run()) for client in clients]
            await plan.publish(clients[0], size)
            await plan.finished(clients[0], witness)
            for client in clients:
                client.stop()
            await asyncio.wait_for(asyncio.gather(*running), 30)
            assert witness.faults == []

    run(scenario)


async def consume(
    deliveries: Any, plan: Plan, witness: Witness, in_hand: int, *, is_batched: bool
) -> None:
    while True:
        if is_batched:
            await deliveries.stocked()
            found = list(deliveries.take(in_hand))
        else:
            found = [await deliveries.receive()]
            while len(found) < in_hand and (more := await deliveries.receive(0)):
                found.append(more)
        for message in found:
            witness.handed(message.body.decode())
        settle(found, plan, witness)


def settle(taken: list[ReceivedMessage], plan: Plan, witness: Witness) -> None:
    """Nacks what the plan wants; what was taken back by that is finished all the same."""
    failed: set[str] = set()
    for message in taken:
        assert message.body is not None
        body = message.body.decode()
        key, number = body[0], int(body[1:])
        if key not in failed and plan.is_nacked(body):
            message.nack(delay_s=0)
            if key != ".":
                failed.add(key)
                witness.nacked[key].add(number)
        else:
            message.ack()
            witness.nacked[key].discard(number)


@settings(max_examples=25, deadline=None)
@given(KEYS, NACKS, st.integers(1, 3), st.integers(1, 6), st.integers(1, 40), st.booleans())
def test_pull_keeps_order_whatever_is_nacked(
    keys: str, nacks: list[int], consumers: int, in_hand: int, size: int, is_batched: bool
) -> None:
    plan, witness = Plan(keys, nacks), Witness()

    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_subscription("t", "s", **KEYED)
            streams = [await client.subscribe("t", "s", credit=15, **KEYED)
                       for _ in range(consumers)]  # fmt: skip
            tasks = [
                asyncio.create_task(consume(each, plan, witness, in_hand, is_batched=is_batched))
                for each in streams
            ]
            await plan.publish(client, size)
            await plan.finished(client, witness)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in streams:
                with suppress(AckRefused):  # of what was handed out again meanwhile
                    await stream.close()
            assert witness.faults == []

    run(scenario)
