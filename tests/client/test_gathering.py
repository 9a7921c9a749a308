"""Messages published at the same time travel together; nobody notices but the broker."""

import asyncio

import pytest

from penstock.client import publisher as module
from penstock.client.gathering import BODY_BYTES_CUT, Gathered, fresh, ids_from
from penstock.client.receipts import home_of, spelled_place
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import DiskFull, PublishFailed, StoreFailed
from penstock.vocabulary.message import Durability, Receipt, render_id
from penstock.vocabulary.stored import Stored
from tests.client.test_publisher import ScriptedDriver


def test_a_lone_publisher_never_waits_for_company() -> None:
    async def scenario() -> None:
        driver = ScriptedDriver()
        client = driver.client()
        for _ in range(3):
            publishing = client.publish("t", b"x")
            with pytest.raises(StopIteration):  # the driver answered before anybody was awaited
                publishing.send(None)

        assert [count for _, _, count in driver.sent] == [1, 1, 1]

    asyncio.run(scenario())


def test_publishes_at_the_same_time_share_a_batch_and_keep_their_order() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            for _ in range(3):
                before = len(await client.peek("t", 1000)) if await client.topics() else 0
                receipts = await asyncio.gather(
                    *(client.publish("t", str(n).encode()) for n in range(50))
                )
                assert [r.offset for r in receipts] == list(range(before, before + 50))
                held = await client.peek("t", 1000)
                assert [m.body for m in held[before:]] == [str(n).encode() for n in range(50)]
                assert [m.id for m in held[before:]] == [r.id for r in receipts]
            records = (await client.stats())["records"]
            assert records < 20

    asyncio.run(scenario())


def test_whatever_comes_behind_gathered_messages_stays_behind() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await asyncio.gather(
                client.publish("t", b"0"),
                client.publish("t", b"1"),
                client.publish("t", b"2", key="k"),
                client.publish("t", b"3"),
                client.publish_many("t", [b"4", b"5"]),
                client.publish("t", "6"),
                client.publish("t", bytes(BODY_BYTES_CUT + 1)),
                client.publish("t", b"8", headers={"a": "b"}),
                client.publish("t", b"9"),
            )
            held = [message.body for message in await client.peek("t")]
            assert held[:7] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
            assert len(held[7] or b"") == BODY_BYTES_CUT + 1
            assert held[8:] == [b"8", b"9"]

    asyncio.run(scenario())


def test_a_full_batch_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_COUNT", 10)

    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            receipts = await asyncio.gather(*(client.publish("t", b"x") for _ in range(35)))
            assert [r.offset for r in receipts] == list(range(35))
            assert len({r.id for r in receipts}) == 35

    asyncio.run(scenario())


def test_gathered_messages_go_to_one_partition_in_turn() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("t", partitions=3)
            used = set()
            for _ in range(6):
                receipts = await asyncio.gather(*(client.publish("t", b"x") for _ in range(10)))
                used |= {receipt.partition for receipt in receipts}
                positions = {receipt.position for receipt in receipts}
                assert len(positions) == 10
            assert used == {0, 1, 2}

    asyncio.run(scenario())


def test_an_error_reaches_everybody_who_waits() -> None:
    async def scenario() -> None:
        driver = ScriptedDriver()
        client = driver.client()
        client._publisher.route("t").is_crowded = True  # type: ignore[union-attr]
        driver.raises = [DiskFull("full")]
        refused = await asyncio.gather(
            *(client.publish("t", b"x") for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in refused] == [DiskFull] * 3
        assert len({id(each) for each in refused}) == 3
        driver.answers = [StoreFailed("gone")]
        unknown = await asyncio.gather(
            *(client.publish("t", b"x") for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in unknown] == [StoreFailed] * 3
        good = await asyncio.gather(*(client.publish("t", b"x") for _ in range(3)))
        assert [receipt.offset for receipt in good] == [3, 4, 5]

    asyncio.run(scenario())


def test_a_cancelled_publish_does_not_disturb_its_company() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            tasks = [asyncio.create_task(client.publish("t", str(n).encode())) for n in range(5)]
            await asyncio.sleep(0)
            tasks[2].cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(done[2], asyncio.CancelledError)
            assert len(await client.peek("t")) == 5
            assert (await client.publish("t", b"x")).offset == 5

    asyncio.run(scenario())


def test_waiters_that_are_done_are_left_alone() -> None:
    async def scenario() -> None:
        gathered = Gathered("t")
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        gathered.bodies, gathered.futures = [b"0", b"1"], [first, second]
        first.cancel()
        gathered.answer(StoreFailed("gone"))
        with pytest.raises(StoreFailed):
            await second

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "stored",
    [
        Stored(40, Durability.SYNCED, is_duplicate=False),
        Stored(40, Durability.WRITTEN, is_duplicate=True),
        Stored(None, Durability.SYNCED, is_duplicate=True),
        Stored(40, Durability.SYNCED, is_duplicate=False, kept=(0, 2, 3)),
        Stored(40, Durability.SYNCED, is_duplicate=False, kept=(2, 3), places={0: 7, 1: 9}),
        Stored(
            None, Durability.SYNCED, is_duplicate=False,
            marks=((None, "a"), (5, "b"), (None, "c"), (None, "d")), homes=(3, 1, 0, 2),
        ),
    ],
)  # fmt: skip
def test_each_waiter_gets_the_receipt_of_its_own_message(stored: Stored) -> None:
    async def scenario() -> None:
        gathered = Gathered("t")
        loop = asyncio.get_running_loop()
        gathered.bodies = [b"x"] * 4
        gathered.futures = [loop.create_future() for _ in range(4)]
        gathered.partition, gathered.sequence, gathered.id_start = 2, 254, "p-0-"
        gathered.futures[1].cancel()
        gathered.answer(stored)
        for at in (0, 2, 3):
            offset, position, is_duplicate = spelled_place(stored, 2, at)
            assert gathered.futures[at].result() == Receipt(
                "t", home_of(stored, 2, at), offset, position, f"p-0-{254 + at:x}",
                stored.durability, is_duplicate,
            )  # fmt: skip

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [0, 1, 15, 254, 255, 256, 300, 4_095, 65_535, 2**40 - 3])
def test_ids_are_those_that_are_rendered_one_by_one(first: int) -> None:
    publisher = bytes(range(16))
    start = render_id(publisher, 5, 0)[:-1]
    for count in (0, 1, 2, 256, 1_000):
        expected = [render_id(publisher, 5, first + at) for at in range(count)]
        assert ids_from(start, first, count) == expected


def test_a_fresh_error_is_equal_and_not_the_same() -> None:
    error = PublishFailed("text", confirmed=[1])
    again = fresh(error)
    assert isinstance(again, PublishFailed)
    assert again is not error
    assert (str(again), again.confirmed) == ("text", [1])
    plain = ValueError("x")
    assert fresh(plain) is plain
