"""The contract over Kafka, on one node. A partition has one consumer at a time."""

import pytest

from penstock.vocabulary.errors import AckRefused, Unsupported
from penstock.vocabulary.policy import OnDuplicate
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import (
    Elsewhere,
    World,
    first,
    nothing,
    scenario,
    unique,
    until,
)
from tests.servers.kafka import Cluster


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestKafka(DriverSuite):
    @pytest.fixture
    def world(self, kafka_server: Cluster) -> World:
        return World(f"kafka://{kafka_server.bootstrap}?topics=1:1&session_s=6&max_poll_s=1")

    @scenario
    async def test_consumers_of_one_subscription_share_the_messages(
        self, world: World, topic: str
    ) -> None:
        """They share partitions, not messages: each has its own."""
        async with world.client() as client, world.client() as other:
            await client.create_topic(topic, partitions=4)
            async with (
                client.subscribe(topic, "billing") as one,
                other.subscribe(topic, "billing") as two,
            ):

                async def are_two() -> bool:
                    [row] = await client.subscriptions(topic)
                    return len(set(row["consumers"])) == 2

                await until(are_two, "two consumers with partitions")
                for number in range(40):
                    await client.publish(topic, str(number), key=f"k{number}")
                got: dict[str, list[int]] = {"one": [], "two": []}
                while len(got["one"]) + len(got["two"]) < 40:
                    for name, deliveries in (("one", one), ("two", two)):
                        message = await deliveries.receive(timeout_s=0.05)
                        if message is not None:
                            got[name].append(int(message.body or b"-1"))
                            message.ack()
                assert sorted(got["one"] + got["two"]) == list(range(40))
                assert got["one"]
                assert got["two"]

    @scenario
    async def test_a_given_id_is_stored_once(self, world: World, topic: str) -> None:
        """It is not: the id travels, and the broker does not look for it."""
        async with world.client() as client:
            assert not client.capabilities.has_dedup
            for _ in range(2):
                assert not (await client.publish(topic, b"x", id="one")).duplicate
            assert [m.id for m in await client.peek(topic)] == ["one", "one"]
            with pytest.raises(Unsupported, match=r"on_duplicate.*kafka"):
                await client.create_topic(unique("orders"), on_duplicate=OnDuplicate.REPLACE)

    @scenario
    async def test_an_ack_that_comes_too_late_is_refused_or_harmless(
        self, world: World, topic: str
    ) -> None:
        """The group goes on without a consumer whose program stands still; Kafka refuses it."""
        async with world.client() as client, Elsewhere(world) as other:
            await client.publish(topic, b"x")
            one = await other.subscribe(topic, "billing", credit=1)
            late = await other.do(first(one))
            other.freeze()
            async with client.subscribe(topic, "billing", credit=1) as two:
                again = await first(two)
                assert again.attempt == 2
                other.go_on()
                late.ack()
                with pytest.raises(AckRefused, match="handed out again"):
                    await other.do(one.flush())
                again.ack()
                await two.flush()
                await nothing(two)

    @scenario
    async def test_an_absent_body_is_refused_where_it_would_delete(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_topic(topic, keep_last=1)
            await client.publish(topic, b"", key="k")
            with pytest.raises(Unsupported, match=r"compacted.*kafka|kafka.*compacted"):
                await client.publish(topic, key="k")
            with pytest.raises(Unsupported, match="keep_last"):
                await client.create_topic(unique("orders"), keep_last=2)
