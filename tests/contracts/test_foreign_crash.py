"""Real servers killed under load, consumers killed with their hands full, and a long soak."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.message import Durability
from tests.contracts.soak import Soak
from tests.contracts.suites.world import PATIENCE_S, nobody, seconds_told, unique
from tests.servers.fixtures import starting
from tests.standstill import noticed

RESUME_S = 15.0
LEASE_S = 10.0
"""Longer than a server is away, so that no ack comes too late."""
KINDS = ["nats", "redis"]


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Server]]:
    """A server that this test may kill, and its URL."""
    make: dict[str, Callable[[], AbstractContextManager[Server]]] = {
        "nats": lambda: starting(lambda: servers.nats(tmp_path / "nats")),
        "redis": lambda: starting(lambda: servers.redis(tmp_path / "redis", fsync="always")),
    }
    with make[request.param]() as server:
        yield f"{request.param}://{server.address}", server


class Load:
    """A publisher and a consumer that go on whatever happens."""

    def __init__(self, url: str, topic: str, total: int) -> None:
        self.url = url
        self.topic = topic
        self.total = total
        self.confirmed: set[str] = set()
        self.received: Counter[str] = Counter()
        self.newest = 0.0
        """When the consumer got something last."""
        self.goes_on = False
        """While this is true there is always more to publish: what dies shall die under load."""

    async def publish(self, client: penstock.Client) -> None:
        number = 0
        while number < self.total:
            if self.goes_on:
                self.total = max(self.total, number + 1_000)
            part = [str(n) for n in range(number, min(number + 25, self.total))]
            receipts = await client.publish_many(self.topic, part)
            assert all(r.durability is not Durability.MEMORY for r in receipts)
            self.confirmed.update(part)
            number += 25
            await asyncio.sleep(0.01)
            while not self.received:  # noqa: ASYNC110 - else all is published before it is there
                await asyncio.sleep(0.01)

    async def consume(self, client: penstock.Client) -> None:
        async with client.subscribe(self.topic, "work", lease_s=LEASE_S) as deliveries:
            while len(self.confirmed) < self.total or self.confirmed - self.received.keys():
                message = await deliveries.receive(timeout_s=0.2)
                if message is not None:
                    self.received[(message.body or b"").decode()] += 1
                    self.newest = time.monotonic()
                    message.ack()


def test_a_server_killed_under_load_loses_nothing_it_confirmed(own: tuple[str, Server]) -> None:
    url, server = own
    load = Load(url, unique("load"), 3_000)

    async def scenario() -> float:
        async with penstock.connect(url) as sender, penstock.connect(url) as taker:
            await sender.create_subscription(load.topic, "work", lease_s=LEASE_S)
            consuming = asyncio.create_task(load.consume(taker))
            publishing = asyncio.create_task(load.publish(sender))
            while len(load.confirmed) < 1_000:
                await asyncio.sleep(0.01)
                assert not publishing.done(), publishing.exception()
            server.kill()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)
            started = time.monotonic()
            while load.newest < started:
                await asyncio.sleep(0.01)
                assert time.monotonic() - started < PATIENCE_S, "the consumer did not resume"
            resumed = load.newest - started
            await asyncio.wait_for(asyncio.gather(publishing, consuming), 90)
            return resumed

    resumed = asyncio.run(scenario())
    lost = load.confirmed - load.received.keys()
    assert not lost, f"{len(lost)} confirmed messages are lost"
    assert resumed < RESUME_S
    # Every message is stored once although publishes were repeated; what is more is redelivery.
    unexpected = load.received.keys() - load.confirmed
    assert not unexpected


def test_what_was_published_through_a_crash_is_stored_once(own: tuple[str, Server]) -> None:
    url, server = own
    topic = unique("once")
    sent: list[str] = []

    async def send_all(client: penstock.Client) -> None:
        for low in range(0, 500, 50):
            wave = [str(number) for number in range(low, low + 50)]
            await asyncio.gather(*(client.publish(topic, n, headers={"n": "1"}) for n in wave))
            sent.extend(wave)

    async def scenario() -> list[str]:
        async with penstock.connect(url) as client:
            await client.publish(topic, b"first")
            sending = asyncio.create_task(send_all(client))
            while len(sent) < 100:  # noqa: ASYNC110 - with the next wave under way
                await asyncio.sleep(0)
            assert len(sent) < 500
            server.kill()
            await asyncio.to_thread(server.start)
            await asyncio.wait_for(sending, 60)
            return [(m.body or b"").decode() for m in await client.peek(topic, 2_000)]

    found = asyncio.run(scenario())
    assert sorted(found) == sorted(["first", *map(str, range(500))])


KILLED = """
import asyncio, sys, penstock
async def main():
    async with penstock.connect(sys.argv[1]) as client:
        async with client.subscribe(sys.argv[2], "work", lease_s=5, credit=10) as deliveries:
            for number in range(10):
                await deliveries.receive()
            print("holding", flush=True)
            await asyncio.sleep(60)
asyncio.run(main())
"""


def test_the_messages_of_a_killed_consumer_are_taken_over(own: tuple[str, Server]) -> None:
    url, _ = own
    topic = unique("taken")

    async def scenario() -> None:
        async with penstock.connect(url) as client:
            await client.create_subscription(topic, "work", lease_s=5)
            await client.publish_many(topic, [str(number) for number in range(10)])
            command = [sys.executable, "-c", KILLED, url, topic]
            child = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220 - at once
            assert child.stdout is not None
            try:
                line = await asyncio.to_thread(child.stdout.readline)
                assert line == b"holding\n"
            finally:
                child.kill()
                child.wait()
                child.stdout.close()
            async with client.subscribe(topic, "work") as deliveries:
                for _ in range(10):
                    message = await deliveries.receive(timeout_s=PATIENCE_S)
                    assert message is not None
                    assert message.attempt == 2
                    message.ack()

    asyncio.run(scenario())


def test_a_soak_leaves_nothing_unexplained(own: tuple[str, Server]) -> None:
    url, _ = own
    topic, total = unique("soak"), 5_000
    soaked = Soak(topic, total)

    async def scenario() -> None:
        async with penstock.connect(url) as one, penstock.connect(url) as two:
            await one.create_subscription(topic, "work")
            workers = [asyncio.create_task(soaked.work(client)) for client in (one, one, two)]
            for low in range(0, total, 500):
                await one.publish_many(topic, [str(number) for number in range(low, low + 500)])
            await asyncio.wait_for(asyncio.gather(*workers), 100)
            [row] = await one.subscriptions(topic)
            dead = await one.dead_letters(topic, "work", 1_000)
            assert len(dead) == total // 50
            assert (row["waiting"] or 0, row["leased"]) == (0, 0), row

    asyncio.run(scenario())
    assert soaked.outcome["acked"] + soaked.outcome["rejected"] == total
    assert soaked.outcome["rejected"] == total // 50


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_not_there_is_named_with_the_time_it_was_tried(kind: str) -> None:
    async def scenario(port: int) -> None:
        began = time.monotonic()
        url = f"{kind}://user:secret@127.0.0.1:{port}?connect_s=1"
        with (
            noticed() as standstill,
            pytest.raises(PenstockError, match=f":{port} ") as caught,
        ):
            await penstock.connect(url).open()
        assert time.monotonic() - began < PATIENCE_S
        assert 1 <= seconds_told(str(caught.value)) < 2 + standstill.seconds

    with nobody() as port:
        asyncio.run(scenario(port))
