"""A topic grows while a client publishes: nothing lost, nothing twice, no key out of order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.batch import Batch
from penstock.batch.encode import key_hashes
from penstock.client.client import Client
from penstock.client.growth import Flights, repack
from penstock.drivers.embedded import MEMORY
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import DiskFull, PartitionsOnlyGrow, PublishFailed, StaleMap
from penstock.vocabulary.message import Durability, Message
from penstock.vocabulary.stored import Stored


def home(key: str, partitions: int) -> int:
    return key_hashes((key,))[0] % partitions


def moving_key(before: int, after: int) -> str:
    """A key whose partition changes."""
    return next(k for n in range(100) if home(k := f"k{n}", before) != home(k, after))


class GrowingDriver:
    """A broker that grows when told, and answers when told: (partition, partitions, bodies)."""

    capabilities = MEMORY

    def __init__(self, partitions: int = 1) -> None:
        self.count = partitions
        self.sent: list[tuple[int, int, list[bytes | None]]] = []
        self.refused = 0
        self.unanswered: list[Callable[[], None]] = []
        self.is_late = False
        """A stale batch is refused by its answer, not at once."""

    def partitions(self, topic: str) -> int:
        return self.count

    def has_room(self) -> bool:
        return True

    def publish(  # noqa: PLR0917 - as the port says
        self, topic: str, partition: int, batch: bytes, count: int, publisher: bytes, epoch: int,
        sequence: int, answer: Callable[[Any], None], partitions: int = 0,
    ) -> None:  # fmt: skip
        if partitions != self.count:
            self.refused += 1
            error = StaleMap("grown", partitions=self.count)
            if not self.is_late:
                raise error
            self.unanswered.append(lambda: answer(error))
            return
        bodies = Batch(batch).bodies
        self.sent.append((partition, partitions, list(bodies)))
        stored = Stored(sequence, Durability.MEMORY, is_duplicate=False)
        self.unanswered.append(lambda: answer(stored))

    def answer(self, count: int = 1000) -> None:
        waiting, self.unanswered = self.unanswered[:count], self.unanswered[count:]
        for call in waiting:
            call()

    async def itself(self) -> "GrowingDriver":
        return self

    def client(self) -> Client:
        made: Any = self
        client = Client("memory:", self.itself)  # type: ignore[arg-type]
        client.attach_to(made, asyncio.get_running_loop())
        return client


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# -- nothing new before everything old is answered ---------------------------------------------


@pytest.mark.parametrize("is_late", [False, True])
def test_a_message_waits_until_what_went_the_old_way_is_answered(is_late: bool) -> None:
    async def scenario() -> None:
        driver = GrowingDriver(1)
        driver.is_late = is_late
        client = driver.client()
        key = moving_key(1, 2)
        first = asyncio.create_task(client.publish("t", b"1", key=key))
        await turn()
        driver.count = 2
        second = asyncio.create_task(client.publish("t", b"2", key=key))
        third = asyncio.create_task(client.publish("t", b"3", key=key))
        await turn()
        assert driver.sent == [(0, 1, [b"1"])]
        while not third.done():
            driver.answer(1)
            await turn()
        assert [row[2] for row in driver.sent] == [[b"1"], [b"2"], [b"3"]]
        assert [task.result().partition for task in (first, second, third)] == [0, 1, 1]
        assert second.result().offset == 0, "a new partition counts from 0"

    asyncio.run(scenario())


def test_a_message_whose_sender_was_cancelled_still_holds_the_others_back() -> None:
    async def scenario() -> None:
        driver = GrowingDriver(1)
        client = driver.client()
        first = asyncio.create_task(client.publish("t", b"1", key="k"))
        await turn()
        first.cancel()
        driver.count = 2
        second = asyncio.create_task(client.publish("t", b"2", key="k"))
        await turn()
        assert len(driver.sent) == 1
        with pytest.raises(asyncio.InvalidStateError):
            driver.answer()  # a driver's mailbox knows that nobody may be there any more
        await turn()
        driver.answer()
        assert (await second).partition == home("k", 2)

    asyncio.run(scenario())


def test_those_that_wait_go_first_and_in_their_order() -> None:
    async def scenario() -> None:
        driver = GrowingDriver(1)
        client = driver.client()
        key = moving_key(1, 3)
        tasks: list[asyncio.Task[Any]] = []
        tasks.append(asyncio.create_task(client.publish("t", b"0", key=key)))
        await turn()
        driver.count = 3
        tasks += [asyncio.create_task(client.publish("t", b"%d" % n, key=key)) for n in (1, 2)]
        await turn()
        late = asyncio.Event()

        async def publish_late() -> None:
            await late.wait()
            await client.publish("t", b"3", key=key)

        tasks.append(asyncio.create_task(publish_late()))
        await turn()
        late.set()  # it is about to run before those that are told now
        driver.answer()
        await turn()
        driver.answer()
        await asyncio.gather(*tasks)
        assert [row[2] for row in driver.sent] == [[b"0"], [b"1"], [b"2"], [b"3"]]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_late", [False, True])
def test_gathered_messages_are_sent_anew_together(is_late: bool) -> None:
    async def scenario() -> None:
        driver = GrowingDriver(1)
        driver.is_late = is_late
        client = driver.client()
        tasks = [asyncio.create_task(client.publish("t", b"first"))]
        await turn()
        tasks += [asyncio.create_task(client.publish("t", b"%d" % n)) for n in range(4)]
        driver.count = 4
        await turn()
        assert (len(driver.sent), driver.refused) == (1, 1)
        while not all(task.done() for task in tasks):
            driver.answer()
            await turn()
        assert sorted(b for row in driver.sent for b in row[2] if b) == [
            b"0", b"1", b"2", b"3", b"first",
        ]  # fmt: skip
        route = client._publisher.route("t")  # type: ignore[union-attr]
        assert route.is_quiet

    asyncio.run(scenario())


@pytest.mark.parametrize("is_late", [False, True])
def test_the_rest_of_a_list_is_split_anew(is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.packing.COUNT_CUT", 2)

    async def scenario() -> None:
        driver = GrowingDriver(1)
        driver.is_late = is_late
        client = driver.client()
        messages = [Message(body=b"%d" % n, key=f"k{n % 5}") for n in range(12)]
        publish = driver.publish
        calls = 0

        def counting(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                driver.count = 4
            publish(*arguments)

        monkeypatch.setattr(driver, "publish", counting)
        sending = asyncio.create_task(client.publish_many("t", messages))
        await turn()
        assert [row[2] for row in driver.sent] == [[b"0", b"1"], [b"2", b"3"]]
        while not sending.done():
            driver.answer()
            await turn()
        receipts = sending.result()
        for index, receipt in enumerate(receipts):
            count = 1 if index < 4 else 4
            assert receipt.partition == home(f"k{index % 5}", count), index
        stored = [body for _, _, bodies in driver.sent for body in bodies]
        assert sorted(int(body or b"") for body in stored) == list(range(12))

    asyncio.run(scenario())


def test_a_failure_after_the_growth_tells_exactly_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.client.packing.COUNT_CUT", 2)

    async def scenario() -> None:
        driver = GrowingDriver(1)
        client = driver.client()
        publish = driver.publish
        calls = 0

        def failing(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                driver.count = 2
            if calls == 3:
                raise DiskFull("full")
            publish(*arguments)

        monkeypatch.setattr(driver, "publish", failing)
        sending = asyncio.create_task(client.publish_many("t", [b"x" * 600_000] * 4))
        await turn()
        driver.answer()
        with pytest.raises(PublishFailed) as caught:
            await sending
        confirmed = caught.value.confirmed
        assert confirmed == list(range(len(confirmed)))
        assert confirmed
        assert sorted(confirmed + caught.value.refused) == [0, 1, 2, 3]
        assert isinstance(caught.value.__cause__, DiskFull)

    asyncio.run(scenario())


# -- with a broker -----------------------------------------------------------------------------


def test_a_growing_topic_keeps_every_message_and_the_order_of_each_key() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            admin = broker.client()
            await admin.create_topic("t")
            await admin.create_subscription("t", "s")
            clients = [broker.client() for _ in range(3)]

            async def feed(client: Client, name: str) -> None:
                for number in range(60):
                    if number % 3:
                        await client.publish("t", b"%d" % number, key=f"{name}{number % 4}")
                    else:
                        key = f"{name}{number % 4}"
                        await client.publish_many("t", [Message(body=b"%d" % number, key=key)])
                    await client.publish("t", b"plain")

            async def grow() -> None:
                for partitions in (2, 3, 5, 8):
                    await asyncio.sleep(0.01)
                    await admin.alter_topic("t", partitions=partitions)

            feeds = [feed(client, f"c{n}-") for n, client in enumerate(clients)]
            await asyncio.gather(*feeds, grow())
            topic = broker.broker.state.names["t"]
            assert len(topic.partitions) == 8
            counts = [growth.partitions for growth in topic.growth or ()]
            found: dict[str, list[tuple[int, int, int]]] = {}
            plain = 0
            for message in await admin.peek("t", 10_000):
                if message.key is None:
                    plain += 1
                    continue
                key = str(message.key)
                growths = topic.growth or []
                era = next(
                    (
                        n
                        for n, growth in enumerate(growths)
                        if message.partition < growth.partitions
                        and (message.offset or 0) < growth.ends[message.partition]
                    ),
                    len(growths),
                )
                width = [*counts, 8][era]
                assert message.partition == home(key, width)
                place = (era, message.offset or 0, int(message.body or b""))
                found.setdefault(key, []).append(place)
            assert plain == 180
            for key, rows in found.items():
                numbers = [number for _, _, number in sorted(rows)]
                assert numbers == [n for n in range(60) if n % 4 == int(key[-1])], key
            (row,) = await admin.subscriptions("t")
            assert (row["attached"], row["unexplained"]) == (360, 0)

    asyncio.run(scenario())


def test_partitions_are_added_and_never_removed() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("t", partitions=2)
            await client.alter_topic("t", partitions=4, retain_s=60)
            described = await client.describe_topic("t")
            assert (described["partitions"], described["policy"]) == (4, {"retain_s": 60.0})
            with pytest.raises(PartitionsOnlyGrow, match="cannot be removed"):
                await client.alter_topic("t", partitions=2)

    asyncio.run(scenario())


# -- parts -------------------------------------------------------------------------------------


def test_refused_messages_keep_their_place_in_the_list() -> None:
    messages = [Message(body=b"%d" % n, key=f"k{n}") for n in range(10)]
    parcels = repack(messages, [7, 3, 5], 3, 0)
    assert sorted(index for parcel in parcels for index in parcel.indexes) == [3, 5, 7]
    for parcel in parcels:
        assert list(parcel.indexes) == sorted(parcel.indexes)
        assert {home(f"k{index}", 3) for index in parcel.indexes} == {parcel.partition}
        assert Batch(parcel.batch).bodies == [messages[index].body for index in parcel.indexes]
    (plain,) = repack([b"a", b"b", "c"], [2, 1], 4, 5)
    assert (plain.partition, list(plain.indexes)) == (1, [1, 2])


def test_flights_tell_when_the_last_has_landed() -> None:
    flights = Flights()
    told: list[str] = []
    flights.when_landed(lambda: told.append("at once"))
    assert told == ["at once"]
    flights.flying = 1
    flights.parcels = 1
    answers: list[Any] = []
    flights.when_landed(lambda: told.append("late"))
    flights.parcel(answers.append)("stored")
    assert (answers, told, flights.is_quiet) == (["stored"], ["at once"], False)
    flights.flying = 0
    flights.landed()
    assert told == ["at once", "late"]
    assert flights.is_quiet
