"""Three nodes of the deployed configuration: one is killed under load."""

import asyncio
import time
from contextlib import suppress

import penstock
from penstock.vocabulary.errors import AckRefused
from penstock.vocabulary.message import Durability
from tests.contracts.suites.world import PATIENCE_S, unique, until
from tests.contracts.test_foreign_crash import RESUME_S, Load
from tests.servers.kafka import Cluster, deploy
from tests.standstill import noticed


class PatientLoad(Load):
    """A consumer that may lose its partitions when the node that keeps its group dies."""

    async def consume(self, client: penstock.Client) -> None:
        with suppress(AckRefused):  # what is refused is delivered again
            await super().consume(client)


def test_a_killed_node_loses_nothing_that_was_confirmed(kafka_cluster: Cluster) -> None:
    url = f"kafka://{kafka_cluster.bootstrap}?topics=3:3&publish_s=60"
    load = PatientLoad(url, unique("load"), 2_500)
    startup = ",".join((deploy.HERE / "topics.txt").read_text(encoding="utf-8").split())

    async def scenario() -> float:
        async with (
            penstock.connect(f"{url}&startup={startup}") as sender,
            penstock.connect(url) as taker,
        ):
            assert (await sender.describe_topic("monitoring.pms"))["partitions"] == 3
            receipt = await sender.publish(load.topic, b"-1")
            assert receipt.durability is Durability.REPLICATED
            assert (await sender.publish("monitoring.pms", b"")).durability is Durability.WRITTEN
            await sender.create_subscription(load.topic, "work", start="latest")
            load.goes_on = True
            consuming = asyncio.create_task(load.consume(taker))
            publishing = asyncio.create_task(load.publish(sender))

            async def is_running() -> bool:
                assert not publishing.done(), publishing.exception()
                return len(load.received) > 200

            await until(is_running, "the load")
            kafka_cluster.nodes[-1].kill()
            killed = time.monotonic()
            load.goes_on = False
            held = len(load.confirmed) + 200  # some were under way
            with noticed() as standstill:
                while len(load.received) <= held and not consuming.done():
                    await asyncio.sleep(0.01)
                    assert time.monotonic() - killed < PATIENCE_S, "the consumer did not resume"
            resumed = time.monotonic() - killed - standstill.seconds
            await asyncio.wait_for(asyncio.gather(publishing, consuming), 90)
            return resumed

    try:
        resumed = asyncio.run(scenario())
    finally:
        kafka_cluster.nodes[-1].start()
    lost = load.confirmed - load.received.keys()
    assert not lost, f"{len(lost)} confirmed messages are lost"
    assert resumed < RESUME_S
    assert not load.received.keys() - load.confirmed
    assert len(load.confirmed) == load.total
