"""What stays in a stream: decided by what the server knows at that moment, whoever asks."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.client import Client
from penstock.drivers.foreign.address import parse
from penstock.drivers.foreign.carrier import Feed, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis.carrier import RedisCarrier, connect
from penstock.vocabulary.errors import UnknownSubscription
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.contracts.suites.world import PATIENCE_S, first, unique

Redis = Callable[..., Server]
HOUR_MS = 3_600_000


@asynccontextmanager
async def two(server: Server) -> AsyncIterator[tuple[Client, Client]]:
    """Two clients that know nothing of each other."""
    url = f"redis://{server.address}"
    async with penstock.connect(url) as one, penstock.connect(url) as other:
        yield one, other


@asynccontextmanager
async def carrier_of(server: Server) -> AsyncIterator[RedisCarrier]:
    carrier = await connect(parse(f"redis://{server.address}", 6379, {}))
    try:
        yield carrier
    finally:
        await carrier.close()


def aged(server: Server, topic: str, hours: float, count: int = 1) -> None:
    """Another program stores entries so long ago."""
    began = time.time_ns() // 1_000_000 - int(hours * HOUR_MS)
    with redis.Redis(port=server.port) as admin:
        for number in range(count):
            admin.xadd(topic, {"body": f"old {number}"}, id=f"{began}-{number}")


def length(server: Server, topic: str) -> int:
    with redis.Redis(port=server.port) as admin:
        return int(admin.xlen(topic))


async def fetched(feed: Feed) -> list[Letter]:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await feed.fetch(10, 1 << 20)):
            pass
    return found


async def finish(client: Client, topic: str, subscription: str, count: int) -> None:
    """Acks so many messages and leaves, which trims."""
    async with client.subscribe(topic, subscription) as deliveries:
        for _ in range(count):
            (await first(deliveries)).ack()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"retain_s": 3600}, {"retain_s": None}),
        ({"retain_s": 3600}, {"retain_s": 36_000}),
        ({"max_age_s": 3600}, {"max_age_s": None}),
        ({"max_age_s": 3600}, {"max_age_s": 36_000}),
    ],
)
def test_a_client_trims_by_what_another_one_set(
    redis_server: Redis, before: dict[str, Any], after: dict[str, Any]
) -> None:
    server, topic = redis_server(), unique("altered")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.create_topic(topic, **before)
            await one.describe_topic(topic)
            await other.alter_topic(topic, **after)
            aged(server, topic, 2)
            await one.publish(topic, b"new")
            assert length(server, topic) == 2
            await other.alter_topic(topic, **before)
            async with one.subscribe(topic):
                pass  # leaving trims
            assert length(server, topic) == 1

    asyncio.run(scenario())


def test_finished_messages_stay_for_as_long_as_another_client_said(redis_server: Redis) -> None:
    server, topic = redis_server(), unique("replay")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.create_subscription(topic, "s")
            await one.publish_many(topic, [b"0", b"1", b"2"])
            await other.alter_topic(topic, replay_s=3600)
            await finish(one, topic, "s", 3)
            assert length(server, topic) == 3
            await other.alter_topic(topic, replay_s=0)
            await finish(one, topic, "s", 0)
            assert length(server, topic) == 0

    asyncio.run(scenario())


def test_a_topic_that_was_made_anew_has_its_new_settings_only(redis_server: Redis) -> None:
    server, topic = redis_server(), unique("anew")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.create_topic(topic, max_age_s=3600)
            await one.publish(topic, b"first life")
            await other.delete_topic(topic)
            await other.create_topic(topic, retain_s=None)
            aged(server, topic, 48)
            await one.publish(topic, b"second life")
            async with one.subscribe(topic):
                pass
            assert length(server, topic) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["publish", "publish_many", "subscribe", "reader", "unit"])
def test_a_topic_that_another_client_deleted_is_made_as_a_topic_of_ours(
    redis_server: Redis, how: str
) -> None:
    """Whatever makes the stream again notes its settings in the same step."""
    server, topic = redis_server(), unique("deleted")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.publish(topic, b"x")
            await other.delete_topic(topic)
            if how == "publish":
                await one.publish(topic, b"y")
            elif how == "publish_many":
                await one.publish_many(topic, [b"y", b"z"])
            elif how == "subscribe":
                await one.create_subscription(topic, "s")
            elif how == "reader":
                await one.reader(topic, "r", owner="o")
            else:
                async with one.transaction() as unit:
                    unit.publish(topic, b"y")
            with redis.Redis(port=server.port) as admin:
                assert admin.exists(topic)
                assert admin.hexists("$penstock:topics", topic)
            assert (await other.describe_topic(topic))["created_at"] > 1_700_000_000

    asyncio.run(scenario())


def test_two_clients_that_make_or_change_a_topic_at_once_lose_nothing(redis_server: Redis) -> None:
    """A client that found no topic does not write over one that was made meanwhile."""
    server = redis_server()

    async def scenario() -> None:
        async with two(server) as (one, other):
            for _ in range(10):
                topic = unique("race")
                made = other.create_topic(topic, replay_s=3600, retain_s=None)
                done = await asyncio.gather(one.publish(topic, b"x"), made, return_exceptions=True)
                if done[1] is not None:  # the publish made it first: it exists, and says so
                    await other.alter_topic(topic, replay_s=3600, retain_s=None)
                await asyncio.gather(
                    one.alter_topic(topic, max_age_s=900), other.alter_topic(topic, retain_s=60)
                )
                policy = (await one.describe_topic(topic))["policy"]
                assert policy == {"replay_s": 3600, "retain_s": 60, "max_age_s": 900}

    asyncio.run(scenario())


def test_settings_are_written_over_those_that_were_read_only(redis_server: Redis) -> None:
    server, topic = redis_server(), unique("swap")

    async def scenario() -> None:
        async with carrier_of(server) as one, carrier_of(server) as other:
            assert await one.swap_topic(topic, 1, TopicPolicy(), None)
            assert not await other.swap_topic(topic, 1, TopicPolicy(replay_s=1), None)
            before = await one.find_topic(topic)
            await other.put_topic(topic, 1, TopicPolicy(replay_s=2))
            assert not await one.swap_topic(topic, 1, TopicPolicy(replay_s=3), before)
            # Settings spelled in another way, or that are not known yet, are no other settings.
            row = '{"policy": {"replay_s": 2, "keep_last": 0, "newer": 1}, "created_at": 5}'
            await one.redis.hset("$penstock:topics", topic, row)
            assert await one.swap_topic(
                topic, 1, TopicPolicy(max_age_s=9), await one.find_topic(topic)
            )
            found = await other.find_topic(topic)
            assert found is not None
            assert (found.policy, found.created_at) == (TopicPolicy(max_age_s=9), 5)
            theirs = unique("theirs")
            aged(server, theirs, 1)
            assert not await one.swap_topic(theirs, 1, TopicPolicy(), None)
            assert await one.swap_topic(theirs, 1, TopicPolicy(), await one.find_topic(theirs))

    asyncio.run(scenario())


def test_times_are_the_servers(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose clock is days ahead removes nothing early."""
    server, topic = redis_server(), unique("clock")

    async def scenario() -> None:
        async with carrier_of(server) as carrier:
            await carrier.put_topic(topic, 1, TopicPolicy(max_age_s=3600))
            aged(server, topic, 0.5)
            ahead = time.time() + 10 * 86_400
            monkeypatch.setattr(time, "time", lambda: ahead)
            await carrier.trim(topic, is_due=True)
            assert length(server, topic) == 1

    asyncio.run(scenario())


