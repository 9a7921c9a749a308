"""What groups have committed, asked without the call that ends the process."""

from pathlib import Path

import pytest

import penstock
from penstock.drivers.choose import address_of
from penstock.drivers.kafka.askers import ASKERS_MAX, Askers
from penstock.drivers.kafka.link import Link, TopicPartition
from penstock.drivers.kafka.membership import client_ids
from penstock.drivers.kafka.names import kafka_name
from penstock.drivers.kafka.settings import settings_of
from penstock.vocabulary.errors import UnknownTopic
from tests.contracts.suites.world import first, unique
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


def test_offsets_are_committed_for_a_group_without_consumers_only(kafka_server: Cluster) -> None:
    topic = unique("told")

    async def scenario() -> None:
        async with client_of(kafka_server, "topics=1:1") as client:
            await client.publish(topic, b"x")
            link = Link(settings_of(address_of(url_of(kafka_server))))
            askers = Askers(link)
            place = TopicPartition(kafka_name(topic), 0, 1, metadata="mine")
            group = unique("tables")
            try:
                assert await link.group(group) is None
                assert await askers.commit(group, [place])
                (found,) = await askers.committed(group, [place])
                assert (found.offset, found.metadata) == (1, "mine")
                await client.create_subscription(topic, f"{group}-used")
                async with client.subscribe(topic, f"{group}-used") as deliveries:
                    await first(deliveries)
                    used = await link.group(f"{group}-used")
                    assert len(client_ids(used, kafka_name(topic))) == 1
                    assert client_ids(used, "another") == []
                    assert not await askers.commit(f"{group}-used", [place])
            finally:
                await askers.close()
                await link.close()

    run(scenario())


def test_a_refused_commit_is_told_with_its_reason(kafka_server: Cluster) -> None:
    async def scenario() -> None:
        link = Link(settings_of(address_of(url_of(kafka_server))))
        askers = Askers(link)
        nowhere = TopicPartition(unique("nowhere"), 0, 1)
        try:
            with pytest.raises(UnknownTopic, match="UNKNOWN_TOPIC"):
                await askers.commit(unique("tables"), [nowhere])
        finally:
            await askers.close()
            await link.close()

    run(scenario())


@pytest.mark.parametrize(
    "call",
    [
        "list_consumer_group_offsets", "alter_consumer_group_offsets", "delete_consumer_groups",
        "describe_consumer_groups",
    ],
)  # fmt: skip
def test_the_administrator_is_never_asked_what_a_coordinator_answers(call: str) -> None:
    source = Path(penstock.__file__).parent
    asking = [
        path.name for path in source.rglob("*.py") if call in path.read_text(encoding="utf-8")
    ]
    assert asking == [], "a coordinator that moves or breaks ends the process: see askers.py"
