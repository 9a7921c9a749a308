"""mosquitto stopped and killed under load, with everything that goes on meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry
from tests.contracts.soak import Soak
from tests.contracts.suites.world import PATIENCE_S, unique, until
from tests.servers import emulators
from tests.servers.fixtures import starting

RESUME_S = 15.0
ENDLESS = Retry(max_attempts=None)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[str, Server]]:
    """A server that this test may kill, and its URL."""
    with starting(lambda: emulators.mosquitto(tmp_path / "mosquitto")) as server:
        yield f"tcp://{server.address}", server


class Load:
    """A publisher and a consumer that go on whatever happens."""

    def __init__(self, url: str, total: int) -> None:
        self.url = url
        self.topic = unique("load")
        self.total = total
        self.confirmed: list[str] = []
        self.received: Counter[str] = Counter()
        self.newest = 0.0
        self.is_over = False

    async def publish(self, client: penstock.Client) -> None:
        for low in range(0, self.total, 25):
            part = [str(number) for number in range(low, low + 25)]
            receipts = await client.publish_many(self.topic, part)
            assert {receipt.durability for receipt in receipts} == {Durability.MEMORY}
            self.confirmed += part
            await asyncio.sleep(0.01)

    async def consume(self, client: penstock.Client) -> None:
        async with client.subscribe(self.topic, "work", retry=ENDLESS) as deliveries:
            while not self.is_over:
                message = await deliveries.receive(timeout_s=0.1)
                if message is not None:
                    self.received[(message.body or b"").decode()] += 1
                    self.newest = time.monotonic()
                    message.ack()

    async def run(self, server: Server, *, kills: bool) -> float:
        """How long after its start the consumer got something."""
        url = f"{self.url}?publish_s=60"
        async with penstock.connect(url) as sender, penstock.connect(url) as taker:
            await sender.create_subscription(self.topic, "work", retry=ENDLESS)
            consuming = asyncio.create_task(self.consume(taker))
            publishing = asyncio.create_task(self.publish(sender))

            async def has_begun() -> bool:
                assert not publishing.done(), publishing.exception()
                return len(self.confirmed) >= self.total // 3

            await until(has_begun, "a third of the load")
            (server.kill if kills else server.stop)()  # here: nothing is published meanwhile
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            started = time.monotonic()

            async def goes_on() -> bool:
                return self.newest > started

            await until(goes_on, "the consumer to go on")
            resumed = self.newest - started
            await asyncio.wait_for(publishing, 90)

            async def is_quiet() -> bool:
                lost = set(self.confirmed) - self.received.keys()
                is_over = self.confirmed[-1] in self.received
                return not lost or (kills and is_over and time.monotonic() - self.newest > 1)

            await until(is_quiet, "everything to arrive", 2 * PATIENCE_S)
            self.is_over = True
            await consuming
            return resumed


def test_a_server_stopped_under_load_loses_nothing_it_confirmed(own: tuple[str, Server]) -> None:
    url, server = own
    load = Load(url, 1_500)
    resumed = asyncio.run(load.run(server, kills=False))
    assert resumed < RESUME_S
    assert not set(load.confirmed) - load.received.keys()
    assert not load.received.keys() - set(load.confirmed)


def test_a_killed_server_forgets_what_was_in_memory_and_nothing_else(
    own: tuple[str, Server],
) -> None:
    url, server = own
    load = Load(url, 1_500)
    resumed = asyncio.run(load.run(server, kills=True))
    assert resumed < RESUME_S
    lost = sorted(set(load.confirmed) - load.received.keys(), key=int)
    # A receipt of level `memory` promises no more: what waited in the server at that moment.
    assert len(lost) < len(load.confirmed) / 2
    assert load.confirmed[-1] in load.received


def test_a_consumer_that_was_away_gets_what_came_meanwhile_after_a_stop(
    own: tuple[str, Server],
) -> None:
    url, server = own
    topic = unique("held")

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            for qos in (1, 2):
                await client.create_subscription(topic, f"q{qos}", qos=qos, retry=ENDLESS)
            await client.publish_many(topic, [str(number) for number in range(30)])
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        async with penstock.connect(url) as client:
            for qos in (1, 2):
                async with client.subscribe(topic, f"q{qos}", qos=qos, retry=ENDLESS) as deliveries:
                    got = []
                    for _ in range(30):
                        message = await deliveries.receive(timeout_s=PATIENCE_S)
                        assert message is not None
                        got.append(int(message.body or b""))
                        message.ack()
                    assert got == list(range(30))

    asyncio.run(scenario())


@pytest.mark.parametrize("total", [1_000, pytest.param(5_000, marks=pytest.mark.prove)])
def test_a_soak_leaves_nothing_unexplained(
    own: tuple[str, Server], tmp_path: Path, total: int
) -> None:
    url, _ = own
    topic = unique("soak")
    soaked = Soak(topic, total)

    async def scenario() -> None:
        full = f"{url}?dead=file:{tmp_path / 'dead'}"
        async with penstock.connect(full) as one, penstock.connect(full) as two:
            workers = [asyncio.create_task(soaked.work(client)) for client in (one, one, two)]

            async def are_there() -> bool:
                rows = await one.subscriptions(topic) if topic in await names(one) else []
                return bool(rows) and len(rows[0]["consumers"]) == len(workers)

            await until(are_there, "three consumers")
            for low in range(0, total, 500):
                await one.publish_many(topic, [str(number) for number in range(low, low + 500)])
            await asyncio.wait_for(asyncio.gather(*workers), 100)
            assert len(await one.dead_letters(topic, "work", 1_000)) == total // 50

    async def names(client: penstock.Client) -> set[str]:
        return {row["topic"] for row in await client.topics()}

    asyncio.run(scenario())
    assert soaked.outcome["acked"] + soaked.outcome["rejected"] == total
    assert (soaked.outcome["rejected"], soaked.outcome["nacked"]) == (total // 50, total // 10)
