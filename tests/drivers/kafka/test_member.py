"""The thread that polls: it lives with a full stock, and ends in good order."""

import asyncio

import pytest

from penstock.drivers.foreign.carrier import Seat
from penstock.drivers.kafka.feed import KafkaFeed
from penstock.vocabulary.errors import Unavailable
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.contracts.suites.world import first, several, unique, until
from tests.drivers.kafka.rig import carrier_of, client_of, run
from tests.servers.kafka import Cluster


def test_a_consumer_with_its_hands_full_stays_in_its_group(kafka_server: Cluster) -> None:
    topic, total = unique("full"), 6_000

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish_many(topic, [b"%d" % n for n in range(total)])
            async with client.subscribe(topic, "slow", credit=10) as deliveries:
                held = await several(deliveries, 10)
                await asyncio.sleep(1.5)

                async def is_noted() -> bool:
                    [row] = await client.subscriptions(topic)
                    assert len(row["consumers"]) == 1
                    return (row["leased"], row["waiting"]) == (10, total - 10)

                await until(is_noted, "the note of what is held")
                for message in held:
                    message.ack()
                for number in range(10, total):
                    message = await first(deliveries)
                    assert message.body == b"%d" % number
                    message.ack()

    run(scenario())


def test_a_closed_member_refuses_work(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        carrier = await carrier_of(kafka_server)
        topic = unique("closed")
        await carrier.put_topic(topic, 1, TopicPolicy())
        feed = KafkaFeed(carrier, Seat(topic, None, SubscriptionPolicy(), "latest", "c"))
        await feed.open()
        assert await feed.fetch(1, 1) == []
        await feed.close()
        with pytest.raises(Unavailable, match="ended"):
            await feed.member.call(lambda: 1)
        await carrier.close()

    run(scenario())
