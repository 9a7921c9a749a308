"""What of a policy Kafka keeps, and where a subscription begins in many partitions."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.drivers.kafka.topics import WEEK_S, config_of, kept_policy, policy_of
from penstock.vocabulary.errors import PositionNotHeld
from penstock.vocabulary.policy import TopicPolicy
from tests.contracts.suites.world import several, unique
from tests.drivers.kafka.rig import carrier_of, client_of, run
from tests.servers.kafka import Cluster


@pytest.mark.parametrize(
    ("policy", "config"),
    [
        (TopicPolicy(), {}),
        (TopicPolicy(max_age_s=60), {"retention.ms": "60000"}),
        (TopicPolicy(max_bytes=5), {"retention.bytes": "5"}),
        (TopicPolicy(retain_s=None), {"retention.ms": "-1"}),
        (TopicPolicy(retain_s=None, max_age_s=1), {"retention.ms": "1000"}),
        (TopicPolicy(replay_s=60), {"retention.ms": str(int(WEEK_S * 1000))}),
        (TopicPolicy(replay_s=2 * WEEK_S), {"retention.ms": str(int(2 * WEEK_S * 1000))}),
        (TopicPolicy(keep_last=1), {"cleanup.policy": "compact"}),
    ],
)
def test_a_policy_is_found_again(policy: TopicPolicy, config: dict[str, str]) -> None:
    assert config_of(policy) == config
    assert policy_of("orders", config) == kept_policy(policy)
    assert kept_policy(kept_policy(policy)) == kept_policy(policy)


def test_a_dead_letter_topic_is_compacted_and_kept_for_ever() -> None:
    policy = policy_of("orders.dead.billing", {})
    assert policy == TopicPolicy(retain_s=None, dead_of="orders\nbilling")
    assert config_of(policy) == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}


def test_a_topic_is_made_twice_and_changed(kafka_server: Cluster) -> None:
    topic = unique("policy")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            for _ in range(2):
                await client.create_topic(topic, partitions=2, replay_s=3600, max_bytes=1 << 30)
            await client.alter_topic(topic, max_age_s=60, max_bytes=None)
            told = (await client.describe_topic(topic))["policy"]
            assert told == {"max_age_s": 60.0}

    run(scenario())


def test_a_change_is_told_by_the_brokers_before_it_is_confirmed(
    kafka_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka confirms it when its controller knows: here the broker asked knows a while later."""
    topic = unique("late")

    async def scenario() -> None:
        carrier = await carrier_of(kafka_server)
        try:
            await carrier.put_topic(topic, 1, TopicPolicy(max_bytes=1 << 30))
            ask, before, asked = carrier._configs, await carrier._configs([topic]), 0

            async def late(listed: Iterable[str]) -> Any:
                nonlocal asked
                asked += 1
                return before if asked <= 3 else await ask(listed)

            monkeypatch.setattr(carrier, "_configs", late)
            await carrier.put_topic(topic, 1, TopicPolicy(max_age_s=60))
            row = await carrier.find_topic(topic)
            assert row is not None
            assert row.policy == TopicPolicy(max_age_s=60)
        finally:
            await carrier.close()

    run(scenario())


def test_a_time_or_a_position_names_a_place_in_every_partition(kafka_server: Cluster) -> None:
    topic = unique("start")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=3:1") as client:
            for number in range(6):
                await client.publish(topic, b"old", key=str(number))
            await asyncio.sleep(0.05)
            moment = time.time()
            await asyncio.sleep(0.05)
            new = [await client.publish(topic, b"new", key=str(n)) for n in range(6)]
            assert len({receipt.partition for receipt in new}) > 1
            for start in (moment, new[0].position):
                async with client.subscribe(topic, unique("s"), start=start) as deliveries:
                    got = await several(deliveries, 6)
                    assert {m.body for m in got} == {b"new"}
            with pytest.raises(PositionNotHeld, match="lowest"):
                await client.subscribe(topic, unique("s"), start="7:0")

    run(scenario())
