"""`penstock bridge` between Kafka and Penstock, killed in the middle: exactly once, both ways."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import penstock
from penstock.cli.bench.servers import Server
from penstock.client.bridging.copying import AT_LEAST_ONCE
from penstock.vocabulary.errors import Unavailable, UnknownTopic
from penstock.vocabulary.message import Message
from tests.cli.test_bridge import PATIENCE_S, copied, fill, finish, start
from tests.client.bridging.test_landing import COUNT as LETTERS
from tests.client.bridging.test_landing import landed, letters
from tests.contracts.suites.world import until
from tests.servers.fixtures import unique
from tests.servers.kafka import Cluster

COUNT = 4_000


async def _held(url: str, topic: str, least: int) -> int:
    """How many messages a topic of Kafka has, once it has so many; markers of units included."""
    async with penstock.connect(url) as client:

        async def enough() -> int:
            with suppress(UnknownTopic, Unavailable):
                held = int((await client.describe_topic(topic))["messages"])
                return held if held >= least else 0
            return 0

        return int(await until(enough, "the copy", PATIENCE_S))


@contextmanager
def killed(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """A bridge that is killed at the end of the block; it follows, so it is never finished."""
    process = start(*words)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was finished before it was killed"


def test_killed_on_the_way_to_kafka_and_back_everything_is_there_once(
    tmp_path: Path, kafka_server: Cluster
) -> None:
    kafka, topic = f"kafka://{kafka_server.bootstrap}?topics=2:1", unique("t")
    here, back = f"file:{tmp_path / 'a'}", f"file:{tmp_path / 'b'}"
    bodies = [b"%d" % at for at in range(COUNT)]
    messages = [Message(body=body, key=f"k{at % 50}") for at, body in enumerate(bodies)]
    fill(here, topic, messages[: COUNT // 2], partitions=2, replay_s=600.0)

    with killed(here, kafka, "--topic", topic, "--batch", "20", "--follow"):
        assert asyncio.run(_held(kafka, topic, 100)) < COUNT
    with penstock.connect_blocking(here) as client:
        client.publish_many(topic, messages[COUNT // 2 :])
    code, said = finish(start(here, kafka, "--topic", topic, "--batch", "500", "--verify"))
    assert code == 0, said
    assert '"guarantee":"exactlyonce"' in said.replace(" ", "")
    assert sorted(asyncio.run(copied(kafka, topic))) == sorted(bodies)

    with killed(kafka, back, "--topic", topic, "--batch", "20", "--follow") as process:
        ends = time.monotonic() + PATIENCE_S
        while not (tmp_path / "b").exists():
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.005)
        time.sleep(0.2)  # somewhere in the middle of it, another place each time
    bodies.append(b"later")  # so that something is left, however far it came
    with penstock.connect_blocking(kafka) as client:
        client.publish(topic, b"later", key="k0")
    code, said = finish(start(kafka, back, "--topic", topic, "--verify"))
    assert code == 0, said
    assert '"guarantee":"exactlyonce"' in said.replace(" ", "")
    assert sorted(asyncio.run(copied(back, topic))) == sorted(bodies)


def test_ids_travel_from_a_broker_without_numbers(mosquitto: Server, kafka_server: Cluster) -> None:
    async def scenario() -> None:
        topic, source = unique("t"), f"mqtt://{mosquitto.address}"
        target = f"kafka://{kafka_server.bootstrap}?topics=1:1"
        found = await landed(source, target, topic, letters())
        assert (found.copied, found.guarantee) == (LETTERS, AT_LEAST_ONCE)
        assert found.verified.is_equal, found.verified

    asyncio.run(scenario())
