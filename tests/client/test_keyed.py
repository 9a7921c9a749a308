"""Kind `key_shared`, awaited, iterated or in batches: what a nack drops, and what stays valid."""

import asyncio
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.keyed import KeyedDeliveries, KeyedSettling
from penstock.testing import MemoryBroker
from penstock.vocabulary.claims import Claim, Revoked
from penstock.vocabulary.errors import AckRefused, InvalidArgument, Unavailable
from tests.client.keyed_rig import KEYED, acked, messages, next_of, run
from tests.client.recorder import Recorder


def test_a_nack_drops_what_waits_of_its_key_and_nothing_else() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 .1 a3 b2"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                _, first = await next_of(deliveries)
                first.nack(delay_s=5)
                got = [await next_of(deliveries) for _ in range(3)]
                assert [body for body, _ in got] == ["b1", ".1", "b2"]
                assert await deliveries.receive(timeout_s=0.05) is None
                for _, message in got:
                    message.ack()
                broker.advance(6)
                again = [await next_of(deliveries) for _ in range(3)]
                assert [(b, m.attempt) for b, m in again] == [("a1", 2), ("a2", 1), ("a3", 1)]
                for _, message in again:
                    message.ack()
                await deliveries.flush()
                assert await acked(client) == 6
                assert not deliveries.settling.holds, "what was dropped counts as settled"

    run(scenario)


def test_iterating_skips_what_was_dropped() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 a3 b2"))
            got: list[str] = []
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                async for message in deliveries:
                    got.append(f"{message.body!r}"[2:-1])
                    if message.body == b"a1" and message.attempt == 1:
                        message.nack(delay_s=0)
                    else:
                        message.ack()
                    if message.body == b"a3":
                        break
            assert got == ["a1", "b1", "b2", "a1", "a2", "a3"]

    run(scenario)


