"""Brokers that cannot be read again, MQTT and Pub/Sub, feed a landing log through the bridge."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import penstock
from penstock.cli.bench.servers import Server
from penstock.vocabulary.errors import PenstockError
from tests.cli.test_bridge import PATIENCE_S, copied, finish, start
from tests.servers.fixtures import unique

COUNT = 600


@pytest.fixture(params=["mqtt", "pubsub"])
def source(request: pytest.FixtureRequest) -> str:
    """The URL of a broker without readers."""
    if request.param == "mqtt":
        server: Server = request.getfixturevalue("mosquitto")
        return f"mqtt://{server.address}"
    server = request.getfixturevalue("pstest")
    return f"pubsub://{unique('project')}?emulator={server.address}"


def landed(url: str, topic: str) -> list[bytes]:
    try:
        return asyncio.run(copied(url, topic))
    except PenstockError:  # the bridge is just making its folder
        return []


def wait(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def test_what_is_published_while_the_bridge_is_away_lands_too(source: str, tmp_path: Path) -> None:
    topic, landing = unique("readings"), f"file:{tmp_path / 'landing'}"
    bodies = [b"%d" % at for at in range(COUNT)]
    with penstock.connect_blocking(source) as client:
        bridge = start(source, landing, "--topic", topic, "--follow")
        try:

            def is_there() -> bool:
                assert bridge.poll() is None
                with suppress(PenstockError):  # MQTT says so when nobody would get it
                    client.publish(topic, b"probe")
                return b"probe" in landed(landing, topic)

            wait(is_there, "the bridge subscribed")
            client.publish_many(topic, bodies[: COUNT // 2])
            wait(lambda: len(landed(landing, topic)) > COUNT // 4, "messages landed")
        finally:
            bridge.send_signal(signal.SIGKILL)
            bridge.communicate()
        client.publish_many(topic, bodies[COUNT // 2 :])
    # What a killed consumer held, Pub/Sub gives to the next one after a whole lease.
    idle_s = 6 if source.startswith("mqtt") else 45
    code, said = finish(start(source, landing, "--topic", topic, "--idle", str(idle_s)))
    assert code == 0, said
    found = [body for body in asyncio.run(copied(landing, topic)) if body != b"probe"]
    assert set(found) == set(bodies)
    assert len(found) == COUNT, "a repeat is known by its id"
