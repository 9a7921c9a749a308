"""Lanes: order, retries, one answer for each batch, and back-pressure."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.batch import encode_many
from penstock.drivers.foreign import lanes
from penstock.drivers.foreign.carrier import Outcome, Placed, Sender, Traits
from penstock.drivers.foreign.envelope import Letter, letters_of
from penstock.drivers.foreign.lanes import Bundle, Lanes, stored_of
from penstock.drivers.foreign.office import Office
from penstock.vocabulary.errors import (
    Closed,
    DiskFull,
    PenstockError,
    TooLarge,
    Unavailable,
    Unconfirmed,
    UnknownTopic,
)
from penstock.vocabulary.message import Durability
from tests.drivers.foreign.memory_carrier import MemoryCarrier

SENDER = Sender(bytes(16), 1)


class PostingCarrier(MemoryCarrier):
    """Its posts land when the test says so, with what the test says."""

    def __init__(self, *, is_ordered: bool) -> None:
        super().__init__(traits=Traits(orders_posts=is_ordered))
        self.posts: list[tuple[list[Letter], Callable[[Outcome], None]]] = []
        self.can_post = True

    def post(
        self, _topic: str, letters: Sequence[Letter], _sender: Sender,
        told: Callable[[Outcome], None],
    ) -> bool:  # fmt: skip
        if self.can_post:
            self.posts.append((list(letters), told))
        return self.can_post

    def bodies(self, at: int) -> list[bytes | None]:
        return [letter.body for letter in self.posts[at][0]]

    def land(self, at: int, problem: PenstockError | None = None, topic: str = "orders") -> None:
        letters, told = self.posts[at]
        if problem is None:
            told([self.put(self.shop.topics[topic], letter) for letter in letters])
        else:
            told(problem)


class Scene:
    def __init__(self, patience_s: float = 5.0, carrier: MemoryCarrier | None = None) -> None:
        self.carrier = carrier or MemoryCarrier()
        self.office = Office(self.carrier)
        self.lanes = Lanes(
            self.carrier, asyncio.get_running_loop(), patience_s, self.office.ensure_topic,
            self.office.forget_topic, self.office.knows_topic,
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


# -- posts -----------------------------------------------------------------------------------------


async def posting(*, is_ordered: bool) -> tuple[Scene, PostingCarrier]:
    """Lanes whose topic is known, so that nothing needs a task."""
    carrier = PostingCarrier(is_ordered=is_ordered)
    scene = Scene(carrier=carrier)
    await scene.office.ensure_topic("orders")
    return scene, carrier


def test_a_post_needs_no_task_and_what_comes_meanwhile_goes_together() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=False)
        answers = [scene.put(b"0"), scene.put(b"1", b"2"), scene.put(b"3")]
        assert carrier.bodies(0) == [b"0"]  # before anything was awaited
        assert len(carrier.posts) == 1
        carrier.land(0)
        assert carrier.bodies(1) == [b"1", b"2", b"3"]
        carrier.land(1)
        found = [await answer for answer in answers]
        assert [each.marks for each in found] == [
            ((0, "0:0"),), ((1, "0:1"), (2, "0:2")), ((3, "0:3"),),
        ]  # fmt: skip
        assert "send" not in carrier.shop.calls

    asyncio.run(scenario())


def test_posts_of_an_ordered_broker_are_under_way_together_and_answered_in_order() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=True)
        answers = [scene.put(str(number).encode()) for number in range(3)]
        assert [carrier.bodies(at) for at in range(3)] == [[b"0"], [b"1"], [b"2"]]
        carrier.land(2)
        carrier.land(1)
        assert not any(answer.done() for answer in answers)
        carrier.land(0)
        assert all(answer.done() for answer in answers)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("problem", [Unavailable("away"), UnknownTopic("gone")])
def test_a_post_that_failed_is_sent_again_before_all_later_ones(
    problem: PenstockError, is_ordered: bool
) -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=is_ordered)
        answers = [scene.put(b"0"), scene.put(b"1")]
        carrier.land(0, problem)
        late = scene.put(b"2")
        if is_ordered:
            assert "send" not in carrier.shop.calls  # the second one is still under way
            assert len(carrier.posts) == 2
            carrier.land(1, problem)
        found = [await answer for answer in (*answers, late)]
        assert [each.marks for each in found] == [((at, f"0:{at}"),) for at in range(3)]
        assert scene.stored() == [b"0", b"1", b"2"]
        scene.put(b"3")
        assert carrier.bodies(-1) == [b"3"]  # by post again

    asyncio.run(scenario())


def test_nothing_is_sent_again_behind_something_later() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=True)
        away, gone = scene.put(b"0"), scene.put(b"1")
        later, last = scene.put(b"2"), scene.put(b"3")
        carrier.land(0, Unavailable("away"))
        carrier.land(1, UnknownTopic("gone"))
        carrier.land(2)
        carrier.land(3, UnknownTopic("gone"))
        assert isinstance(await away, Unconfirmed)
        assert isinstance(await gone, UnknownTopic)
        assert (await later).marks == ((0, "0:0"),)
        assert (await last).marks == ((1, "0:1"),)
        assert scene.stored() == [b"2", b"3"]

    asyncio.run(scenario())


def test_a_final_error_of_a_post_hits_only_the_batch_that_is_wrong() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=False)
        first, one, other = scene.put(b"0"), scene.put(b"1"), scene.put(b"2")
        carrier.land(0, TooLarge("over the limit"))
        assert isinstance(await first, TooLarge)
        assert carrier.bodies(1) == [b"1", b"2"]
        carrier.shop.faults["send"] = 2  # both together, then the first alone
        carrier.shop.error = TooLarge("over the limit")
        carrier.land(1, TooLarge("over the limit"))
        assert isinstance(await one, TooLarge)
        assert (await other).marks == ((0, "0:0"),)

    asyncio.run(scenario())


def test_a_full_broker_is_told_of_a_post_too() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=False)
        first, second = scene.put(b"0"), scene.put(b"1")
        carrier.land(0, DiskFull("no room"))
        assert isinstance(await first, DiskFull)
        carrier.land(1, Unconfirmed("who knows"))
        assert isinstance(await second, Unconfirmed)
        assert "send" not in carrier.shop.calls

    asyncio.run(scenario())


def test_a_carrier_that_cannot_post_just_now_sends() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=True)
        under_way = scene.put(b"0")
        carrier.can_post = False
        waiting = scene.put(b"1")
        await asyncio.sleep(0)
        assert "send" not in carrier.shop.calls  # not past what is under way
        carrier.land(0)
        assert (await under_way).marks == ((0, "0:0"),)
        assert (await waiting).marks == ((1, "0:1"),)
        assert carrier.shop.calls.count("send") == 1

    asyncio.run(scenario())


def test_closing_gives_up_posts_once() -> None:
    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=False)
        answers = [scene.put(b"0"), scene.put(b"1")]
        await scene.lanes.close()
        for answer in answers:
            assert isinstance(await answer, Unconfirmed)
        carrier.land(0)  # too late, and nobody is answered twice
        assert scene.lanes.has_room()

    asyncio.run(scenario())


def test_lanes_of_topics_nobody_writes_to_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "IDLE_MAX", 2)

    async def scenario() -> None:
        scene, carrier = await posting(is_ordered=False)
        for number in range(5):
            await scene.put(b"x", topic=f"t{number}")  # by a task: it makes the topic
        for number in range(5):
            answer = scene.put(b"y", topic=f"t{number}")
            carrier.land(-1, topic=f"t{number}")
            await answer
        assert len(scene.lanes._lanes) <= 3

    asyncio.run(scenario())