# -- streams of other programs -------------------------------------------------------------------


def test_a_stream_of_another_program_is_not_trimmed_before_somebody_says_what_is_kept(
    redis_server: Redis,
) -> None:
    server, topic = redis_server(), unique("theirs")
    aged(server, topic, 48, 3)

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.publish(topic, b"ours")
            await one.create_subscription(topic, "s")
            await finish(one, topic, "s", 4)
            await one.delete_subscription(topic, "s")
            assert length(server, topic) == 4
            row = await one.describe_topic(topic)
            assert (row["policy"], row["created_at"]) == ({"retain_s": None}, 0.0)
            await other.alter_topic(topic, retain_s=3600)
            async with one.subscribe(topic):
                pass
            assert length(server, topic) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("options", [{}, {"retain_s": 3600.0}])
def test_create_topic_says_what_is_kept_of_a_stream_of_another_program(
    redis_server: Redis, options: dict[str, Any]
) -> None:
    server, topic = redis_server(), unique("claimed")
    aged(server, topic, 48, 3)

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.publish(topic, b"ours")
            await other.create_topic(topic, **options)
            await other.create_topic(topic, **options)
            async with one.subscribe(topic):
                pass
            assert length(server, topic) == 1
            assert (await one.describe_topic(topic))["policy"] == options

    asyncio.run(scenario())


