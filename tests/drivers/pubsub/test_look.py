"""Looking through subscriptions: nothing is taken, and nothing is left behind."""

import asyncio

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.drivers.pubsub import names as ids
from penstock.vocabulary.errors import Unavailable, Unsupported
from tests.contracts.suites.world import several, unique, until
from tests.drivers.pubsub.test_carrier import carrier_of, url_of


def test_a_look_leaves_no_subscription_behind(pstest: Server) -> None:
    topic = unique("look")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            sent = await client.publish_many(topic, [str(number) for number in range(30)])
            carrier = carrier_of(client)
            letters = await carrier.look(topic, 5, sent[9].position)
            assert [each.body for each in letters] == [str(n).encode() for n in range(10, 15)]
            assert await carrier.look(topic, 5, "m-unknown") == []
            with pytest.raises(Unsupported, match=r"pubsub.*no offsets"):
                await carrier.look(topic, 5, 3)
            assert await carrier.service.subscriptions_of(ids.topic_id(topic)) == []

    asyncio.run(scenario())


def test_dead_letters_in_other_hands_are_not_removed_silently(pstest: Server) -> None:
    topic = unique("hands")

    async def scenario() -> None:
        async with penstock.connect(url_of(pstest)) as client:
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, "s") as deliveries:
                for message in await several(deliveries, 2):
                    message.reject("bad")
                await deliveries.flush()

            async def are_dead() -> bool:
                return len(await client.dead_letters(topic, "s")) == 2

            await until(are_dead, "two dead letters")
            carrier = carrier_of(client)
            dead = f"{topic}.dead.s"
            letters = await carrier.look(dead, 10, None)
            keeper = carrier.service.subscription(ids.keeper_id(dead))
            [held] = await carrier.service.pull(keeper, 1, 5.0, is_waiting=False)
            with pytest.raises(Unavailable, match="1 letters are in other hands"):
                await carrier.remove(dead, letters)
            await carrier.service.set_deadline(keeper, [held.ack_id], 0)
            [left] = await carrier.look(dead, 10, None)
            assert left.position == held.message_id
            await carrier.remove(dead, [left])
            assert await carrier.look(dead, 10, None) == []

    asyncio.run(scenario())
