"""One consumer: what it has in hand, and what a reconnect brings again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import parse
from penstock.drivers.foreign.carrier import Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.mqtt import OPTIONS, PORT
from penstock.drivers.mqtt import feed as feeds
from penstock.drivers.mqtt.carrier import MqttCarrier, connect
from penstock.drivers.mqtt.feed import MqttFeed
from penstock.drivers.mqtt.parcels import Incoming
from penstock.vocabulary.errors import AccessRefused
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from tests.contracts.suites.world import unique

ENDLESS = SubscriptionPolicy(retry=Retry(max_attempts=None))


def incoming(number: int, *, is_dup: bool = False, is_retained: bool = False) -> Incoming:
    return Incoming("t", str(number).encode(), 1, number, is_dup, is_retained, {})


def consuming(
    server: Server, work: Callable[[MqttFeed], Awaitable[None]], policy: SubscriptionPolicy
) -> None:
    async def scenario() -> None:
        carrier = await connect(parse(f"mqtt://{server.address}", PORT, OPTIONS))
        topic = unique("feed")
        await carrier.put_subscription(topic, "s", policy, "latest")
        await work(await carrier.open_feed(Seat(topic, "s", policy, "latest", "me")))
        await carrier.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def bodies(letters: list[Letter]) -> list[Any]:
    return [letter.body for letter in letters]


def test_what_is_in_hand_is_not_delivered_again(mosquitto: Server) -> None:
    async def work(feed: MqttFeed) -> None:
        feed.on_messages([incoming(1), incoming(2), incoming(3)])
        held = await feed.fetch(2, 1 << 20)
        assert bodies(held) == [b"1", b"2"]
        feed.on_messages([incoming(number, is_dup=True) for number in (1, 2, 3, 4)])
        assert bodies(await feed.fetch(10, 1 << 20)) == [b"3", b"4"]
        assert await feed.settle(held) == []
        # Acked and confirmed: the number may be used for another message.
        feed.on_messages([incoming(1)])
        assert bodies(await feed.fetch(10, 1 << 20)) == [b"1"]

    consuming(mosquitto, work, ENDLESS)


def test_a_forgotten_session_begins_anew(mosquitto: Server) -> None:
    async def work(feed: MqttFeed) -> None:
        feed.on_messages([incoming(1)])
        [old] = await feed.fetch(1, 1)
        feed.on_up(False)
        feed.on_messages([incoming(1, is_dup=True)])
        [new] = await feed.fetch(1, 1)
        assert (old.token.life, new.token.life) == (0, 1)
        assert await feed.settle([old]) == []
        feed.on_messages([incoming(1, is_dup=True)])
        assert 1 in feed._held, "an ack for the life before is none"

    consuming(mosquitto, work, ENDLESS)


def test_retained_messages_come_only_when_they_are_wanted(mosquitto: Server) -> None:
    async def work(feed: MqttFeed) -> None:
        feed.wants_retained = False
        feed.on_messages([incoming(1, is_retained=True), incoming(2)])
        assert bodies(await feed.fetch(10, 1 << 20)) == [b"2"]

    consuming(mosquitto, work, ENDLESS)


def test_bytes_bound_what_is_fetched(mosquitto: Server) -> None:
    async def work(feed: MqttFeed) -> None:
        feed.on_messages([incoming(number) for number in range(10, 16)])
        assert len(await feed.fetch(10, 3)) == 2
        assert len(await feed.fetch(1, 1 << 20)) == 1

    consuming(mosquitto, work, ENDLESS)


def test_at_qos_0_the_oldest_is_dropped_and_counted(
    mosquitto: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "UNACKED_MAX", 3)

    async def work(feed: MqttFeed) -> None:
        feed.on_messages([incoming(number)._replace(qos=0) for number in range(5)])
        assert bodies(await feed.fetch(10, 1 << 20)) == [b"2", b"3", b"4"]
        assert feed.dropped == 2

    consuming(mosquitto, work, SubscriptionPolicy(qos=0))


def test_a_refused_subscription_ends_the_consumer(mosquitto: Server) -> None:
    async def work(feed: MqttFeed) -> None:
        feed._failure = AccessRefused("not yours")
        with pytest.raises(AccessRefused, match="not yours"):
            await feed.fetch(1, 1)
        await feed.close()
        await feed.close()

    consuming(mosquitto, work, ENDLESS)


def test_without_a_store_a_rejected_message_is_dropped_loudly(
    mosquitto: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(feed: MqttFeed) -> None:
        assert isinstance(feed.carrier, MqttCarrier)
        feed.on_messages([incoming(1)])
        letters = await feed.fetch(1, 1)
        assert await feed.bury("t.dead.s", letters) == []
        assert not feed._held

    consuming(mosquitto, work, ENDLESS)
    assert "there is no place for dead letters" in caplog.text
