"""A batch is a list of messages that settles with one call."""

import asyncio
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.batches import ReceivedBatch
from penstock.client.received import Hold
from penstock.client.settling import Settling
from penstock.vocabulary.errors import AlreadySettled, InvalidArgument
from tests.client.recorder import Recorder


def made(recorder: Recorder, *sizes: int) -> tuple[ReceivedBatch, list[Hold]]:
    settling = Settling("orders", asyncio.get_running_loop(), 1000, renews_handed=False)
    attachment: Any = recorder
    settling.attachment = attachment
    batch = ReceivedBatch(settling)
    holds = []
    at = 0
    for lease_id, size in enumerate(sizes, start=1):
        offsets = range(at, at + size)
        bodies = [str(offset).encode() for offset in offsets]
        frame = Frame(encode_many(bodies), offsets, range(size), 0, bytes(16), 0, 0)
        hold = settling.hold(Slice(lease_id, 0, at, at + size, 1, [frame]))
        batch.add(hold, hold.take(size))
        holds.append(hold)
        at += size
    return batch, holds


def test_a_batch_is_a_sequence_of_messages_of_several_leases() -> None:
    async def scenario() -> None:
        batch, _ = made(Recorder(), 2, 3)
        assert len(batch) == 5
        assert batch.bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert [message.offset for message in batch] == [0, 1, 2, 3, 4]
        assert batch[-1] is batch[4]
        assert [m.offset for m in batch[1:3]] == [1, 2]
        assert "5 messages of orders" in repr(batch)

    asyncio.run(scenario())


def test_ack_is_one_range_for_each_lease() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        batch, _ = made(recorder, 2, 3)
        batch.ack()
        batch._settling.send()
        assert recorder.acked == [(1, ((0, 2),)), (2, ((2, 5),))]
        with pytest.raises(AlreadySettled):
            batch.ack()

    asyncio.run(scenario())


def test_nack_leaves_out_what_was_settled_before() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        batch, _ = made(recorder, 4)
        batch[1].ack()
        batch[2].reject("bad")
        batch.nack(delay_s=1, reason="later")
        assert recorder.given_back[-1][1] == ((0, 1), (3, 4))
        batch._settling.send()
        assert recorder.acked == [(1, ((1, 2),))]
        assert not batch._settling.holds

    asyncio.run(scenario())


def test_ack_leaves_out_what_was_settled_before() -> None:
    async def scenario() -> None:
        recorder = Recorder()
        batch, _ = made(recorder, 4)
        batch[1].nack()
        batch[2].ack()
        batch.ack()
        batch._settling.send()
        assert recorder.acked == [(1, ((0, 1), (2, 4)))]

    asyncio.run(scenario())


def test_a_wrong_nack_settles_nothing() -> None:
    async def scenario() -> None:
        batch, _ = made(Recorder(), 1)
        with pytest.raises(InvalidArgument, match="delay_s"):
            batch.nack(delay_s=-1)
        with pytest.raises(InvalidArgument, match="reason"):
            batch.nack(reason=5)  # type: ignore[arg-type]
        batch.ack()

    asyncio.run(scenario())
