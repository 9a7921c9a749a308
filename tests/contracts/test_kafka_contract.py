"""The contract over Kafka, on one node. A partition has one consumer at a time."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.vocabulary.errors import AckRefused, Unavailable, Unsupported
from tests.contracts.soak import RETRY, Soak
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import (
    PATIENCE_S,
    Elsewhere,
    World,
    first,
    nobody,
    nothing,
    scenario,
    seconds_told,
    unique,
    until,
)
from tests.contracts.test_readme_urls import program
from tests.servers.kafka import Cluster
from tests.standstill import noticed


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
    async def test_an_ack_that_comes_too_late_is_refused_or_harmless(
        self, world: World, topic: str
    ) -> None:
        """The group goes on without a consumer whose program stands still; Kafka refuses it."""
        async with world.client() as client, Elsewhere(world) as other:
            await client.publish(topic, b"x")
            one = await other.subscribe(topic, "billing", credit=1)
            late = await other.last(first(one))
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


def test_the_program_of_the_readme(kafka_server: Cluster, tmp_path: Path) -> None:
    text = program().replace("file:./data", f"kafka://{kafka_server.bootstrap}?topics=3:1")
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "{'id': 1}\n"), done.stderr


def test_a_soak_leaves_nothing_unexplained(kafka_server: Cluster) -> None:
    url = f"kafka://{kafka_server.bootstrap}?topics=4:1"
    topic, total = unique("soak"), 5_000
    soaked = Soak(topic, total)

    async def soak() -> None:
        async with penstock.connect(url) as one, penstock.connect(url) as two:
            await one.create_subscription(topic, "work", retry=RETRY)
            workers = [asyncio.create_task(soaked.work(client)) for client in (one, two)]

            async def are_two() -> bool:
                assert not any(worker.done() for worker in workers), workers
                [row] = await one.subscriptions(topic)
                return len(set(row["consumers"])) == 2

            await until(are_two, "both consumers")
            for low in range(0, total, 500):
                await one.publish_many(topic, [str(number) for number in range(low, low + 500)])
            await asyncio.wait_for(asyncio.gather(*workers), 100)
            [row] = await one.subscriptions(topic)
            dead = await one.dead_letters(topic, "work", 1_000)
            assert len(dead) == total // 50
            assert (row["waiting"], row["leased"]) == (0, 0), row

    asyncio.run(soak())
    assert soaked.outcome["acked"] + soaked.outcome["rejected"] == total
    assert soaked.outcome["rejected"] == total // 50
    assert soaked.outcome["nacked"] == total // 10


def test_a_server_that_is_not_there_is_named_with_the_time_it_was_tried() -> None:
    async def opening(port: int) -> None:
        url = f"kafka://user:secret@127.0.0.1:{port}?connect_s=1"
        with (
            noticed() as standstill,
            pytest.raises(Unavailable, match=f"127.0.0.1:{port}") as caught,
        ):
            await penstock.connect(url).open()
        assert 1 <= seconds_told(str(caught.value)) < 2 + standstill.seconds
        assert "secret" not in str(caught.value)

    with nobody() as port:
        asyncio.run(asyncio.wait_for(opening(port), PATIENCE_S))
