"""Publishers have an identity and count what they send; a refused batch uses up no number."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import publisher as module
from penstock.client.client import Client, connect
from penstock.client.publisher import Publisher, generated_id, named_id, rising_epoch
from penstock.client.receipts import Parcel
from penstock.drivers.embedded import MEMORY
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    DiskFull,
    InvalidArgument,
    PublisherFenced,
    PublisherForgotten,
    PublishFailed,
    StoreFailed,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import UnitWish


class ScriptedDriver:
    """Answers each publish with what the script says: a number of messages, or an error."""

    capabilities = MEMORY

    def __init__(self, partitions: int = 1) -> None:
        self.sent: list[tuple[int, int, int]] = []
        """(partition, sequence, count)."""
        self.raises: list[Exception | None] = []
        self.answers: list[Exception | None] = []
        self.count = partitions

    def partitions(self, topic: str) -> int:
        return self.count

    def has_room(self) -> bool:
        return True

    def publish(  # noqa: PLR0917 - as the port says
        self, topic: str, partition: int, batch: bytes, count: int, publisher: bytes, epoch: int,
        sequence: int, answer: Callable[[Any], None], partitions: int = 0,
    ) -> None:  # fmt: skip
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error
        self.sent.append((partition, sequence, count))
        late = self.answers.pop(0) if self.answers else None
        answer(late or Stored(sequence, Durability.MEMORY, is_duplicate=False))

    async def itself(self) -> "ScriptedDriver":
        return self

    def client(self) -> Client:
        made: Any = self
        client = Client("memory:", self.itself)  # type: ignore[arg-type]
        client.attach_to(made, asyncio.get_running_loop())
        return client


def test_generated_and_named_ids_tell_themselves_apart() -> None:
    assert len(generated_id()) == len(named_id("a")) == 16
    assert generated_id() != generated_id()
    assert all(generated_id()[0] & 1 == 0 for _ in range(50))
    assert all(named_id(f"name-{n}")[0] & 1 == 1 for n in range(50))
    assert named_id("a") == named_id("a") != named_id("b")


@pytest.mark.parametrize("name", ["", "x" * 257, 5])
def test_a_publisher_name_has_a_length(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="publisher"):
        named_id(name)


def test_epochs_of_a_name_always_rise() -> None:
    epochs = [rising_epoch(b"rising") for _ in range(100)]
    assert epochs == sorted(set(epochs))


def test_sequence_numbers_advance_by_the_count_of_each_batch() -> None:
    async def scenario() -> None:
        driver = ScriptedDriver()
        client = driver.client()
        await client.publish("t", b"x")
        await client.publish_many("t", [b"x"] * 5)
        await client.publish("t", b"x")
        await client.publish("other", b"x")
        assert driver.sent == [(0, 0, 1), (0, 1, 5), (0, 6, 1), (0, 0, 1)]

    asyncio.run(scenario())


def test_each_partition_counts_for_itself() -> None:
    async def scenario() -> None:
        driver = ScriptedDriver(partitions=2)
        client = driver.client()
        for _ in range(4):
            await client.publish("t", b"x")
        assert sorted(driver.sent) == [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]

    asyncio.run(scenario())


def test_a_batch_that_is_refused_at_once_uses_up_no_number() -> None:
    async def scenario() -> None:
        driver = ScriptedDriver()
        driver.raises = [None, DiskFull("full")]
        client = driver.client()
        await client.publish("t", b"x")
        with pytest.raises(DiskFull):
            await client.publish("t", b"x")
        await client.publish("t", b"x")
        assert driver.sent == [(0, 0, 1), (0, 1, 1)]

    asyncio.run(scenario())


def test_a_late_error_is_raised_anew_for_each_waiter() -> None:
    async def scenario() -> None:
        error = StoreFailed("the sync failed")
        driver = ScriptedDriver()
        driver.answers = [error, error]
        client = driver.client()
        caught = await asyncio.gather(
            client.publish("t", b"x"), client.publish("t", b"x"), return_exceptions=True
        )
        assert [type(each) for each in caught] == [StoreFailed, StoreFailed]
        assert caught[0] is not caught[1]

    asyncio.run(scenario())


def test_part_of_a_list_that_failed_is_told_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.packing.COUNT_CUT", 2)

    async def scenario() -> None:
        driver = ScriptedDriver()
        driver.raises = [None, None, None, DiskFull("full")]
        driver.answers = [None, StoreFailed("gone"), PublisherFenced("old")]
        client = driver.client()
        with pytest.raises(PublishFailed) as caught:
            await client.publish_many("t", [b"x"] * 9)
        assert caught.value.confirmed == [0, 1]
        assert caught.value.unknown == [2, 3]
        assert caught.value.refused == [4, 5, 6, 7, 8]
        assert isinstance(caught.value.__cause__, DiskFull)
        assert "2 messages are confirmed, 5 were not stored" in str(caught.value)

    asyncio.run(scenario())


def test_a_later_client_of_the_same_name_takes_over() -> None:
    async def scenario() -> None:
        async with connect("memory:named", publisher="feed") as old:
            await old.publish("t", b"0")
            async with connect("memory:named", publisher="feed") as new:
                receipt = await new.publish("t", b"1")
                assert (receipt.offset, receipt.duplicate) == (1, False)
                with pytest.raises(PublisherFenced):
                    await old.publish("t", b"2")

    asyncio.run(scenario())


def test_a_named_publisher_survives_a_restart_of_the_store(tmp_path: Any) -> None:
    async def scenario() -> None:
        for offset in range(2):
            async with connect(f"file:{tmp_path}/store", publisher="feed") as client:
                receipt = await client.publish("t", b"x")
                assert (receipt.offset, receipt.duplicate) == (offset, False)

    asyncio.run(scenario())


def test_topics_beyond_the_limit_are_forgotten_without_repeating_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROUTES_MAX", 2)

    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            ids = [(await client.publish(f"t{n % 4}", b"x")).id for n in range(12)]
            assert len(await client.peek("t0")) == 3
            by_topic = [{ids[n] for n in range(12) if n % 4 == topic} for topic in range(4)]
            assert [len(each) for each in by_topic] == [3, 3, 3, 3]

    asyncio.run(scenario())


def test_a_cancelled_publish_does_not_disturb_the_next() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            sending = asyncio.create_task(client.publish("t", b"0"))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert (await client.publish("t", b"1")).offset == 1

    asyncio.run(scenario())


def test_a_publisher_belongs_to_one_driver() -> None:
    async def scenario() -> None:
        driver: Any = ScriptedDriver()
        made = Publisher(driver, asyncio.get_running_loop(), None)
        assert made.route("t") is made.route("t")
        assert len(made.id) == 16

    asyncio.run(scenario())


def test_the_batches_of_a_unit_are_numbered_and_a_refused_unit_uses_up_no_number() -> None:
    async def scenario() -> None:
        asked: list[UnitWish] = []
        errors: list[Exception] = [DiskFull("full")]

        class UnitScript(ScriptedDriver):
            def commit_unit(self, wish: UnitWish, claims: Any, answer: Any) -> None:
                if errors:
                    raise errors.pop()
                asked.append(wish)

        script: Any = UnitScript(2)
        publisher = Publisher(script, asyncio.get_running_loop(), None)
        route = publisher.route("t")
        loads = [
            (route, Parcel(0, b"a", range(3))),
            (route, Parcel(1, b"b", range(1))),
            (route, Parcel(0, b"c", range(2))),
        ]
        with pytest.raises(DiskFull):
            publisher.commit(loads, [], print)
        parts = publisher.commit(loads, [], print)
        assert [(p.partition, p.sequence, p.count) for p in parts] == [
            (0, 0, 3), (1, 0, 1), (0, 3, 2),
        ]  # fmt: skip
        assert route.sequences == [5, 1]
        errors.append(PublisherForgotten("who?"))
        again = publisher.commit(loads[:1], [], print)
        assert (again[0].epoch, again[0].sequence) == (1, 0)
        assert [(wish.epoch, wish.sequence) for wish in asked] == [(0, 0), (2, 0)]
        named = Publisher(script, asyncio.get_running_loop(), "me")
        errors.append(PublisherForgotten("who?"))
        with pytest.raises(PublisherForgotten):
            named.commit([], [], print)

    asyncio.run(scenario())
