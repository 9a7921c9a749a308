"""The gateway on brokers that are not ours: the same device API, on whatever URL is given."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.bench.servers import Server
from penstock.client.client import Client, connect
from penstock.gateway.service import Gateway
from penstock.pipeline.datasets import features as views
from penstock.pipeline.datasets.features import TOPIC, FeatureView
from penstock.vocabulary.errors import UnknownTopic
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import PATIENCE_S, until
from tests.gateway.test_samples import DATA
from tests.gateway.test_service import send
from tests.servers.kafka import Cluster

PMS = "monitoring.pms"
READER = "analytics.pms_monitoring"
BODY = (DATA / "post-pms.json").read_bytes()


@pytest.fixture(params=["kafka", "nats", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """A broker that keeps what is published, without the topics of other tests."""
    if request.param == "kafka":
        cluster: Cluster = request.getfixturevalue("kafka_server")
        found = f"kafka://{cluster.bootstrap}?topics=3:1"
    elif request.param == "nats":
        found = f"nats://{request.getfixturevalue('nats_server').address}"
    else:
        get: Callable[..., Server] = request.getfixturevalue("redis_server")
        found = f"redis://{get().address}"
    asyncio.run(clean(found))
    return found


async def clean(url: str) -> None:
    async with connect(url) as client:
        for name in ("pms", "mppt", "inverter"):
            await forget(client, f"monitoring.{name}", f"analytics.{name}_monitoring")
        await forget(client, TOPIC, None)


async def forget(client: Client, topic: str, reader: str | None) -> None:
    try:
        if reader is not None and client.capabilities.has_readers:
            await (await client.reader(topic, reader, owner="cleaning")).release(force=True)
        await client.delete_topic(topic)
    except UnknownTopic:
        pass


async def post(gateway: Gateway, body: bytes = BODY) -> tuple[int, Any]:
    kind = "application/json"
    return await asyncio.to_thread(send, gateway.port, "/devices/dataset/pms", body, kind)


async def features(gateway: Gateway, query: str = "") -> list[str]:
    status, found = await asyncio.to_thread(send, gateway.port, f"/api/features{query}")
    assert status == 200, found
    return list(found["operational"])


async def has(gateway: Gateway, only: str) -> bool:
    return await features(gateway) == [only]


def test_readings_are_taken_and_held_for_the_reader(url: str) -> None:
    async def steps() -> None:
        async with connect(url) as client, Gateway(url, port=0, client=client) as gateway:
            status, content = await post(gateway)
            assert (status, content["message"]) == (200, "OK"), content
            count = int(content["details"][0]["description"].rpartition(" ")[2])
            reader = await client.reader(PMS, READER, owner="pipeline")
            planned = await reader.plan()
            read = [m for each in planned async for m in reader.read(*each)]
            assert len(read) == count
            async with Gateway(url, port=0, client=client):  # does not fence the pipeline
                await reader.commit({partition: end for partition, _, end in planned})

    asyncio.run(steps())


def test_the_topic_is_made_with_what_the_broker_keeps(url: str) -> None:
    async def steps() -> None:
        async with Gateway(url, port=0), connect(url) as client:
            topic = await client.describe_topic(PMS)
            can = client.capabilities
            assert topic["partitions"] == can.partitions_usual
            kept = topic["policy"]
            # Kafka has one time for all, a week at least.
            assert max(kept.get("replay_s", 0), kept.get("max_age_s") or 0) >= 72 * 3600

    asyncio.run(steps())


def test_features_are_kept_by_the_broker_and_followed(url: str) -> None:
    async def steps() -> None:
        async with Gateway(url, port=0) as one, Gateway(url, port=0) as other:
            assert await features(one) == ["logging", "validation"]
            assert await features(one, "?operational=validation") == ["validation"]
            assert await features(one, "?operational=validation,x") == ["validation", "x"]
            assert await features(other) == ["validation", "x"]
        async with Gateway(url, port=0) as later, connect(url) as client:
            assert await features(later) == ["validation", "x"]
            view = FeatureView(client)
            await view.read()
            seen = view.version
            await view.change(release=["y"])
            assert view.version > seen

    asyncio.run(steps())


def test_mqtt_retains_the_features(
    mosquitto: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"mqtt://{mosquitto.address}"

    async def steps() -> None:
        async with connect(url) as client:
            await client.create_subscription(PMS, "store", retry=Retry(max_attempts=None))
        async with Gateway(url, port=0) as one, Gateway(url, port=0) as other:
            assert (await post(one))[0] == 200
            assert await features(one, "?operational=x") == ["x"]
            await until(lambda: has(other, "x"), "the change")
        monkeypatch.setattr(views, "RETAINED_S", PATIENCE_S)  # there is one, so that it comes
        async with Gateway(url, port=0) as later:
            assert await features(later) == ["x"]

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        asyncio.run(steps())
    assert "cannot keep" not in caplog.text


def test_pubsub_holds_features_in_the_gateway_and_says_so(
    pstest: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"pubsub://features?emulator={pstest.address}"

    async def steps() -> None:
        async with Gateway(url, port=0) as one, Gateway(url, port=0) as other:
            assert (await post(one))[0] == 200
            assert await features(one, "?operational=x") == ["x"]
            assert await features(one) == ["x"]
            await until(lambda: has(other, "x"), "the change")
        async with Gateway(url, port=0) as later:
            assert await features(later) == ["logging", "validation"]

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        asyncio.run(steps())
    assert "pubsub: URLs cannot keep the last message" in caplog.text
