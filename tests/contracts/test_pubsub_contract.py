"""The contract over Google Pub/Sub, on the server its Go client tests itself with.

Pub/Sub keeps no order but that of a key, counts no messages, knows no positions and counts attempts
about right; the tests that say so stand in place of the common ones.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.errors import TopicExists, UnknownTopic, Unsupported
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import (
    PATIENCE_S,
    World,
    first,
    nothing,
    scenario,
    several,
    unique,
)
from tests.contracts.test_foreign_crash import KILLED
from tests.contracts.test_readme_urls import program
from tests.servers import emulators
from tests.servers.fixtures import starting


@pytest.fixture
def topic() -> str:
    return unique("orders")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("gcloud") is None:
        pytest.skip("there is no gcloud, and no other source of this emulator")
    folder = tmp_path_factory.mktemp("google")
    with starting(lambda: emulators.google_pubsub(folder)) as server:
        yield server


class TestPubSub(DriverSuite):
    @pytest.fixture
    def world(self, pstest: Server) -> World:
        return World(f"pubsub://project?emulator={pstest.address}&exactly_once=true")

    @scenario
    async def test_topics_are_created_described_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_topic(topic, max_age_s=3600)
            await client.create_topic(topic, max_age_s=3600)
            with pytest.raises(TopicExists):
                await client.create_topic(topic, max_age_s=660)
            await client.alter_topic(topic, max_age_s=7200)
            described = await client.describe_topic(topic)
            assert (described["partitions"], described["policy"]["max_age_s"]) == (1, 7200)
            assert topic in [row["topic"] for row in await client.topics()]
            await client.publish(topic, b"x")
            assert (await client.describe_topic(topic))["messages"] is None
            await client.delete_topic(topic)
            assert topic not in [row["topic"] for row in await client.topics()]
            with pytest.raises(UnknownTopic):
                await client.describe_topic(topic)

    @scenario
    async def test_a_subscription_can_be_moved(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.create_topic(topic, replay_s=3600)
            sent = await client.publish(topic, b"0")
            await asyncio.sleep(0.05)
            moment = time.time()
            await asyncio.sleep(0.05)
            await client.publish_many(topic, [b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 3):
                    message.ack()
            with pytest.raises(Unsupported, match=r"pubsub.*not at a position"):
                await client.seek(topic, "billing", sent.position)
            for to, expected in (
                (moment, {b"1", b"2"}), ("latest", set()), ("earliest", {b"0", b"1", b"2"}),
            ):  # fmt: skip
                await client.seek(topic, "billing", to)
                async with client.subscribe(topic, "billing") as deliveries:
                    assert {m.body for m in await several(deliveries, len(expected))} == expected
                    await nothing(deliveries)

    @scenario
    async def test_what_was_not_begun_goes_back_at_once_and_uncounted(
        self, world: World, topic: str
    ) -> None:
        """Uncounted where it comes again to the same client; others see what the server counted.

        Nobody pulls with its hands full: a pull under way could bring again what goes back.
        """
        async with world.client() as client, world.client() as other:
            await client.publish_many(topic, [str(number) for number in range(10)])
            options: dict[str, Any] = {"lease_s": 60, "credit": 10}
            async with client.subscribe(topic, "billing", **options) as deliveries:
                assert (await first(deliveries)).body == b"0"
            async with client.subscribe(topic, "billing", **options) as deliveries:
                got = await several(deliveries, 10)
                attempts = {int(m.body or b""): m.attempt for m in got}
                assert attempts == {0: 2, **dict.fromkeys(range(1, 10), 1)}
            async with other.subscribe(topic, "billing") as deliveries:
                got = await several(deliveries, 10)
                assert {m.attempt for m in got} == {3}

    @scenario
    async def test_a_new_subscription_starts_where_it_is_asked_to(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"0")
            await asyncio.sleep(0.05)
            moment = client._opened().wall / 1000
            await asyncio.sleep(0.05)
            await client.publish(topic, b"1")
            two = await client.publish(topic, b"2")
            for start, expected in (
                (None, [b"0", b"1", b"2"]),
                ("earliest", [b"0", b"1", b"2"]),
                (moment, [b"1", b"2"]),
            ):
                async with client.subscribe(topic, unique("s"), start=start) as deliveries:
                    got = [m.body for m in await several(deliveries, len(expected))]
                    assert got == expected, start
            async with client.subscribe(topic, unique("s"), start="latest") as deliveries:
                await nothing(deliveries)
                await client.publish(topic, b"3")
                assert (await first(deliveries)).body == b"3"
            with pytest.raises(Unsupported, match=r"pubsub.*not at a position"):
                await client.subscribe(topic, unique("s"), start=two.position)

    @scenario
    async def test_key_shared_is_given_or_refused_by_name(self, world: World, topic: str) -> None:
        """One message of a key at a time, in order; a nacked one holds its own key only."""
        async with world.client() as client, world.client() as other:
            for number in range(6):
                await client.publish(topic, str(number), key=f"k{number % 2}")
            got: dict[str, list[bytes]] = {"k0": [], "k1": []}
            async with (
                client.subscribe(topic, "drivers", kind="key_shared") as one,
                other.subscribe(topic, "drivers", kind="key_shared") as two,
            ):
                held = await several(one, 2)
                assert {m.key for m in held} == {"k0", "k1"}
                await nothing(two)
                nacked = next(m for m in held if m.key == "k0")
                nacked.nack(delay_s=8.0)
                rest = next(m for m in held if m.key == "k1")
                while len(got["k1"]) < 3:
                    got["k1"].append(rest.body or b"")
                    rest.ack()
                    if len(got["k1"]) < 3:
                        rest = await next_of(one, two)
                        assert rest.key == "k1"
                for attempt in (2, 1, 1):
                    message = await next_of(one, two)
                    assert (message.key, message.attempt >= attempt) == ("k0", True)
                    got["k0"].append(message.body or b"")
                    message.ack()
            assert got == {"k0": [b"0", b"2", b"4"], "k1": [b"1", b"3", b"5"]}

    @scenario
    async def test_messages_come_in_the_order_of_their_publishing(
        self, world: World, topic: str
    ) -> None:
        """In any order, and each of them once."""
        async with world.client() as client:
            single = [await client.publish(topic, str(number)) for number in range(5)]
            many = await client.publish_many(topic, [str(number) for number in range(5, 2_500)])
            ids = [receipt.id for receipt in single] + [receipt.id for receipt in many]
            assert len(set(ids)) == 2_500
            async with client.subscribe(topic, "billing") as deliveries:
                found: dict[int, str] = {}
                for _ in range(2_500):
                    message = await first(deliveries)
                    found[int(message.body or b"")] = message.id
                    message.ack()
                assert [found[number] for number in range(2_500)] == ids
                await nothing(deliveries)


@pytest.mark.prove
class TestGoogleEmulator(TestPubSub):
    """The emulator that Google gives to developers; it cannot change settings."""

    @pytest.fixture
    def world(self, emulator: Server) -> World:
        return World(f"pubsub://project?emulator={emulator.address}&exactly_once=true")

    @scenario
    async def test_topics_are_created_described_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_topic(topic, max_age_s=3600)
            with pytest.raises(Unsupported, match="emulator cannot change settings"):
                await client.alter_topic(topic, max_age_s=7200)

    @scenario
    async def test_subscriptions_are_created_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_subscription(topic, "billing", lease_s=5)
            with pytest.raises(Unsupported, match="emulator cannot change settings"):
                await client.alter_subscription(topic, "billing", lease_s=6)

    test_what_was_not_begun_goes_back_at_once_and_uncounted = None  # type: ignore[assignment]


def test_the_program_of_the_readme(pstest: Server, tmp_path: Path) -> None:
    url = f"pubsub://project?emulator={pstest.address}"
    done = subprocess.run(
        [sys.executable, "-c", program().replace("file:./data", url)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "{'id': 1}\n"), done.stderr


@pytest.mark.prove
def test_the_messages_of_a_killed_consumer_are_taken_over(pstest: Server) -> None:
    url, topic = f"pubsub://project?emulator={pstest.address}", unique("taken")

    async def held() -> None:
        async with penstock.connect(url) as client:
            await client.create_subscription(topic, "work", lease_s=5)
            await client.publish_many(topic, [str(number) for number in range(10)])

    async def taken() -> None:
        async with (
            penstock.connect(url) as client,
            client.subscribe(topic, "work") as deliveries,
        ):
            for message in await several(deliveries, 10):
                assert message.attempt == 2
                message.ack()

    asyncio.run(held())
    command = [sys.executable, "-c", KILLED, url, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"holding\n"
        child.kill()
    asyncio.run(taken())


async def next_of(*consumers: Deliveries) -> ReceivedMessage:
    """The next message of any of these consumers."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        for deliveries in consumers:
            message = await deliveries.receive(timeout_s=0.05)
            if message is not None:
                return message
    raise AssertionError("no message came")
