"""Brokers that number nothing, as source and as target: ids travel, and a proof can be equal."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.bridging import Wanted, bridge
from penstock.client.bridging.copying import AT_LEAST_ONCE, ONCE_FOR_A_WHILE
from penstock.client.bridging.targets import PUBLISHED_AT
from penstock.drivers import capabilities
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry
from tests.client.bridging.world import IDLE_S, SILENCE_S, all_of, contents, filled
from tests.contracts.suites.world import several
from tests.servers.fixtures import unique

COUNT = 30
RETRY = Retry(max_attempts=None)


def letters() -> list[Message]:
    return [
        Message(body=b"%d" % at, key=f"k{at % 3}", headers={"a": "ü"} if at % 2 else None)
        for at in range(COUNT)
    ]


@pytest.fixture(params=["mqtt", "pubsub"])
def unnumbered(request: pytest.FixtureRequest) -> str:
    """The URL of a broker whose messages have no numbers."""
    if request.param == "mqtt":
        server: Server = request.getfixturevalue("mosquitto")
        return f"mqtt://{server.address}"
    server = request.getfixturevalue("pstest")
    return f"pubsub://{unique('project')}?emulator={server.address}"


async def landed(source: str, target: str, topic: str, messages: list[Message]) -> Any:
    """A bridge that was there before the messages, and then copies and compares them."""
    async with penstock.connect(source) as origin:
        await origin.create_topic(topic)
        wanted = Wanted(topic=topic, idle_s=SILENCE_S, verify=True)
        before = await bridge(source, target, wanted=wanted)
        assert before.copied == 0
        assert before.guarantee.startswith(AT_LEAST_ONCE), "nothing is known of its numbers"
        await origin.publish_many(topic, messages)
        wanted = Wanted(topic=topic, idle_s=IDLE_S, verify=True)
        return await bridge(source, target, wanted=wanted, **all_of(len(messages)))


def test_what_lands_is_proved_to_be_equal(unnumbered: str) -> None:
    async def scenario() -> None:
        topic, target = unique("readings"), f"memory:{unique('landing')}"
        async with penstock.connect(target) as goal:
            found = await landed(unnumbered, target, topic, letters())
            assert (found.copied, found.guarantee) == (COUNT, ONCE_FOR_A_WHILE)
            verified = found.verified
            assert verified.is_equal, verified
            assert (verified.compared, verified.others) == (COUNT, 0)
            assert verified.source_digest == verified.target_digest
            rows = await contents(goal, topic)
            assert all(PUBLISHED_AT in row[2] for row in rows)

    asyncio.run(scenario())


def test_what_was_changed_in_the_landing_log_is_found(mosquitto: Server) -> None:
    async def scenario() -> None:
        topic, target = unique("readings"), f"memory:{unique('landing')}"
        source = f"mqtt://{mosquitto.address}"
        wanted = Wanted(topic=topic, idle_s=IDLE_S, verify=True)
        async with penstock.connect(source) as origin, penstock.connect(target) as goal:
            await bridge(source, target, wanted=Wanted(topic=topic, idle_s=SILENCE_S))
            receipt = await origin.publish(topic, b"right")
            await goal.publish(topic, b"wrong", id=receipt.id)
            verified = (await bridge(source, target, wanted=wanted, **all_of(1))).verified
            assert verified is not None
            assert (verified.is_equal, verified.changed) == (False, 1)

    asyncio.run(scenario())


def test_ids_travel_to_mqtt(mosquitto: Server) -> None:
    async def scenario() -> None:
        topic, source = unique("t"), f"memory:{unique('here')}"
        target = f"mqtt://{mosquitto.address}?hold={topic}@keeper"
        messages = [Message(body=b"1", id="given"), Message(body=b"2", key="k")]
        async with (
            filled(source, topic, messages) as origin,
            penstock.connect(target) as goal,
        ):
            before = await contents(origin, topic)
            found = await bridge(source, target, topic)
            assert (found.copied, found.guarantee) == (2, AT_LEAST_ONCE)
            async with goal.subscribe(topic, "keeper", retry=RETRY) as deliveries:
                got = await several(deliveries, 2)
            assert [(each.id, each.key, each.body) for each in got] == [
                (row[0], row[1], row[3]) for row in before
            ]
            assert [round(each.published_at * 1000) for each in got] == [row[5] for row in before]

    asyncio.run(scenario())


def test_ids_travel_between_two_brokers_without_numbers(mosquitto: Server, pstest: Server) -> None:
    async def scenario() -> None:
        topic = unique("t")
        source = f"mqtt://{mosquitto.address}"
        target = f"pubsub://{unique('project')}?emulator={pstest.address}"
        found = await landed(source, target, topic, letters())
        assert (found.copied, found.guarantee) == (COUNT, AT_LEAST_ONCE)
        assert found.verified.is_equal, found.verified
        assert found.verified.compared == COUNT

    asyncio.run(scenario())


def test_a_target_that_cannot_be_looked_at_is_refused_before_anything_is_copied(
    mosquitto: Server,
) -> None:
    async def scenario() -> None:
        topic, source = unique("t"), f"memory:{unique('here')}"
        target = f"mqtt://{mosquitto.address}?hold={topic}@keeper"
        async with (
            filled(source, topic, [Message(body=b"1")]),
            penstock.connect(target) as goal,
        ):
            with pytest.raises(Unsupported, match=r"--verify.*mqtt: URLs.*nothing was copied"):
                await bridge(source, target, wanted=Wanted(topic=topic, verify=True))
            async with goal.subscribe(topic, "keeper", retry=RETRY) as deliveries:
                assert await deliveries.receive(timeout_s=0.3) is None
        assert not capabilities.KUBEMQ.can_peek_all

    asyncio.run(scenario())


def test_version_3_of_mqtt_has_no_place_for_ids(mosquitto: Server) -> None:
    async def scenario() -> None:
        topic, source = unique("t"), f"memory:{unique('here')}"
        target = f"mqtt://{mosquitto.address}?version=3.1.1&hold={topic}@keeper"
        async with filled(source, topic, [Message(body=b"1")]):
            with pytest.raises(Unsupported, match=r"an id: not available.*3\.1\.1.*use MQTT 5"):
                await bridge(source, target, topic)

    asyncio.run(scenario())


def test_what_a_source_hands_out_twice_is_expected_once(
    redis_server: Callable[..., Server],
) -> None:
    async def scenario() -> None:
        topic, source = unique("t"), f"redis://{redis_server().address}"
        target = f"memory:{unique('landing')}"
        wanted = Wanted(topic=topic, consume=True, idle_s=IDLE_S, verify=True)
        async with filled(source, topic, letters()) as origin, penstock.connect(target):
            await origin.create_subscription(topic, "keeper")  # so that nothing is removed
            found = await bridge(source, target, wanted=wanted, **all_of(COUNT))
            assert found.verified is not None
            assert found.verified.is_equal
            await origin.seek(topic, found.subscription, "earliest")
            again = await bridge(source, target, wanted=wanted, **all_of(COUNT))
            assert (again.copied, again.known) == (0, COUNT)
            assert again.verified is not None
            assert again.verified.is_equal

    asyncio.run(scenario())
