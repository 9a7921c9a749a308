"""What groups have committed, asked without the call that ends the process."""

from pathlib import Path

import penstock
from penstock.drivers.choose import address_of
from penstock.drivers.kafka.askers import ASKERS_MAX, Askers
from penstock.drivers.kafka.link import Link, TopicPartition
from penstock.drivers.kafka.names import kafka_name
from penstock.drivers.kafka.settings import settings_of
from tests.contracts.suites.world import unique
from tests.drivers.kafka.rig import client_of, run, url_of
from tests.servers.kafka import Cluster


def test_many_groups_are_asked_by_a_few_consumers(kafka_server: Cluster) -> None:
    topic = unique("asked")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=1:1") as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "tables") as deliveries:
                message = await deliveries.receive(timeout_s=30.0)
                assert message is not None
                message.ack()
            link = Link(settings_of(address_of(url_of(kafka_server))))
            askers = Askers(link)
            place = TopicPartition(kafka_name(topic), 0)
            try:
                (found,) = await askers.committed("tables", [place])
                assert found.offset == 1
                assert found.metadata
                for number in range(ASKERS_MAX + 2):
                    (none,) = await askers.committed(f"{topic}-{number}", [place])
                    assert none.offset < 0
                assert len(askers._kept) == ASKERS_MAX
            finally:
                await askers.close()
                await link.close()

    run(scenario())


def test_the_administrator_is_never_asked_for_offsets() -> None:
    source = Path(penstock.__file__).parent
    asking = [
        path.name
        for path in source.rglob("*.py")
        if "list_consumer_group_offsets" in path.read_text(encoding="utf-8")
    ]
    assert asking == [], "a coordinator that has moved ends the process then: see askers.py"