# -- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["latest", "now", "position"])
def test_what_no_subscription_covered_stays_whatever_subscribes_later(
    redis_server: Redis, start: str
) -> None:
    server, topic = redis_server(), unique("uncovered")

    async def scenario() -> None:
        async with two(server) as (one, other):
            aged(server, topic, 48)
            await one.create_topic(topic)
            receipts = [await one.publish(topic, b"before") for _ in range(3)]
            assert length(server, topic) == 3  # one is too old
            begin = {"latest": "latest", "now": time.time(), "position": receipts[2].position}
            await other.create_subscription(topic, "late", start=begin[start])
            await one.publish_many(topic, [b"%d" % number for number in range(450)])
            count = 451 if start == "position" else 450
            await finish(other, topic, "late", count)
            assert length(server, topic) == 453 - count
            await other.create_subscription(topic, "whole", start="earliest")
            await finish(one, topic, "whole", 453 - count)
            assert length(server, topic) == 0

    asyncio.run(scenario())


def test_a_reader_and_a_group_of_another_program_remove_nothing_that_was_there_before(
    redis_server: Redis,
) -> None:
    server = redis_server()

    async def scenario() -> None:
        async with two(server) as (one, other):
            for kind in ("reader", "theirs"):
                topic = unique(kind)
                await one.publish_many(topic, [b"0", b"1"])
                if kind == "reader":
                    await other.reader(topic, "r", owner="o", start="latest")
                else:
                    with redis.Redis(port=server.port) as admin:
                        admin.xgroup_create(topic, "theirs", "$")
                async with one.subscribe(topic):
                    pass
                assert length(server, topic) == 2
                await other.alter_topic(topic, retain_s=0)
                async with one.subscribe(topic):
                    pass
                assert length(server, topic) == 0

    asyncio.run(scenario())


def test_settings_of_a_subscription_count_for_consumers_that_were_there_before(
    redis_server: Redis,
) -> None:
    server, topic = redis_server(), unique("policy")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.publish_many(topic, [bytes(3_000)] * 3)
            await one.create_subscription(topic, "s", dead_bytes_max=2_000, lease_s=20)
            async with one.subscribe(topic, "s", credit=1) as deliveries:
                (await first(deliveries)).reject("one")
                await deliveries.flush()
                await other.alter_subscription(topic, "s", dead_bytes_max=1 << 20, lease_s=60)
                (await first(deliveries)).reject("two")
                await deliveries.flush()
            assert len(await other.dead_letters(topic, "s")) == 2
            with pytest.raises(UnknownSubscription):
                await other.alter_subscription(topic, "other", lease_s=60)

    asyncio.run(scenario())


def test_a_longer_lease_keeps_others_from_taking_over(redis_server: Redis) -> None:
    server, topic = redis_server(), unique("lease")

    async def scenario() -> None:
        async with carrier_of(server) as one, carrier_of(server) as other:
            short, long = SubscriptionPolicy(lease_s=0.05), SubscriptionPolicy(lease_s=60)
            await one.put_subscription(topic, "s", short, "earliest")
            await one.send(topic, [Letter(body=b"x", id="x")], None)
            old = await one.open_feed(Seat(topic, "s", short, "earliest", "old"))
            await other.put_subscription(topic, "s", long, None)
            new = await other.open_feed(Seat(topic, "s", long, "earliest", "new"))
            [got] = await fetched(new)
            await asyncio.sleep(0.1)
            for _ in range(5):
                assert await old.fetch(10, 1 << 20) == []
            await new.release([Release(got, 0.0)])
            [again] = await fetched(old)
            assert again.attempt == 2
            await old.close()
            await new.close()

    asyncio.run(scenario())


def test_a_deleted_topic_takes_what_is_remembered_with_it(redis_server: Redis) -> None:
    server, topic = redis_server(), unique("forget")

    async def scenario() -> None:
        async with two(server) as (one, other):
            await one.create_subscription(topic, "s", start="latest")
            await one.publish(topic, b"x", id="given")
            await other.delete_topic(topic)
            with redis.Redis(port=server.port) as admin:
                assert not list(admin.scan_iter(match=f"*{topic}*"))
                assert not admin.hexists("$penstock:uncovered", topic)
            assert not (await one.publish(topic, b"y", id="given")).duplicate

    asyncio.run(scenario())
