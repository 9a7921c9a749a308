"""Between any two brokers: everything arrives once, as it was, and a second run adds nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.bridging import Bridged, Wanted, bridge
from penstock.client.bridging.copying import (
    AT_LEAST_ONCE,
    BATCH_MAX,
    EXACTLY_ONCE,
    ONCE_FOR_A_WHILE,
    default_name,
)
from penstock.client.bridging.sources import Ending
from penstock.vocabulary.errors import (
    InvalidArgument,
    ReaderFenced,
    SubscriptionConflict,
    UnknownTopic,
    Unsupported,
    UsageError,
)
from penstock.vocabulary.message import Message
from tests.client.bridging.world import IDLE_S, SILENCE_S, Row, all_of, contents, filled, some
from tests.drivers.remote.rig import Served
from tests.servers.fixtures import unique

COUNT = 250


def by_key(rows: list[Row]) -> dict[object, list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


async def there_and_again(source: str, target: str, topic: str, expected: str) -> None:
    """Copies, checks every field and the order of each key, and copies again."""
    async with filled(source, topic, some(COUNT)) as origin:
        before = await contents(origin, topic)
        wanted = Wanted(topic=topic, to_topic=f"{topic}.copy", batch=40, verify=True)
        found = await bridge(source, target, wanted=wanted)
        assert (found.copied, found.known, found.guarantee) == (COUNT, 0, expected)
        assert found.verified is not None
        assert found.verified.is_equal, found.verified
        assert found.verified.compared == COUNT
        async with penstock.connect(target) as goal:
            after = await contents(goal, f"{topic}.copy")
            assert by_key(after) == by_key(before)
            assert (await bridge(source, target, wanted=wanted)).copied == 0
            await origin.publish(topic, b"one more", id="more")
            found = await bridge(source, target, wanted=wanted)
            assert found.copied == 1
            assert found.verified is not None
            assert found.verified.is_equal
            assert len(await contents(goal, f"{topic}.copy")) == COUNT + 1


def test_from_a_folder_to_a_folder(tmp_path: Path) -> None:
    urls = f"file:{tmp_path / 'a'}", f"file:{tmp_path / 'b'}"
    asyncio.run(there_and_again(*urls, "orders", EXACTLY_ONCE))


def test_from_a_folder_to_nats_and_back(tmp_path: Path, nats_server: Server) -> None:
    nats = f"nats://{nats_server.address}"
    asyncio.run(there_and_again(f"file:{tmp_path / 'a'}", nats, unique("t"), ONCE_FOR_A_WHILE))
    asyncio.run(there_and_again(nats, f"file:{tmp_path / 'b'}", unique("t"), EXACTLY_ONCE))


def test_from_redis_to_a_folder_and_back(
    tmp_path: Path, redis_server: Callable[..., Server]
) -> None:
    redis = f"redis://{redis_server().address}"
    asyncio.run(there_and_again(redis, f"file:{tmp_path / 'b'}", unique("t"), EXACTLY_ONCE))
    asyncio.run(there_and_again(f"file:{tmp_path / 'a'}", redis, unique("t"), EXACTLY_ONCE))


def test_from_redis_to_nats(nats_server: Server, redis_server: Callable[..., Server]) -> None:
    redis, nats = f"redis://{redis_server().address}", f"nats://{nats_server.address}"
    asyncio.run(there_and_again(redis, nats, unique("t"), ONCE_FOR_A_WHILE))


def test_partitions_are_kept_and_keys_stay_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        source, target = "memory:bridge-a", "memory:bridge-b"
        messages = [Message(body=b"%d" % at, key=f"k{at % 9}") for at in range(COUNT)]
        async with (
            filled(source, "t", messages, partitions=3) as origin,
            penstock.connect(target) as goal,
        ):
            found = await bridge(source, target, wanted=Wanted(topic="t", batch=17, verify=True))
            assert found.verified is not None
            assert found.verified.is_equal
            assert (await goal.describe_topic("t"))["partitions"] == 3
            assert await contents(goal, "t") == await contents(origin, "t")
            narrow = Wanted(topic="t", to_topic="narrow", subscription="narrow", verify=True)
            await goal.create_topic("narrow", 2)
            found = await bridge(source, target, wanted=narrow)
            assert found.verified is not None
            assert found.verified.is_equal
            assert found.verified.compared == COUNT

    asyncio.run(scenario())


def test_special_messages_stay_special_and_what_cannot_is_refused_by_name(
    nats_server: Server,
) -> None:
    async def scenario() -> None:
        source, topic = "memory:bridge-special", unique("t")
        later = 4_000_000_000.0
        messages = [
            Message(body=b"a", priority=7), Message(body=b"b", deliver_at=later),
            Message(body=b"c", expires_at=later),
        ]  # fmt: skip
        nats = f"nats://{nats_server.address}"
        async with (
            filled(source, topic, messages) as origin,
            penstock.connect("memory:bridge-special-copy"),
        ):
            found = await bridge(
                source, "memory:bridge-special-copy", wanted=Wanted(topic=topic, verify=True)
            )
            assert found.verified is not None
            assert found.verified.is_equal
            with pytest.raises(Unsupported, match=r"message 0:0 has a priority"):
                await bridge(source, nats, topic)
            wanted = Wanted(topic=topic, without=["priority"], verify=True)
            found = await bridge(source, nats, wanted=wanted)
            assert found.copied == 3
            assert found.verified is not None
            assert found.verified.is_equal
            assert await origin.topics()

    asyncio.run(scenario())


def test_an_id_that_the_source_holds_twice_is_copied_twice(nats_server: Server) -> None:
    async def scenario() -> None:
        nats, topic = f"nats://{nats_server.address}", unique("t")
        async with (
            filled("memory:twice", topic, some(1), partitions=8) as origin,
            penstock.connect("memory:twice-copy") as goal,
        ):
            for number in range(30):  # ids are known by partition, and so by key
                await origin.publish(topic, b"x", id="same", key=f"{number}")
            before = await contents(origin, topic)
            assert len(before) > 3
            await goal.create_topic(topic)
            for target in ("memory:twice-copy", nats):
                found = await bridge("memory:twice", target, topic)
                assert found.copied == len(before)
            assert sorted(await contents(goal, topic)) == sorted(before)

    asyncio.run(scenario())


@pytest.mark.parametrize("has_numbers", [True, False])
def test_a_source_without_readers_is_consumed(
    has_numbers: bool, nats_server: Server, redis_server: Callable[..., Server]
) -> None:
    """NATS numbers its messages, Redis does not; both are asked to hand out, not to read."""

    async def scenario() -> None:
        topic = unique("t")
        source = f"nats://{nats_server.address}"
        if not has_numbers:
            source = f"redis://{redis_server().address}"
        wanted = Wanted(topic=topic, consume=True, batch=40, idle_s=IDLE_S, verify=True)
        async with (
            filled(source, topic, some(COUNT)) as origin,
            penstock.connect("memory:consumed") as goal,
        ):
            await origin.create_subscription(topic, "keeper")  # so that nothing is removed
            before = await contents(origin, topic)
            found = await bridge(source, "memory:consumed", wanted=wanted, **all_of(COUNT))
            assert found.guarantee == (EXACTLY_ONCE if has_numbers else ONCE_FOR_A_WHILE)
            assert found.copied == COUNT
            after = await contents(goal, topic)
            assert [row[0] for row in after] == [row[0] for row in before]
            assert [row[3] for row in after] == [row[3] for row in before]
            assert found.verified is not None
            assert found.verified.is_equal
            if has_numbers:
                assert after == before
            # Handed out a second time, as after a death before the ack: nothing is stored.
            await origin.seek(topic, found.subscription, "earliest")
            if has_numbers:  # known by its numbers, it is not even told
                wanted = msgspec.structs.replace(wanted, idle_s=SILENCE_S)
            again = await bridge(source, "memory:consumed", wanted=wanted, **all_of(COUNT))
            assert again.copied == 0
            assert again.known == (0 if has_numbers else COUNT)
            assert len(await contents(goal, topic)) == COUNT

    asyncio.run(scenario())


def test_following_goes_on_until_told_to_stop() -> None:
    async def scenario() -> None:
        async with (
            filled("memory:follow", "t", some(3)) as origin,
            penstock.connect("memory:follow-copy") as goal,
        ):
            ending = Ending(follows=True)
            told: asyncio.Queue[int] = asyncio.Queue()
            task = asyncio.create_task(
                bridge(
                    "memory:follow", "memory:follow-copy", wanted=Wanted(topic="t", follow=True),
                    ending=ending, told=lambda found: told.put_nowait(found.copied),
                )
            )  # fmt: skip
            async with asyncio.timeout(30):
                assert await told.get() == 3
                await origin.publish("t", b"later")
                assert await told.get() == 4
                ending.stop()
                assert (await task).copied == 4
            assert len(await contents(goal, "t")) == 4

    asyncio.run(scenario())


def test_following_lives_through_the_death_of_either_broker() -> None:
    """Two servers die in turn, with what they had not made durable; nothing is lost or doubled."""

    async def scenario(source: Served, target: Served) -> None:
        ending = Ending(follows=True)
        # The positions are on a disk that survives; a killed server forgets only what is newer.
        async with source.client() as origin:
            await origin.publish_many("t", [b"%d" % at for at in range(100)])
        task = asyncio.create_task(
            bridge(
                source.url, target.url, wanted=Wanted(topic="t", follow=True, batch=5),
                ending=ending,
            )
        )  # fmt: skip
        for number, served in enumerate((target, source, target), 100):
            await asyncio.sleep(0.1)
            await asyncio.to_thread(served.kill)
            await asyncio.to_thread(served.start)
            async with source.client() as origin:
                await origin.publish("t", b"%d" % number)
        async with target.client() as goal, asyncio.timeout(60):
            while len(await contents(goal, "t")) < 103 and not task.done():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            ending.stop()
            await task
            found = sorted(int(row[3]) for row in await contents(goal, "t"))
            assert found == list(range(103))

    with Served(reattach_s=0.2) as source, Served(reattach_s=0.2) as target:
        asyncio.run(scenario(source, target))


def test_a_second_bridge_of_the_same_name_takes_over() -> None:
    async def scenario() -> None:
        async with (
            filled("memory:over", "t", some(30)),
            penstock.connect("memory:over-copy") as goal,
        ):
            second: list[Bridged] = []

            async def interrupted() -> None:
                second.append(await bridge("memory:over", "memory:over-copy", "t"))

            tasks: list[asyncio.Task[None]] = []

            def told(found: Bridged) -> None:
                if not tasks:
                    tasks.append(asyncio.create_task(interrupted()))

            with pytest.raises((ReaderFenced, UsageError)):
                await bridge(
                    "memory:over", "memory:over-copy", told=told,
                    wanted=Wanted(topic="t", batch=1, follow=True),
                    ending=Ending(follows=True),
                )  # fmt: skip
            await tasks[0]
            assert len(await contents(goal, "t")) == 30
            assert len({row[0] for row in await contents(goal, "t")}) == 30

    asyncio.run(scenario())


def test_what_makes_no_sense_is_refused() -> None:
    async def scenario() -> None:
        async with penstock.connect("memory:senseless") as client:
            await client.create_topic("t")
            with pytest.raises(UnknownTopic):
                await bridge("memory:senseless", "memory:senseless-2", "no-such-topic")
            with pytest.raises(InvalidArgument, match="the same topic"):
                await bridge("memory:senseless", "memory:senseless", "t")
            for error, text, wanted in (
                (UsageError, "--verify needs", Wanted(topic="t", verify=True, follow=True)),
                (InvalidArgument, f"1 to {BATCH_MAX}", Wanted(topic="t", batch=0)),
                (InvalidArgument, "cannot be left out", Wanted(topic="t", without=["id"])),
            ):
                with pytest.raises(error, match=text):
                    await bridge("memory:senseless", "memory:x", wanted=wanted)
            await client.reader("t", "mine", owner="me")
            wanted = Wanted(topic="t", subscription="mine")
            with pytest.raises(SubscriptionConflict, match="belongs to another program"):
                await bridge("memory:senseless", "memory:x", wanted=wanted)

    asyncio.run(scenario())


def test_a_bridge_without_a_name_is_named_after_its_target() -> None:
    assert default_name("nats://a", "t") == default_name("nats://a", "t")
    assert default_name("nats://a", "t") != default_name("nats://a", "u")
    assert AT_LEAST_ONCE in ONCE_FOR_A_WHILE
