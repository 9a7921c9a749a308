"""A consumer of a group, on the real server."""

import asyncio
import time
from collections.abc import Callable

import pytest

from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import parse
from penstock.drivers.foreign.carrier import Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis.carrier import RedisCarrier, connect
from penstock.drivers.redis.feed import NOBODY, RedisFeed
from penstock.vocabulary.errors import Unavailable
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.contracts.suites.world import unique


async def seated(server: Server, count: int = 3) -> tuple[RedisCarrier, RedisFeed, str]:
    carrier = await connect(parse(f"redis://{server.address}", 6379, {}))
    topic = unique("feed")
    policy = SubscriptionPolicy(lease_s=30)
    await carrier.put_subscription(topic, "s", policy, "earliest")
    await carrier.send(topic, [Letter(body=b"%d" % n, id=str(n)) for n in range(count)], None)
    feed = await carrier.open_feed(Seat(topic, "s", policy, "earliest", "worker"))
    assert isinstance(feed, RedisFeed)
    return carrier, feed, topic


async def fetched(feed: RedisFeed, count: int) -> list[Letter]:
    found: list[Letter] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await feed.fetch(10, 1 << 20)
    return found


def test_a_settling_that_was_not_answered_is_no_refusal_the_second_time(
    redis_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        carrier, feed, _ = await seated(redis_server())
        letters = await fetched(feed, 3)
        run = carrier.run

        async def lossy(*arguments: object, **more: object) -> object:
            await run(*arguments, **more)  # type: ignore[arg-type]
            raise Unavailable("the answer was lost")

        monkeypatch.setattr(carrier, "run", lossy)
        with pytest.raises(Unavailable):
            await feed.settle(letters)
        monkeypatch.setattr(carrier, "run", run)
        assert await feed.settle(letters) == []
        [one, *_] = await feed.settle(letters)
        assert "finished" in one.why
        await feed.close()
        await carrier.close()

    asyncio.run(scenario())


def test_closing_hands_over_what_never_reached_the_application(
    redis_server: Callable[..., Server],
) -> None:
    async def scenario() -> None:
        carrier, feed, topic = await seated(redis_server())
        await fetched(feed, 3)
        await feed.close()
        rows = await carrier.redis.xpending_range(topic, "s", "-", "+", 10)
        assert {(row["consumer"], row["times_delivered"]) for row in rows} == {(NOBODY.encode(), 0)}
        consumers = await carrier.redis.xinfo_consumers(topic, "s")
        assert [row["name"] for row in consumers] == [NOBODY.encode()]
        await carrier.close()

    asyncio.run(scenario())


def test_a_delay_is_idle_time_and_a_renewal_resets_it(
    redis_server: Callable[..., Server],
) -> None:
    async def scenario() -> None:
        carrier, feed, topic = await seated(redis_server())
        one, two, three = await fetched(feed, 3)
        began = time.monotonic()
        await feed.release([Release(one, 20.0), Release(two, 0.0, is_unstarted=True)])
        await asyncio.sleep(0.1)
        renewed = time.monotonic()
        await feed.renew([three])
        rows = await carrier.redis.xpending_range(topic, "s", "-", "+", 10)
        idle = [row["time_since_delivered"] for row in rows]
        seen = time.monotonic()
        assert 10_000 <= idle[0] <= 10_000 + (seen - began) * 1000 + 1
        assert idle[1] >= 30_000
        assert idle[2] <= (seen - renewed) * 1000 + 1
        assert [row["times_delivered"] for row in rows] == [1, 0, 1]
        [again] = await fetched(feed, 1)
        assert (again.position, again.attempt) == (two.position, 1)
        await feed.close()
        await carrier.close()

    asyncio.run(scenario())
