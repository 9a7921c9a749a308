"""Lanes: order, retries, one answer for each batch, and back-pressure."""

import asyncio
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.drivers.foreign import lanes
from penstock.drivers.foreign.carrier import Placed, Sender
from penstock.drivers.foreign.envelope import Letter, letters_of
from penstock.drivers.foreign.lanes import Bundle, Lanes, stored_of
from penstock.drivers.foreign.office import Office
from penstock.vocabulary.errors import Closed, DiskFull, TooLarge, Unconfirmed
from penstock.vocabulary.message import Durability
from tests.drivers.foreign.memory_carrier import MemoryCarrier

SENDER = Sender(bytes(16), 1)


class Scene:
    def __init__(self, patience_s: float = 5.0) -> None:
        self.carrier = MemoryCarrier()
        self.office = Office(self.carrier)
        self.lanes = Lanes(
            self.carrier, asyncio.get_running_loop(), patience_s, self.office.ensure_topic,
            self.office.forget_topic,
        )  # fmt: skip
        self.number = 0

    def put(self, *bodies: bytes, topic: str = "orders") -> "asyncio.Future[Any]":
        batch = encode_many(list(bodies))
        letters = letters_of(batch, SENDER.publisher, SENDER.epoch, self.number)
        self.number += len(bodies)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.lanes.put(topic, Bundle(letters, len(batch), SENDER, future.set_result))
        return future

    def stored(self, topic: str = "orders") -> list[bytes]:
        return [body for _, body, _ in self.carrier.shop.topics[topic].records.values()]


def test_batches_that_come_together_go_together_and_in_order() -> None:
    async def scenario() -> None:
        scene = Scene()
        answers = [scene.put(b"0"), scene.put(b"1", b"2"), scene.put(b"3")]
        found = [await answer for answer in answers]
        assert [each.marks for each in found] == [
            ((0, "0:0"),), ((1, "0:1"), (2, "0:2")), ((3, "0:3"),),
        ]  # fmt: skip
        assert scene.stored() == [b"0", b"1", b"2", b"3"]
        assert scene.carrier.shop.calls.count("send") == 1
        await scene.lanes.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("table", ["faults", "late"])
def test_a_send_that_fails_is_repeated_and_stored_once(table: str) -> None:
    async def scenario() -> None:
        scene = Scene()
        getattr(scene.carrier.shop, table)["send"] = 2
        stored = await scene.put(b"0", b"1")
        assert (stored.is_duplicate, stored.kept) == (False, None)
        assert scene.stored() == [b"0", b"1"]
        assert scene.carrier.shop.calls.count("send") == 3

    asyncio.run(scenario())


def test_patience_ends_with_an_open_fate() -> None:
    async def scenario() -> None:
        scene = Scene(patience_s=0.2)
        scene.carrier.shop.faults["send"] = 1_000
        found = await scene.put(b"0")
        assert isinstance(found, Unconfirmed)
        assert "may or may not be stored" in str(found)

    asyncio.run(scenario())


def test_a_final_error_hits_only_the_batch_that_is_wrong() -> None:
    async def scenario() -> None:
        scene = Scene()
        send = scene.carrier.send

        async def picky(topic: str, letters: Any, sender: Any) -> list[Placed]:
            if any(letter.body == b"bad" for letter in letters):
                raise TooLarge("over the limit")
            return await send(topic, letters, sender)

        scene.carrier.send = picky  # type: ignore[method-assign]
        answers = [scene.put(b"0"), scene.put(b"bad"), scene.put(b"1")]
        found = [await answer for answer in answers]
        assert isinstance(found[1], TooLarge)
        assert scene.stored() == [b"0", b"1"]

    asyncio.run(scenario())


def test_a_full_broker_answers_at_once() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.carrier.shop.faults["send"] = 1
        scene.carrier.shop.error = DiskFull("no room")
        assert isinstance(await scene.put(b"0"), DiskFull)
        assert scene.carrier.shop.calls.count("send") == 1

    asyncio.run(scenario())


def test_a_defect_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.carrier.shop.faults["send"] = 1
        scene.carrier.shop.error = ZeroDivisionError("odd")
        assert "publishing failed" in str(await scene.put(b"0"))
        assert (await scene.put(b"1")).marks == ((0, "0:0"),)

    asyncio.run(scenario())
    assert "publishing failed" in caplog.text


def test_a_topic_that_was_deleted_is_made_again() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.put(b"0")
        scene.carrier.shop.topics.clear()
        await scene.put(b"1")
        assert scene.stored() == [b"1"]

    asyncio.run(scenario())


def test_closing_answers_what_is_under_way() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.carrier.shop.faults["send"] = 1_000
        waiting = [scene.put(b"0"), scene.put(b"1")]
        await asyncio.sleep(0.01)
        await scene.lanes.close()
        for answer in waiting:
            assert isinstance(await answer, Unconfirmed)
        with pytest.raises(Closed):
            scene.put(b"2")

    asyncio.run(scenario())


def test_publishers_wait_while_too_much_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PENDING_BYTES_MAX", 10)

    async def scenario() -> None:
        scene = Scene()
        assert scene.lanes.has_room()
        answer = scene.put(bytes(100))
        assert not scene.lanes.has_room()
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        scene.lanes.when_room(told.set_result)
        await answer
        await asyncio.wait_for(told, 5)
        again: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        scene.lanes.when_room(again.set_result)
        await asyncio.wait_for(again, 5)

    asyncio.run(scenario())


def test_only_a_given_id_makes_a_duplicate() -> None:
    letters = [
        Letter(body=b"", id="1", is_given=True), Letter(body=b"", id="2"),
        Letter(body=b"", id="3", is_given=True),
    ]  # fmt: skip
    placed = [Placed(1, "0:1", True), Placed(2, "0:2", True), Placed(3, "0:3", False)]
    stored = stored_of(letters, placed, Durability.WRITTEN)
    assert (stored.is_duplicate, stored.kept) == (False, (1, 2))
    stored = stored_of(letters[:1], placed[:1], Durability.WRITTEN)
    assert stored.is_duplicate
