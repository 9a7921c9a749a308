"""Kafka on one node, killed under load: its page cache survives, so that nothing confirmed is lost.

(The kill of one node of three is in `test_kafka_cluster.py`.)
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.vocabulary.message import Durability
from tests.contracts.suites.world import PATIENCE_S, unique, until
from tests.contracts.test_foreign_crash import RESUME_S
from tests.contracts.test_kafka_cluster import PatientLoad
from tests.servers.fixtures import available
from tests.servers.kafka import Cluster
from tests.standstill import noticed

ORDERED = 400


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """A Kafka that this test may kill."""
    cluster = available(lambda: Cluster(tmp_path / "kafka", 1))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


class OrderedPublishes:
    """Publishes of one key, many under way at once: none overtakes another, none comes twice."""

    def __init__(self, client: penstock.Client, topic: str, load: PatientLoad) -> None:
        self._client = client
        self._topic = topic
        self._load = load
        self.sent = 0
        self.confirmed = 0

    async def run(self) -> None:
        window: list[asyncio.Task[penstock.Receipt]] = []
        while self.sent < ORDERED or self._load.goes_on:
            send = self._client.publish(self._topic, str(self.sent), key="one")
            self.sent += 1
            window.append(asyncio.create_task(send))
            if len(window) == 40:
                await window.pop(0)
                self.confirmed += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*window)
        self.confirmed = self.sent


def test_a_node_killed_under_load_loses_nothing_it_confirmed(own: Cluster) -> None:
    url = f"kafka://{own.bootstrap}?topics=1:1&publish_s=60"
    load = PatientLoad(url, unique("load"), 2_500)
    node = own.nodes[0]

    async def scenario() -> tuple[float, int, list[str]]:
        async with penstock.connect(url) as sender, penstock.connect(url) as taker:
            receipt = await sender.publish(load.topic, b"-1")
            assert receipt.durability is Durability.WRITTEN
            await sender.create_subscription(load.topic, "work", start="latest")
            ordered = OrderedPublishes(sender, unique("ordered"), load)
            load.goes_on = True
            consuming = asyncio.create_task(load.consume(taker))
            publishing = asyncio.create_task(load.publish(sender))

            async def is_consuming() -> bool:
                return bool(load.received)

            await until(is_consuming, "the consumer")
            ordering = asyncio.create_task(ordered.run())

            async def is_running() -> bool:
                for task in (publishing, ordering, consuming):
                    assert not task.done(), task.exception()
                return len(load.received) > 200 and ordered.confirmed > 10

            await until(is_running, "the load")
            node.kill()
            assert ordered.confirmed < ordered.sent
            load.goes_on = False
            await asyncio.to_thread(node.start)
            started = time.monotonic()
            listing = asyncio.create_task(sender.subscriptions(load.topic))
            with noticed() as standstill:
                while load.newest < started and not consuming.done():
                    await asyncio.sleep(0.01)
                    assert time.monotonic() - started < PATIENCE_S, "the consumer did not resume"
            resumed = load.newest - started - standstill.seconds
            await asyncio.wait_for(asyncio.gather(publishing, ordering, consuming), 90)
            assert [row["subscription"] for row in await listing] == ["work"], (
                "while groups are loaded"
            )
            found = await sender.peek(ordered._topic, 2 * ordered.sent)
            return resumed, ordered.sent, [(message.body or b"").decode() for message in found]

    resumed, sent, found = asyncio.run(scenario())
    lost = load.confirmed - load.received.keys()
    assert not lost, f"{len(lost)} confirmed messages are lost"
    assert resumed < RESUME_S
    assert not load.received.keys() - load.confirmed
    assert len(load.confirmed) == load.total
    assert found == [str(number) for number in range(sent)]
