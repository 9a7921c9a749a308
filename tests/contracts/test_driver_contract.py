"""What every driver promises, told through the client. One suite for `file:` and `memory:`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    AckRefused,
    AlreadySettled,
    Closed,
    InvalidName,
    NotLeased,
    PositionNotHeld,
    ReaderFenced,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    UnknownSubscription,
    UnknownTopic,
)
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry
from tests.contracts.driver_world import bodies, first, make, receive_all
from tests.contracts.suites.world import PATIENCE_S


@pytest.fixture(params=["file", "memory", "remote"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryBroker]:
    with make(request.param, tmp_path / "store") as made:
        yield made


async def counts(client: Client, name: str = "billing") -> dict[str, Any]:
    rows = await client.subscriptions("orders")
    return next(row for row in rows if row["subscription"] == name)


# -- publish -------------------------------------------------------------------------------------


def test_a_receipt_says_where_the_message_is_and_how_safe(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"0")
            receipt = await client.publish("orders", b"1", id="mine")
            assert (receipt.topic, receipt.partition, receipt.offset) == ("orders", 0, 1)
            assert (receipt.position, receipt.id, receipt.duplicate) == ("0:1", "mine", False)
            assert receipt.durability is client.capabilities.durability

    asyncio.run(scenario())


def test_a_message_arrives_as_it_was_published(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            sent = await client.publish("orders", b"body", key="k", id="i", headers={"a": "b"})
            async with client.subscribe("orders", "billing") as deliveries:
                got = await first(deliveries)
                assert (got.body, got.key, got.id, got.headers) == (b"body", "k", "i", {"a": "b"})
                assert (got.topic, got.partition, got.offset) == ("orders", 0, sent.offset)
                assert (got.position, got.attempt, got.priority) == (sent.position, 1, 0)
                assert got.published_at == broker.clock.wall() / 1000

    asyncio.run(scenario())


def test_text_json_empty_and_absent_bodies_stay_apart(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", "grüße")
            await client.publish("orders", json={"n": [1, None]})
            await client.publish("orders", json=None)
            await client.publish("orders", b"")
            await client.publish("orders", key=b"\xff")
            async with client.subscribe("orders", "billing") as deliveries:
                got = await receive_all(deliveries)
                assert [m.body for m in got] == [
                    "grüße".encode(), b'{"n":[1,null]}', b"null", b"", None,
                ]  # fmt: skip
                assert got[1].json() == {"n": [1, None]}
                assert got[4].key == b"\xff"

    asyncio.run(scenario())


def test_the_id_in_the_receipt_is_the_id_of_the_received_message(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            one = await client.publish("orders", b"0")
            many = await client.publish_many("orders", [b"1", Message(body=b"2", id="two"), b"3"])
            async with client.subscribe("orders", "billing") as deliveries:
                got = [message.id for message in await receive_all(deliveries)]
                assert got == [one.id, *(receipt.id for receipt in many)]
                assert len(set(got)) == 4

    asyncio.run(scenario())


def test_many_messages_are_one_lazy_sequence_of_receipts(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            receipts = await client.publish_many("orders", (str(n) for n in range(25_000)))
            assert len(receipts) == 25_000
            assert receipts.duplicates == []
            assert [r.offset for r in receipts[24_998:]] == [24_998, 24_999]
            assert receipts[-1].position == "0:24999"
            assert (await client.describe_topic("orders"))["messages"] == 25_000

    asyncio.run(scenario())


def test_a_key_always_goes_to_the_same_partition_and_keeps_its_order(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders", partitions=4)
            keyed = [Message(body=str(n), key=f"key-{n % 7}") for n in range(70)]
            receipts = list(await client.publish_many("orders", keyed))
            single = await client.publish("orders", b"last", key="key-3")
            places: dict[int, int] = {}
            for number, receipt in enumerate(receipts):
                assert places.setdefault(number % 7, receipt.partition) == receipt.partition
            assert single.partition == places[3]
            assert len(set(places.values())) > 1
            async with client.subscribe("orders", "billing") as deliveries:
                got = await receive_all(deliveries)
                for number in range(7):
                    mine = [m.at for m in got if m.key == f"key-{number}"]
                    assert mine == sorted(mine)
                at = {(m.partition, m.offset): m.body for m in got}
                for message, receipt in zip(keyed, receipts, strict=True):
                    assert message.body is not None
                    assert receipt.offset is not None
                    assert at[receipt.partition, receipt.offset] == str(message.body).encode()

    asyncio.run(scenario())


def test_messages_without_key_and_id_are_spread_over_the_partitions(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders", partitions=3)
            singles = [await client.publish("orders", b"x") for _ in range(6)]
            batch = await client.publish_many("orders", [b"x"] * 4)
            assert {receipt.partition for receipt in singles} == {0, 1, 2}
            assert len({receipt.partition for receipt in batch}) == 1
            same = [await client.publish("orders", b"x", id="same") for _ in range(3)]
            assert len({receipt.partition for receipt in same}) == 1

    asyncio.run(scenario())


def test_a_topic_that_was_deleted_and_created_again_takes_messages(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders", partitions=2)
            before = [await client.publish("orders", b"x") for _ in range(4)]
            await client.delete_topic("orders")
            after = await client.publish("orders", b"y")
            assert after.offset == 0
            assert after.id not in {receipt.id for receipt in before}
            assert (await client.describe_topic("orders"))["messages"] == 1

    asyncio.run(scenario())


def test_nobody_publishes_to_dead_letter_topics(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            with pytest.raises(InvalidName, match="dead"):
                await client.publish("orders.dead.billing", b"x")

    asyncio.run(scenario())


# -- deliver -------------------------------------------------------------------------------------


def test_messages_come_in_the_order_of_their_publishing(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for number in range(20):
                await client.publish("orders", str(number))
            await client.publish_many("orders", [str(n) for n in range(20, 40)])
            async with client.subscribe("orders", "billing") as deliveries:
                got = await bodies(deliveries)
                assert got == [str(n).encode() for n in range(40)]

    asyncio.run(scenario())


def test_every_subscription_gets_every_message(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for name in ("billing", "stock"):
                await client.create_subscription("orders", name)
            await client.publish("orders", b"x")
            for name in ("billing", "stock"):
                async with client.subscribe("orders", name) as deliveries:
                    assert await bodies(deliveries) == [b"x"]

    asyncio.run(scenario())


def test_consumers_of_one_subscription_share_the_messages(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with (
            broker.client() as client,
            client.subscribe("orders", "billing", credit=10) as one,
            client.subscribe("orders", "billing", credit=10) as other,
        ):
            await client.publish_many("orders", [str(n) for n in range(20)])
            parts = [await bodies(one), await bodies(other)]
            assert all(parts)
            got = [int(body or b"-1") for part in parts for body in part]
            assert sorted(got) == list(range(20))

    asyncio.run(scenario())


def test_credit_bounds_what_a_consumer_holds(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"x"] * 20)
            async with client.subscribe("orders", "billing", credit=5) as deliveries:
                got = await receive_all(deliveries)
                assert len(got) == 5
                assert (await counts(client))["leased"] == 5
                got[0].ack()
                await deliveries.flush()
                assert len(await receive_all(deliveries)) == 1

    asyncio.run(scenario())


def test_an_ephemeral_subscription_sees_only_what_comes_later(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"before")
            async with client.subscribe("orders") as deliveries:
                await client.publish("orders", b"after")
                assert await bodies(deliveries) == [b"after"]
            assert await client.subscriptions("orders") == []
            assert (await client.describe_topic("orders"))["messages"] == 2

    asyncio.run(scenario())


def test_a_new_subscription_starts_where_it_is_asked_to(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"0")
            broker.advance(10)
            moment = broker.clock.wall() / 1000
            await client.publish("orders", b"1")
            await client.publish("orders", b"2")
            for number, (start, expected) in enumerate(
                [
                    (None, [b"0", b"1", b"2"]),
                    ("earliest", [b"0", b"1", b"2"]),
                    ("0:2", [b"2"]),
                    (moment, [b"1", b"2"]),
                    ("latest", []),
                ]
            ):
                async with client.subscribe("orders", f"s{number}", start=start) as deliveries:
                    got = [message.body for message in await receive_all(deliveries)]
                    assert got == expected, start
            with pytest.raises(PositionNotHeld, match="0:0"):
                await client.subscribe("orders", "beyond", start="0:17")

    asyncio.run(scenario())


def test_a_subscription_goes_on_where_it_was(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1"])
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
            async with client.subscribe("orders", "billing", start="latest") as deliveries:
                assert await bodies(deliveries) == [b"1"]

    asyncio.run(scenario())


def test_receive_returns_none_when_nothing_comes(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client, client.subscribe("orders", "b") as deliveries:
            assert await deliveries.receive(timeout_s=0.01) is None
            assert await deliveries.receive(timeout_s=0) is None

    asyncio.run(scenario())


def test_iteration_waits_for_messages_and_ends_when_the_subscription_is_closed(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        async with broker.client() as client, client.subscribe("orders", "b") as deliveries:
            got: list[bytes | None] = []

            async def consume() -> None:
                async for message in deliveries:
                    got.append(message.body)
                    message.ack()
                    if len(got) == 3:
                        await deliveries.close()

            consumer = asyncio.create_task(consume())
            for number in range(3):
                await client.publish("orders", str(number))
            await asyncio.wait_for(consumer, PATIENCE_S)
            assert got == [b"0", b"1", b"2"]
            with pytest.raises(Closed):
                await deliveries.receive()

    asyncio.run(scenario())


def test_batches_hold_what_waits_and_settle_with_one_call(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [str(n) for n in range(25)])
            await client.publish("orders", "25")
            async with client.subscribe("orders", "billing") as deliveries:
                sizes: list[int] = []
                got: list[bytes | None] = []
                async for batch in deliveries.batches(max_messages=10):
                    sizes.append(len(batch))
                    got.extend(batch.bodies)
                    assert [message.body for message in batch] == batch.bodies
                    batch.ack()
                    with pytest.raises(AlreadySettled):
                        batch.nack()
                    if len(got) == 26:
                        break
                assert got == [str(n).encode() for n in range(26)]
                assert max(sizes) == 10
                await deliveries.flush()
                assert (await counts(client))["acked"] == 26

    asyncio.run(scenario())


def test_a_batch_settles_what_was_not_settled_one_by_one(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2", b"3"])
            async with client.subscribe("orders", "billing") as deliveries:
                async for batch in deliveries.batches():
                    batch[0].ack()
                    batch[1].reject("bad")
                    batch.nack(delay_s=0)
                    break
                again = await receive_all(deliveries)
                assert [(m.body, m.attempt) for m in again] == [(b"2", 2), (b"3", 2)]
                broker.settle()
                assert [m.body for m in await client.dead_letters("orders", "billing")] == [b"1"]

    asyncio.run(scenario())


# -- settle --------------------------------------------------------------------------------------


def test_an_acked_message_never_comes_back(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
                await deliveries.flush()
                assert (await counts(client))["acked"] == 1
                broker.advance(3600)
                assert await deliveries.receive(timeout_s=0.01) is None
            async with client.subscribe("orders", "billing") as deliveries:
                assert await deliveries.receive(timeout_s=0.01) is None

    asyncio.run(scenario())


def test_acks_are_sent_without_a_flush(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
                for _ in range(1000):
                    await asyncio.sleep(0.005)
                    if (await counts(client))["acked"] == 1:
                        break
                assert (await counts(client))["acked"] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("second", ["ack", "nack", "reject", "extend"])
def test_a_message_is_settled_once(broker: MemoryBroker, second: str) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                message = await first(deliveries)
                message.ack()
                assert message.is_settled
                with pytest.raises(AlreadySettled, match="0:0"):
                    getattr(message, second)(*([5] if second == "extend" else []))

    asyncio.run(scenario())


def test_a_nacked_message_comes_back_after_its_back_off(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).nack(reason="busy")
                broker.advance(0.2)
                assert await deliveries.receive(timeout_s=0.01) is None
                broker.advance(0.4)
                assert (await first(deliveries)).attempt == 2

    asyncio.run(scenario())


def test_a_nack_may_say_how_long_to_wait(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).nack(delay_s=0)
                again = await first(deliveries)
                again.nack(delay_s=100)
                broker.advance(99)
                assert await deliveries.receive(timeout_s=0.01) is None
                broker.advance(2)
                assert (await first(deliveries)).attempt == 3

    asyncio.run(scenario())


def test_a_message_that_is_not_settled_in_time_comes_back(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing", lease_s=10) as deliveries:
                await first(deliveries)
                broker.advance(8)
                assert await deliveries.receive(timeout_s=0.01) is None
                broker.advance(4)
                assert (await first(deliveries)).attempt == 2

    asyncio.run(scenario())


def test_messages_that_wait_in_the_client_keep_their_lease(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
                broker.advance(300)
                second = await first(deliveries)
                assert (second.body, second.attempt) == (b"1", 1)
                broker.advance(28)
                second.ack()
                third = await first(deliveries)
                assert (third.body, third.attempt) == (b"2", 1)
                third.ack()
                await deliveries.flush()

    asyncio.run(scenario())


def test_extend_gives_one_message_more_time_and_no_other(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            async with client.subscribe("orders", "billing") as deliveries:
                got = [await first(deliveries) for _ in range(3)]
                got[1].extend(100)
                broker.advance(60)
                again = await receive_all(deliveries)
                assert [(m.body, m.attempt) for m in again] == [(b"0", 2), (b"2", 2)]
                for message in again:
                    message.ack()
                broker.advance(35)
                got[1].ack()
                await deliveries.flush()
                assert (await counts(client))["acked"] == 3

    asyncio.run(scenario())


def test_an_extension_runs_out_too(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1"])
            async with client.subscribe("orders", "billing") as deliveries:
                message = await first(deliveries)
                message.extend(50)
                broker.advance(45)
                assert [m.body for m in await receive_all(deliveries)] == [b"1"]
                broker.advance(10)
                again = await receive_all(deliveries)
                assert [(m.body, m.attempt) for m in again] == [(b"0", 2)]

    asyncio.run(scenario())


def test_a_cumulative_ack_finishes_what_was_handed_out_before(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for number in range(6):
                await client.publish("orders", str(number))
            async with client.subscribe("orders", "billing") as deliveries:
                got = [await first(deliveries) for _ in range(5)]
                got[1].nack(delay_s=0)
                got[3].ack(cumulative=True)
                with pytest.raises(AlreadySettled):
                    got[2].nack()
                got[0].ack()
                await deliveries.flush()
                assert (await counts(client))["acked"] == 3
            async with client.subscribe("orders", "billing") as deliveries:
                left = [(m.body, m.attempt) for m in await receive_all(deliveries)]
                assert sorted(left) == [(b"1", 2), (b"4", 2), (b"5", 1)]

    asyncio.run(scenario())


def test_an_ack_is_refused_when_the_message_was_handed_out_again(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                late = await first(deliveries)
                broker.advance(31)
                again = await first(deliveries)
                late.ack()
                with pytest.raises(AckRefused, match="handed out again") as caught:
                    await deliveries.flush()
                assert caught.value.refused == [("orders", 0, 0, "it was handed out again")]
                again.ack()
                await deliveries.flush()

    asyncio.run(scenario())


def test_leaving_the_block_tells_what_was_refused(broker: MemoryBroker) -> None:
    async def ack_too_late(client: Client, *, fails: bool) -> None:
        async with client.subscribe("orders", "billing") as deliveries:
            late = await first(deliveries)
            broker.advance(31)
            await first(deliveries)
            late.ack()
            if fails:
                raise RuntimeError("the error of the block")

    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            with pytest.raises(AckRefused):
                await ack_too_late(client, fails=False)
            with pytest.raises(RuntimeError, match="the error of the block"):
                await ack_too_late(client, fails=True)

    asyncio.run(scenario())


def test_leaving_hands_back_what_was_not_settled(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2", b"3"])
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).ack()
                await first(deliveries)
            async with client.subscribe("orders", "billing") as deliveries:
                left = [(m.body, m.attempt) for m in await receive_all(deliveries)]
                assert left == [(b"1", 2), (b"2", 1), (b"3", 1)]

    asyncio.run(scenario())


def test_a_message_cannot_be_settled_after_the_block(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            async with client.subscribe("orders", "billing") as deliveries:
                got = [await first(deliveries) for _ in range(3)]
            with pytest.raises(Closed):
                got[0].ack()
            with pytest.raises(Closed):
                got[1].nack()
            with pytest.raises(Closed):
                got[2].extend(5)

    asyncio.run(scenario())


# -- dead letters --------------------------------------------------------------------------------


def test_a_rejected_message_is_a_dead_letter_with_its_story(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            sent = await client.publish("orders", b"x", key="k", headers={"a": "b"})
            async with client.subscribe("orders", "billing", consumer="worker-1") as deliveries:
                (await first(deliveries)).reject("no such customer")
                broker.settle()
                assert await deliveries.receive(timeout_s=0.01) is None
            [dead] = await client.dead_letters("orders", "billing")
            assert (dead.body, dead.key, dead.id, dead.attempt) == (b"x", "k", sent.id, 1)
            assert dead.headers["a"] == "b"
            assert dead.headers["penstock-dead-why"] == "rejected"
            assert dead.headers["penstock-dead-reason"] == "no such customer"
            assert dead.headers["penstock-dead-consumer"] == "worker-1"
            assert (await counts(client))["dead"] == 1
            with pytest.raises(NotLeased, match="only looked at"):
                dead.ack()

    asyncio.run(scenario())


def test_a_message_that_fails_too_often_is_a_dead_letter(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            retry = Retry(first_s=1, max_s=2, max_attempts=3)
            async with client.subscribe("orders", "billing", retry=retry) as deliveries:
                for attempt in (1, 2, 3):
                    message = await first(deliveries)
                    assert message.attempt == attempt
                    message.nack(reason=f"failure {attempt}")
                    broker.advance(3)
                assert await deliveries.receive(timeout_s=0.01) is None
            [dead] = await client.dead_letters("orders", "billing")
            assert dead.headers["penstock-dead-why"] == "max_attempts"
            assert dead.headers["penstock-dead-reason"] == "failure 3"
            assert dead.attempt == 3

    asyncio.run(scenario())


def test_a_pattern_has_the_dead_letters_of_all_its_topics(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("s/none")
            async with client.subscribe("s/+", "p") as deliveries:
                for number in range(6):
                    await client.publish(f"s/{number % 3}", str(number))
                for message in await receive_all(deliveries):
                    message.reject("odd" if int(message.body or b"") % 2 else "even")
                await deliveries.flush()
                broker.settle()
                found = [m.body for m in await client.dead_letters("s/+", "p")]
                assert found == [b"0", b"3", b"1", b"4", b"2", b"5"]
                assert len(await client.dead_letters("s/+", "p", 3)) == 3
                assert await client.redrive("s/+", "p", dry_run=True) == 6
                assert await client.redrive("s/+", "p", reason_contains="odd", limit=2) == 2
                assert await client.redrive("s/+", "p", reason_contains="odd", rate=1000) == 1
                again = [m.body for m in await receive_all(deliveries)]
                assert sorted(again) == [b"1", b"3", b"5"]  # type: ignore[type-var]
            assert await client.purge_dead("s/+", "p", dry_run=True) == 3
            assert await client.purge_dead("s/+", "p", limit=1) == 1
            assert await client.purge_dead("s/+", "p") == 2
            assert await client.dead_letters("s/+", "p") == []
            for call in (client.dead_letters, client.redrive, client.purge_dead):
                with pytest.raises(UnknownSubscription, match=r"has no subscription 'q'; .*'p'"):
                    await call("s/+", "q")

    asyncio.run(scenario())


def test_a_redriven_message_keeps_counting_and_gets_all_its_tries_again(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            receipt = await client.publish("orders", b"x")
            retry = Retry(first_s=1, max_s=2, max_attempts=2)
            async with client.subscribe("orders", "billing", retry=retry) as deliveries:
                for start in (1, 3, 5):
                    for attempt in (start, start + 1):
                        message = await first(deliveries)
                        assert (message.id, message.attempt) == (receipt.id, attempt)
                        message.nack()
                        broker.advance(3)
                    assert await deliveries.receive(timeout_s=0.01) is None
                    [dead] = await client.dead_letters("orders", "billing")
                    assert dead.attempt == start + 1
                    assert dead.headers["penstock-dead-attempts"] == str(start + 1)
                    assert await client.redrive("orders", "billing") == 1
                last = await first(deliveries)
                assert last.attempt == 7
                last.ack()
                await deliveries.flush()
            found = await counts(client)
            assert (found["attached"], found["acked"], found["unexplained"]) == (1, 1, 0)

    asyncio.run(scenario())


def test_dead_letters_go_back_to_their_subscription_only(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            for name in ("billing", "stock"):
                await client.create_subscription("orders", name)
            for number in range(4):
                await client.publish("orders", str(number), id=f"id-{number}")
            async with client.subscribe("orders", "stock") as deliveries:
                await bodies(deliveries)
            async with client.subscribe("orders", "billing") as deliveries:
                for message in await receive_all(deliveries):
                    message.reject("odd" if int(message.body or b"0") % 2 else "even")
                broker.settle()
                redrive = client.redrive
                assert await redrive("orders", "billing", dry_run=True) == 4
                assert await redrive("orders", "billing", id="id-2") == 1
                assert await redrive("orders", "billing", reason_contains="od", limit=1) == 1
                assert await redrive("orders", "billing", rate=1000) == 2
                back = await receive_all(deliveries)
                assert sorted(m.id for m in back) == ["id-0", "id-1", "id-2", "id-3"]
                assert back[0].headers == {}
                for message in back:
                    message.ack()
                await deliveries.flush()
            assert await client.dead_letters("orders", "billing") == []
            async with client.subscribe("orders", "stock") as deliveries:
                assert await bodies(deliveries) == []

    asyncio.run(scenario())


def test_dead_letters_can_be_received_like_any_message(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish("orders", b"x")
            async with client.subscribe("orders", "billing") as deliveries:
                (await first(deliveries)).reject("bad")
                broker.settle()
            async with client.subscribe("orders.dead.billing", "care") as deliveries:
                dead = await first(deliveries)
                assert (dead.body, dead.attempt) == (b"x", 2)
                assert dead.headers["penstock-dead-reason"] == "bad"
                dead.ack()

    asyncio.run(scenario())


def test_dead_letters_can_be_removed_for_good(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            async with client.subscribe("orders", "billing") as deliveries:
                for message in await receive_all(deliveries):
                    message.reject("bad")
                broker.settle()
            assert await client.purge_dead("orders", "billing", limit=2, dry_run=True) == 2
            assert await client.purge_dead("orders", "billing", limit=2) == 2
            assert len(await client.dead_letters("orders", "billing")) == 1
            assert await client.purge_dead("orders", "billing") == 1

    asyncio.run(scenario())


def test_dead_letters_of_what_does_not_exist_are_an_error(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            with pytest.raises(UnknownTopic, match="orders"):
                await client.dead_letters("orders", "billing")
            await client.publish("orders", b"x")
            with pytest.raises(UnknownSubscription, match="billing"):
                await client.dead_letters("orders", "billing")
            with pytest.raises(UnknownSubscription):
                await client.redrive("orders", "billing")
            with pytest.raises(UnknownSubscription):
                await client.purge_dead("orders", "billing")

    asyncio.run(scenario())


# -- topics and subscriptions --------------------------------------------------------------------


def test_topics_are_created_described_changed_and_deleted(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders", partitions=2, retain_s=60)
            await client.create_topic("orders", partitions=2, retain_s=60)
            with pytest.raises(TopicExists):
                await client.create_topic("orders", partitions=3)
            await client.alter_topic("orders", retain_s=None)
            described = await client.describe_topic("orders")
            assert (described["partitions"], described["policy"]["retain_s"]) == (2, None)
            assert [row["topic"] for row in await client.topics()] == ["orders"]
            await client.delete_topic("orders")
            assert await client.topics() == []
            with pytest.raises(UnknownTopic):
                await client.describe_topic("orders")

    asyncio.run(scenario())


def test_subscriptions_are_created_changed_and_deleted(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_subscription("orders", "billing", lease_s=5)
            await client.create_subscription("orders", "billing", lease_s=5)
            with pytest.raises(SubscriptionConflict):
                await client.create_subscription("orders", "billing", lease_s=6)
            await client.alter_subscription("orders", "billing", retry=Retry(max_attempts=2))
            row = await counts(client)
            policy = row["policy"]
            assert policy == {"lease_s": 5.0, "retry": {"max_attempts": 2}}
            async with client.subscribe("orders", "billing"):
                with pytest.raises(SubscriptionInUse):
                    await client.delete_subscription("orders", "billing")
            await client.delete_subscription("orders", "billing")
            assert await client.subscriptions() == []

    asyncio.run(scenario())


def test_settings_given_to_subscribe_change_an_existing_subscription(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_subscription("orders", "billing", lease_s=5)
            async with client.subscribe("orders", "billing"):
                assert (await counts(client))["policy"] == {"lease_s": 5.0}
            async with client.subscribe("orders", "billing", lease_s=7):
                assert (await counts(client))["policy"] == {"lease_s": 7.0}

    asyncio.run(scenario())


def test_looking_at_a_topic_takes_nothing(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.publish_many("orders", [b"0", b"1", b"2"])
            assert [m.body for m in await client.peek("orders", 2)] == [b"0", b"1"]
            assert [m.body for m in await client.peek("orders", after=1)] == [b"1", b"2"]
            assert (await client.peek("orders"))[0].attempt == 0
            async with client.subscribe("orders", "billing") as deliveries:
                assert len(await bodies(deliveries)) == 3

    asyncio.run(scenario())


def test_the_broker_is_described_in_numbers(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client, client.subscribe("orders", "billing"):
            numbers = await client.stats()
            assert (numbers["topics"], numbers["subscriptions"], numbers["consumers"]) == (1, 1, 1)
            assert numbers["health"]["status"] == "ok"

    asyncio.run(scenario())


# -- the end -------------------------------------------------------------------------------------


def test_a_closed_client_refuses_everything_and_closing_twice_is_harmless(
    broker: MemoryBroker,
) -> None:
    async def scenario() -> None:
        client = broker.client()
        deliveries = await client.subscribe("orders", "billing")
        await client.close()
        await client.close()
        for call in (
            client.publish("orders", b"x"),
            client.publish_many("orders", [b"x"]),
            client.topics(),
            client.open(),
        ):
            with pytest.raises(Closed, match="connect again"):
                await call
        with pytest.raises(Closed):
            client.subscribe("orders", "billing")
        with pytest.raises(Closed):
            await deliveries.receive()
        await deliveries.close()

    asyncio.run(scenario())


def test_consumers_learn_that_the_broker_was_closed(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client, client.subscribe("orders", "b") as deliveries:
            waiting = asyncio.create_task(deliveries.receive())
            await asyncio.sleep(0)
            broker.close()
            with pytest.raises(Closed, match="broker was closed"):
                await waiting
            with pytest.raises(Closed):
                await client.publish("orders", b"x")

    asyncio.run(scenario())


def test_a_subscription_is_deleted_only_when_nobody_uses_it(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            deliveries = await client.subscribe("orders", "billing")
            with pytest.raises(SubscriptionInUse):
                await client.delete_subscription("orders", "billing")
            await deliveries.close()
            await client.delete_subscription("orders", "billing")

    asyncio.run(scenario())


def test_publishers_wait_while_the_broker_is_full(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            engine = broker.broker.engine
            with engine.lock:
                engine.pending_bytes = 1 << 40
                sending = asyncio.create_task(client.publish_many("orders", [b"x"]))
                single = asyncio.create_task(client.publish("orders", b"y"))
                for _ in range(5):
                    await asyncio.sleep(0)
                assert not sending.done()
                assert not single.done()
            broker.settle()
            await asyncio.wait_for(asyncio.gather(sending, single), PATIENCE_S)
            assert (await client.describe_topic("orders"))["messages"] == 2

    asyncio.run(scenario())


# -- readers -------------------------------------------------------------------------------------


def test_a_reader_plans_reads_and_commits_ranges(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            await client.create_topic("orders", 2)
            reader = await client.reader("orders", "tables", owner="run-1")
            many = [Message(body=b"%d" % number, key=b"%d" % number) for number in range(20)]
            await client.publish_many("orders", many)
            ranges = await reader.plan(12)
            assert sum(end - start for _, start, end in ranges) == 12
            for _ in range(2):
                found = [
                    message.position
                    for partition, start, end in ranges
                    async for message in reader.read(partition, start, end)
                ]
                assert found == [f"{p}:{o}" for p, low, high in ranges for o in range(low, high)]
            await reader.commit({partition: end for partition, _, end in ranges})
            row = await counts(client, "tables")
            assert (row["attached"], row["acked"], row["waiting"]) == (20, 12, 8)
            assert await reader.planned() == []

    asyncio.run(scenario())


def test_a_new_owner_of_a_reader_fences_the_old_one(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as old, broker.client() as new:
            first_run = await old.reader("orders", "tables", owner="run-1")
            second_run = await new.reader("orders", "tables", owner="run-2")
            with pytest.raises(ReaderFenced):
                await first_run.plan()
            assert await second_run.plan() == []

    asyncio.run(scenario())


def test_a_planned_range_waits_however_long_it_takes(broker: MemoryBroker) -> None:
    async def scenario() -> None:
        async with broker.client() as client:
            reader = await client.reader("orders", "tables", owner="run-1")
            await client.publish("orders", b"x")
            await reader.plan()
            broker.advance(30 * 24 * 3600)
            assert [message.body async for message in reader.read(0, 0, 1)] == [b"x"]

    asyncio.run(scenario())
