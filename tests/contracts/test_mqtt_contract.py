"""The contract over MQTT, on a real mosquitto."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench.servers import Server
from penstock.client.client import Client
from penstock.drivers import open_driver
from penstock.vocabulary.errors import SubscriptionConflict
from tests.contracts.suites.whole import DriverSuite
from tests.contracts.suites.world import World, unique


@pytest.fixture
def topic() -> str:
    return unique("orders")


class Prepared(Client):
    """A client whose topics have their subscriptions before the first publish: MQTT keeps nothing
    without one."""

    before: tuple[str, ...] = ()

    async def _prepare(self, topic: str) -> None:
        if ".dead." in topic or " " in topic:
            return
        known = {row["topic"] for row in await self.topics()}
        if topic not in known or not await self.subscriptions(topic):
            for name in self.before:
                with suppress(SubscriptionConflict):
                    await self.create_subscription(topic, name)

    async def publish(self, topic: str, *values: Any, **options: Any) -> Any:
        await self._prepare(topic)
        return await super().publish(topic, *values, **options)

    async def publish_many(self, topic: str, *values: Any, **options: Any) -> Any:
        await self._prepare(topic)
        return await super().publish_many(topic, *values, **options)


class MqttWorld(World):
    def __init__(self, url: str, before: tuple[str, ...]) -> None:
        super().__init__(url)
        self._before = before

    def client(self, **options: Any) -> Client:
        made = Prepared(self.url, lambda: open_driver(self.url), **options)
        made.before = self._before
        return made


class TestMqtt(DriverSuite):
    @pytest.fixture
    def world(self, mosquitto: Server, tmp_path: Path) -> World:
        url = f"mqtt://{mosquitto.address}?dead=file:{tmp_path / 'dead'}"
        return MqttWorld(url, ("billing",))
