"""The contract over KubeMQ, run by a child in the environment that has its SDK.

PENSTOCK_KUBEMQ names the server. What a queue cannot keep stands in place of the common tests.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.bridging import Wanted
from penstock.vocabulary.errors import AccessRefused, Unavailable, Unsupported
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import (
    World,
    first,
    nothing,
    scenario,
    seconds_told,
    several,
    unique,
)
from tests.contracts.test_readme_urls import program

ADDRESS = os.environ.get("PENSTOCK_KUBEMQ", "")
TOKEN = "right1"
URL = f"kubemq://:{TOKEN}@{ADDRESS}"


@pytest.fixture
def topic() -> str:
    return unique("orders")


class TestKubeMq(DriverSuite):
    @pytest.fixture
    def world(self) -> World:
        return World(URL)

    @scenario
    async def test_topics_are_created_described_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.create_topic(topic)
            await client.create_topic(topic)
            with pytest.raises(Unsupported, match=r"max_age_s.*kubemq"):
                await client.create_topic(unique("orders"), max_age_s=60)
            assert (await client.describe_topic(topic))["messages"] is None
            await client.delete_topic(topic)
            assert topic not in [row["topic"] for row in await client.topics()]

    @scenario
    async def test_a_subscription_can_be_moved(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.create_subscription(topic, "billing")
            with pytest.raises(Unsupported, match=r"cannot be moved.*kubemq"):
                await client.seek(topic, "billing", "earliest")

    @scenario
    async def test_a_new_subscription_starts_where_it_is_asked_to(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1"])
            async with client.subscribe(topic, "one") as deliveries:
                assert [m.body for m in await several(deliveries, 2)] == [b"0", b"1"]
            async with client.subscribe(topic, "two", start="latest") as deliveries:
                await nothing(deliveries)
                await client.publish(topic, b"2")
                assert (await first(deliveries)).body == b"2"
            for start in (17.0, "0:5"):
                with pytest.raises(Unsupported, match=r"start.*kubemq.*'earliest' or 'latest'"):
                    await client.subscribe(topic, unique("s"), start=start)

    @scenario
    async def test_a_lease_that_ends_moves_the_message_to_another_consumer(
        self, world: World, topic: str
    ) -> None:
        """By the server, when the connection ends; else its consumer gives it to anybody."""
        async with world.client() as client, world.client() as other:
            await client.publish(topic, b"x")
            one = await client.subscribe(topic, "billing", lease_s=60, credit=1)
            assert (await first(one)).attempt == 1
            async with other.subscribe(topic, "billing", credit=1) as two:
                await nothing(two)
                await client._opened().carrier.close()  # type: ignore[attr-defined]
                again = await first(two)
                assert again.attempt == 2
                again.ack()

    @scenario
    async def test_an_ack_that_comes_too_late_is_refused_or_harmless(
        self, world: World, topic: str
    ) -> None:
        async with world.client() as client:
            await client.publish(topic, b"x")
            async with client.subscribe(topic, "billing", lease_s=5, credit=1) as deliveries:
                late = await first(deliveries)
                again = await first(deliveries)
                assert (late.attempt, again.attempt) == (1, 2)
                again.extend(30)
                late.ack()
                await deliveries.flush()
                again.ack()
                await deliveries.flush()
                await nothing(deliveries)

    @scenario
    async def test_what_was_not_begun_goes_back_at_once_and_uncounted(
        self, world: World, topic: str
    ) -> None:
        """Uncounted where it comes again to the same client."""
        async with world.client() as client:
            await client.publish_many(topic, [str(number) for number in range(10)])
            for _ in range(2):
                async with client.subscribe(topic, "billing", lease_s=60) as deliveries:
                    got = await several(deliveries, 1)
            async with client.subscribe(topic, "billing", lease_s=60) as deliveries:
                got = await several(deliveries, 10)
                attempts = {int(m.body or b""): m.attempt for m in got}
                assert attempts == {0: 3, **dict.fromkeys(range(1, 10), 1)}

    @scenario
    async def test_dead_letters_can_be_received_and_removed(self, world: World, topic: str) -> None:
        async with world.client() as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "billing") as deliveries:
                for message in await several(deliveries, 3):
                    message.reject("bad")
                await deliveries.flush()
            assert len(await client.dead_letters(topic, "billing")) == 3
            assert await client.purge_dead(topic, "billing", limit=2) == 2
            async with client.subscribe(f"{topic}.dead.billing", "care") as deliveries:
                dead = await first(deliveries)
                assert dead.headers["penstock-dead-reason"] == "bad"
                dead.ack()
                await deliveries.flush()
            assert await client.dead_letters(topic, "billing") == []

    @scenario
    async def test_subscriptions_are_created_changed_and_deleted(
        self, world: World, topic: str
    ) -> None:
        """Their settings are known to the client that made them."""
        async with world.client() as client, world.client() as other:
            await client.create_subscription(topic, "billing", lease_s=5)
            [row] = await client.subscriptions(topic)
            assert row["policy"] == {"lease_s": 5.0}
            [row] = await other.subscriptions(topic)
            assert (row["subscription"], row["policy"]) == ("billing", {})
            await client.delete_subscription(topic, "billing")
            assert await other.subscriptions(topic) == []


def test_the_program_of_the_readme(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program().replace("file:./data", URL)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "{'id': 1}\n"), done.stderr


def opening(url: str) -> Any:
    async def scenario() -> None:
        await penstock.connect(url).open()

    return asyncio.run(scenario())


def test_a_wrong_token_is_refused_and_never_printed() -> None:
    with pytest.raises(AccessRefused) as raised:
        opening(f"kubemq://:wrong1@{ADDRESS}")
    assert "wrong1" not in str(raised.value)


def test_a_server_that_is_not_there_is_named_with_the_time_it_was_tried() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 could") as caught:
        opening("kubemq://127.0.0.1:9?connect_s=1")
    assert 1 <= seconds_told(str(caught.value)) < 2


def test_a_bridge_keeps_ids_and_cannot_be_proved(topic: str) -> None:
    async def work() -> None:
        source = f"memory:{topic}"
        async with penstock.connect(source) as origin, penstock.connect(URL) as goal:
            await origin.create_topic(topic, replay_s=60.0)
            await origin.publish(topic, b"x", id="mine")
            wanted = Wanted(topic=topic, verify=True)
            with pytest.raises(Unsupported, match=r"--verify.*kubemq: URLs.*nothing was copied"):
                await penstock.bridge(source, URL, wanted=wanted)
            await penstock.bridge(source, URL, topic)
            async with goal.subscribe(topic, "billing", start="earliest") as deliveries:
                assert (await first(deliveries)).id == "mine"

    asyncio.run(work())
