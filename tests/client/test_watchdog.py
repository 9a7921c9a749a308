"""A consumer that silently stops is found, told and put to work again; nobody else is."""

import asyncio
import logging
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.stalls import OK, STALLED, Stalled
from penstock.drivers.foreign.driver import ForeignDriver
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.nats.feed import NatsFeed
from penstock.vocabulary.errors import InvalidArgument
from tests.client.swallowing import Swallowing
from tests.drivers.remote.rig import Served
from tests.servers.fixtures import unique

STALLED_S = 0.6
PATIENCE_S = 40.0


async def numbers(deliveries: Deliveries, count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        message = await deliveries.receive(timeout_s=PATIENCE_S)
        assert message is not None, f"only {len(found)} of {count} came"
        found.add(int(message.body or b""))
        message.ack()
    return sorted(found)


async def healthy(client: Client) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not client.health().is_healthy:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def silent(proxy: Swallowing, through: str, direct: str, topic: str) -> None:
    """Messages come; the connection is cut, made anew, and then swallows everything."""
    news: list[Stalled] = []
    async with (
        penstock.connect(direct) as other,
        penstock.connect(through, stalled_s=STALLED_S, on_stalled=news.append) as client,
        client.subscribe(topic, "work", lease_s=5.0) as deliveries,
    ):
        await other.publish(topic, b"0")
        assert await numbers(deliveries, 1) == [0]
        await deliveries.flush()
        proxy.cut()
        await other.publish(topic, b"1")
        assert await numbers(deliveries, 1) == [1]
        await deliveries.flush()
        await healthy(client)
        news.clear()  # coming back may have taken its time
        before = client.health().stalls
        proxy.swallow()
        for number in range(2, 22):
            await other.publish(topic, b"%d" % number)
        assert await numbers(deliveries, 20) == list(range(2, 22))
        assert news, "it came back, but nobody was told"
        assert (news[0].topic, news[0].subscription) == (topic, "work")
        assert news[0].waiting > 0
        assert client.health().stalls == before + len(news)
        await deliveries.flush()
        await healthy(client)
        (row,) = client.health().subscriptions
        assert row.state == OK


def test_a_swallowed_connection_to_our_server() -> None:
    async def scenario(served: Served) -> None:
        host, _, port = served.url.removeprefix("penstock://").partition(":")
        async with Swallowing(host, int(port)) as proxy:
            await silent(proxy, f"penstock://{proxy.address}", served.url, "t")

    with Served() as served:
        asyncio.run(scenario(served))


def test_a_swallowed_connection_to_nats(nats_server: Server) -> None:
    async def scenario() -> None:
        host, _, port = nats_server.address.partition(":")
        async with Swallowing(host, int(port)) as proxy:
            direct = f"nats://{nats_server.address}"
            await silent(proxy, f"nats://{proxy.address}", direct, unique("t"))

    asyncio.run(scenario())


def quiet(client: Client) -> None:
    assert client.health().is_healthy
    assert client.health().stalls == 0


def be_strict(client: Client, stalled_s: float) -> None:
    """From now on subscriptions count as stalled after so long."""
    for watch in client._watchdog._watches.values():
        watch.stalled_s = stalled_s
    client._watchdog._look_later()


def test_nobody_is_told_of_idle_working_paused_and_shared_subscriptions() -> None:
    news: list[Stalled] = []

    async def scenario() -> None:
        options: dict[str, Any] = {"stalled_s": PATIENCE_S, "on_stalled": news.append}
        async with (
            penstock.connect("memory:quiet", **options) as client,
            client.subscribe("idle", "s"),
            client.subscribe("t", "working", credit=1) as working,
            client.subscribe("t", "paused") as paused,
            client.subscribe("t", "delayed") as delayed,
            client.subscribe("t", None) as ephemeral,
            client.subscribe("t", "keys", kind="key_shared", credit=1) as keyed,
            client.subscribe("t", "keys", kind="key_shared"),
            client.subscribe("t", "off", stalled_s=None),
        ):
            for number in range(5):
                await client.publish("t", b"%d" % number, key="k")
            # Its credit is used up while it works; the others wait.
            message = await working.receive(timeout_s=PATIENCE_S)
            held = await keyed.receive(timeout_s=0.05)
            first = await delayed.receive(timeout_s=PATIENCE_S)
            assert message
            assert first
            first.nack(delay_s=60)
            batch = delayed.take(100)
            batch.ack()
            await delayed.flush()
            be_strict(client, 0.4)  # only while nobody has anything to do that may take its time
            await asyncio.sleep(1.6)
            await healthy(client)  # a broker that answers late cannot be reached just then
            quiet(client)
            be_strict(client, PATIENCE_S)
            assert {each.subscription for each in client.health().subscriptions} == {
                "s", "working", "paused", "delayed", "keys",
            }  # fmt: skip
            assert paused.is_waiting is False
            assert ephemeral is not None
            assert held is None or held.body

    asyncio.run(scenario())
    assert news == []


def deafen(stream: Deliveries) -> None:
    """Its place at the broker is gone, without anybody's knowledge."""
    stream._seat.is_left = True


def test_one_that_lost_its_place_takes_a_new_one_on_the_same_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    news: list[Stalled] = []

    def failing(stalled: Stalled) -> None:
        news.append(stalled)
        raise RuntimeError("the callback's own affair")

    async def scenario() -> None:
        async with (
            penstock.connect("memory:deaf", stalled_s=4.0, on_stalled=failing) as client,
            client.subscribe("t", "s") as deliveries,
        ):
            deafen(deliveries)
            await client.publish("t", b"1")
            message = await deliveries.receive(timeout_s=PATIENCE_S)
            assert message is not None
            assert message.body == b"1"
            message.ack()
            await deliveries.flush()
            assert len(news) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "nothing moved for 4 s" in caplog.text
    assert "on_stalled failed" in caplog.text


def test_a_pattern_takes_new_places_too() -> None:
    async def scenario() -> None:
        async with penstock.connect("memory:deaf-pattern", stalled_s=0.2) as client:
            await client.create_topic("a.b")
            async with client.subscribe("a.*", "s") as deliveries:
                for leg in deliveries._legs:  # type: ignore[attr-defined]  # of a pattern
                    leg.is_closed = True
                await client.publish("a.b", b"1")
                await client.publish("a.c", b"2")
                found: set[bytes | None] = set()
                while len(found) < 2:
                    message = await deliveries.receive(timeout_s=PATIENCE_S)
                    assert message is not None
                    found.add(message.body)
                    message.ack()
                await deliveries.flush()
                assert client.health().stalls >= 1

    asyncio.run(scenario())


@pytest.mark.parametrize("wanted", ["{}/a", "{}/+"])
def test_a_feed_of_a_foreign_broker_that_brings_nothing_is_found(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    fetch, deaf, asleep = NatsFeed.fetch, set[NatsFeed](), set[NatsFeed]()
    base = unique("deaf")

    async def fetched(feed: NatsFeed, count: int, bytes_max: int) -> list[Letter]:
        if feed in deaf:
            asleep.add(feed)
            await asyncio.sleep(60)
        return await fetch(feed, count, bytes_max)

    async def scenario() -> None:
        news: list[Stalled] = []
        url = f"nats://{nats_server.address}"
        async with penstock.connect(url, stalled_s=STALLED_S, on_stalled=news.append) as client:
            for name in ("a", "b"):
                await client.create_topic(f"{base}/{name}")
            async with client.subscribe(wanted.format(base), "s") as deliveries:
                driver = client._opened()
                assert isinstance(driver, ForeignDriver)
                deaf.update(each.feed for each in driver._attachments)  # type: ignore[misc]
                while asleep != deaf:  # noqa: ASYNC110 - what they wait for now ends
                    await asyncio.sleep(0.02)
                await client.publish(f"{base}/a", b"1")
                message = await deliveries.receive(timeout_s=PATIENCE_S)
                assert message is not None
                assert message.body == b"1"
                message.ack()
                assert (news[0].topic, news[0].waiting) == (wanted.format(base), 1)

    monkeypatch.setattr(NatsFeed, "fetch", fetched)
    asyncio.run(asyncio.wait_for(scenario(), 2 * PATIENCE_S))


def test_one_that_cannot_come_back_stays_unhealthy_and_is_tried_again() -> None:
    async def scenario() -> None:
        async with (
            penstock.connect("memory:deaf-always", stalled_s=0.1) as client,
            client.subscribe("t", "s") as deliveries,
        ):
            original = deliveries.attach_anew

            async def refused(_driver: Any) -> None:
                raise penstock.errors.Unavailable("not now")

            deliveries.attach_anew = refused  # type: ignore[method-assign, assignment]
            deafen(deliveries)
            await client.publish("t", b"1")
            async with asyncio.timeout(PATIENCE_S):
                while client.health().stalls < 2:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            assert client.health().subscriptions[0].state == STALLED
            deliveries.attach_anew = original  # type: ignore[method-assign]
            message = await deliveries.receive(timeout_s=PATIENCE_S)
            assert message is not None
            message.ack()
            await deliveries.close()
            assert client.health().stalls >= 2
            assert client.health().subscriptions == []

    asyncio.run(scenario())


@pytest.mark.parametrize("stalled_s", [0, -1, "soon", True])
def test_a_time_that_makes_no_sense_is_refused(stalled_s: Any) -> None:
    with pytest.raises(InvalidArgument, match="stalled_s must be seconds above 0"):
        penstock.connect("memory:", stalled_s=stalled_s)


def test_what_is_told_must_be_a_function() -> None:
    with pytest.raises(InvalidArgument, match="on_stalled must be a function"):
        penstock.connect("memory:", on_stalled=3)


def test_the_blocking_twin_tells_too() -> None:
    with penstock.connect_blocking("memory:health") as client, client.subscribe("t", "s"):
        assert [each.subscription for each in client.health().subscriptions] == ["s"]
