"""Pulls, and what a delivery's reply subject says."""

import asyncio
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.nats.connection import Incoming
from penstock.drivers.nats.feed import Place, opened, place_of
from penstock.vocabulary.errors import UnknownSubscription
from tests.contracts.suites.world import first, nothing, unique, until


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.orders.billing.3.17.20.1700000000123456789.5",
        "$JS.ACK.hub.ACCOUNT.orders.billing.3.17.20.1700000000123456789.5",
        "$JS.ACK.hub.ACCOUNT.orders.billing.3.17.20.1700000000123456789.5.random",
    ],
)
def test_the_reply_subject_says_where_and_how_often(reply: str) -> None:
    assert place_of(reply) == Place(3, 17, 1_700_000_000_123_456_789)


def test_headers_of_the_server_are_not_the_messages() -> None:
    message = Incoming("orders", "", b"x", {"Nats-Msg-Id": "1", "a": "b"})
    letter = opened(message, 17, 5)
    assert (letter.headers, letter.id, letter.position) == ({"a": "b"}, "orders:17", "0:17")


def test_a_subscription_deleted_under_its_consumer_ends_it(nats_server: Server) -> None:
    topic = unique("gone")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            deliveries = await client.subscribe(topic, "s")
            driver = client._opened()
            await driver.carrier.drop_subscription(topic, "s")  # type: ignore[attr-defined]
            with pytest.raises(UnknownSubscription):
                await deliveries.receive(timeout_s=30)
            await deliveries.close()

    asyncio.run(scenario())


def test_an_ephemeral_consumer_that_the_server_forgot_goes_on_where_it_was(
    nats_server: Server,
) -> None:
    topic = unique("forgotten")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish(topic, b"before")
            async with client.subscribe(topic) as deliveries:
                await client.publish(topic, b"1")
                (await first(deliveries)).ack()
                await deliveries.flush()
                carrier = client._opened().carrier  # type: ignore[attr-defined]
                feed = deliveries._attachment.feed  # type: ignore[union-attr]
                name = f"CONSUMER.DELETE.{feed._stream}.{feed._consumer}"
                await carrier.connection.api(name)
                await client.publish(topic, b"2")
                assert (await first(deliveries)).body == b"2"

    asyncio.run(scenario())


def test_a_seek_moves_consumers_that_are_attached(nats_server: Server) -> None:
    topic = unique("seek")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, "s") as deliveries:
                for _ in range(2):
                    (await first(deliveries)).ack()
                await deliveries.flush()
                await client.seek(topic, "s", "earliest")
                assert [(await first(deliveries)).body for _ in range(2)] == [b"0", b"1"]

    asyncio.run(scenario())


def test_a_drain_repeated_often_never_makes_a_dead_letter(nats_server: Server) -> None:
    topic = unique("drain")

    async def scenario() -> None:
        async with penstock.connect(f"nats://{nats_server.address}") as client:
            await client.publish_many(topic, [b"0", b"1"])
            retry = {"max_attempts": 3}
            for _ in range(5):
                async with client.subscribe(topic, "s", retry=retry) as deliveries:

                    async def is_there(deliveries: Any = deliveries) -> bool:
                        return bool(deliveries._arrived)

                    await until(is_there, "the messages in the client")
            async with client.subscribe(topic, "s") as deliveries:
                for _ in range(2):
                    message = await first(deliveries)
                    assert message.attempt == 1
                    message.ack()
                await nothing(deliveries)
            assert await client.dead_letters(topic, "s") == []

    asyncio.run(scenario())