def test_slices_on_their_way_when_a_message_is_nacked_are_dropped_too() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            other = broker.client_blocking()
            await client.publish_many("t", messages("a1"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                _, first = await next_of(deliveries)
                # Nothing is awaited meanwhile: the slice stays in the mailbox of this loop.
                other.publish_many("t", messages("a2 b1"))
                broker.settle()
                first.nack(delay_s=0)
                got = [await next_of(deliveries) for _ in range(3)]
                assert sorted(body for body, _ in got) == ["a1", "a2", "b1"]
                line = [(body, m.attempt) for body, m in got if body[0] == "a"]
                assert line == [("a1", 2), ("a2", 1)]
                assert await deliveries.receive(timeout_s=0.05) is None, "the old one never comes"
            other.close()

    run(scenario)


@pytest.mark.parametrize("max_messages", [1, 2, 100])
def test_batches_leave_out_what_was_dropped(max_messages: int) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 b2 a3 .1"))
            got: list[str] = []
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                _, first = await next_of(deliveries)
                first.nack(delay_s=5)
                async for batch in deliveries.batches(max_messages):
                    assert 1 <= len(batch) <= max_messages
                    assert [m.body for m in batch] == batch.bodies
                    got += [body.decode() for body in batch.bodies if body]
                    batch.ack()
                    if len(got) == 3:
                        broker.advance(6)
                    if len(got) == 6:
                        break
                await deliveries.flush()
                assert await acked(client) == 6
            assert got == ["b1", "b2", ".1", "a1", "a2", "a3"]

    run(scenario)


def test_a_batch_is_nacked_as_a_whole() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                for text in ("a1 b1 a2", "a3 b2", "a4"):  # a lease for each
                    await client.publish_many("t", messages(text))
                    broker.settle()
                await asyncio.sleep(0)
                batch = deliveries.take(5)
                assert batch.bodies == [b"a1", b"b1", b"a2", b"a3", b"b2"]
                batch.nack(delay_s=0)
                await deliveries.flush()  # nothing of it was refused
                again = [await next_of(deliveries) for _ in range(6)]
                for name in "ab":
                    line = [body for body, _ in again if body[0] == name]
                    assert line == sorted(line)
                attempts = {body: m.attempt for body, m in again}
                assert attempts == {"a1": 2, "a2": 2, "a3": 2, "a4": 1, "b1": 2, "b2": 2}

    run(scenario)


def test_batches_have_a_sensible_size() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            async with broker.client().subscribe("t", "s", **KEYED) as deliveries:
                with pytest.raises(InvalidArgument, match="max_messages"):
                    deliveries.take(0)

    run(scenario)


def test_the_blocking_twin_skips_them_as_well() -> None:
    with MemoryBroker() as broker, broker.client_blocking() as client:
        client.publish_many("t", messages("a1 b1 a2 a3 b2"))
        got: list[str] = []
        with client.subscribe("t", "s", **KEYED) as deliveries:
            for message in deliveries:
                assert message.body is not None
                got.append(message.body.decode())
                if message.body == b"a1" and message.attempt == 1:
                    message.nack(delay_s=0)
                else:
                    message.ack()
                if len(got) == 6:
                    break
        assert [body for body in got if body[0] == "a"] == ["a1", "a1", "a2", "a3"]
        assert [body for body in got if body[0] == "b"] == ["b1", "b2"]
        assert client.subscriptions("t")[0]["acked"] == 5


def test_what_the_application_has_stays_valid_until_it_is_handed_out_again() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 a2 a3 a4"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                (_, a1), (_, a2), (_, a3) = [await next_of(deliveries) for _ in range(3)]
                a1.nack(delay_s=5)
                a2.ack()
                await deliveries.flush()
                assert await acked(client) == 1, "taken back, and still his to finish"
                broker.advance(6)
                again = [await next_of(deliveries) for _ in range(3)]
                assert [(b, m.attempt) for b, m in again] == [("a1", 2), ("a3", 1), ("a4", 1)]
                a3.ack()
                with pytest.raises(AckRefused) as caught:
                    await deliveries.flush()
                assert [row[:3] for row in caught.value.refused] == [("t", 0, 2)]
                for _, message in again:
                    message.ack()
                await deliveries.flush()
                assert await acked(client) == 4

    run(scenario)


def test_a_refused_nack_drops_nothing() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 a2 a3"))
            async with client.subscribe("t", "s", lease_s=10, **KEYED) as deliveries:
                _, old = await next_of(deliveries)
                broker.advance(15)  # its lease runs out, a2 and a3 are taken back as well
                _, new = await next_of(deliveries)
                assert (new.body, new.attempt) == (b"a1", 2)
                old.nack()
                assert [(await next_of(deliveries))[0] for _ in range(2)] == ["a2", "a3"]
                with pytest.raises(AckRefused, match="handed out again"):
                    await deliveries.flush()

    run(scenario)


def test_what_waits_behind_a_lease_that_ran_out_comes_again_in_order() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2"))
            async with client.subscribe("t", "s", lease_s=10, **KEYED) as deliveries:
                await next_of(deliveries)
                broker.advance(15)
                got = [await next_of(deliveries) for _ in range(3)]
                assert [(b, m.attempt) for b, m in got] == [("b1", 1), ("a1", 2), ("a2", 1)]

    run(scenario)


def test_leaving_gives_back_what_was_not_handed_out_without_an_attempt() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 b2"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                _, first = await next_of(deliveries)
                first.nack(delay_s=5)
                await next_of(deliveries)  # b1: begun, and not settled
            broker.advance(6)
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                got = [await next_of(deliveries) for _ in range(4)]
                attempts = {body: message.attempt for body, message in got}
                assert attempts == {"a1": 2, "b1": 2, "a2": 1, "b2": 1}

    run(scenario)


def test_cumulative_acks_leave_out_what_was_dropped() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("b0 a1 b1 a2 b2"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                await next_of(deliveries)
                _, a1 = await next_of(deliveries)
                a1.nack(delay_s=5)
                await next_of(deliveries)
                _, b2 = await next_of(deliveries)
                assert b2.body == b"b2"
                b2.ack(cumulative=True)
                await deliveries.flush()
                assert await acked(client) == 3

    run(scenario)


def test_a_nack_that_cannot_be_sent_leaves_the_key_as_it_was() -> None:
    class Broken(Recorder):
        def give_back(self, *_: Any) -> None:
            raise Unavailable("the broker is not there")

    async def scenario() -> None:
        settling = KeyedSettling("t", asyncio.get_running_loop(), 100, is_push=False)
        settling.attachment = Broken()
        batch = encode_many(messages("a1 a2"))
        frame = Frame(batch, range(2), range(2), 1000, bytes(16), 0, 0)
        settling.hold(Slice(7, 0, 0, 2, 1, [frame]))
        first = settling.shelf.take()
        assert first is not None
        with pytest.raises(Unavailable):
            first.nack()
        second = settling.shelf.take()
        assert second is not None
        settling.attachment = recorder = Recorder()
        second.nack(delay_s=1)
        assert [row[:2] for row in recorder.given_back] == [(7, ((1, 2),))]
        settling.on_revoked(Revoked(Claim(7, 0, 1, ((1, 2),)), ((99, ((5, 6),)),)))
        assert not settling.holds

    run(scenario)


def test_a_seek_takes_back_what_waits() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 b2"))
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                await next_of(deliveries)
                await client.seek("t", "s", "0:3")
                assert [(await next_of(deliveries))[0]] == ["b2"]
                assert await deliveries.receive(timeout_s=0.05) is None

    run(scenario)


def test_qos_0_finishes_what_is_handed_out() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.publish_many("t", messages("a1 b1 a2 b2 .1 .2"))
            options: dict[str, Any] = {"kind": "key_shared", "qos": 0, "credit": 2}
            async with client.subscribe("t", "s", **options) as deliveries:
                got = [await next_of(deliveries) for _ in range(6)]
                assert [body for body, _ in got] == ["a1", "b1", "a2", "b2", ".1", ".2"]
                got[0][1].ack()
                assert await deliveries.receive(timeout_s=0.05) is None
                await deliveries.flush()

    run(scenario)


def test_other_kinds_are_served_as_before() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            async with client.subscribe("t", "s") as shared:
                assert not isinstance(shared, KeyedDeliveries)
            async with client.subscribe("t", "k", **KEYED) as keyed:
                assert isinstance(keyed, KeyedDeliveries)

    run(scenario)
