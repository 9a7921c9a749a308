import asyncio
import logging
from typing import Any

import pytest

from penstock.drivers import capabilities
from penstock.pipeline.datasets.topics import ensure_topic
from penstock.vocabulary.errors import TopicExists, UnknownTopic


class Made:
    """A client that notes which topics it is asked for."""

    def __init__(self, can: Any, error: Exception | None = None) -> None:
        self.capabilities = can
        self.made: list[tuple[str, int, dict[str, Any]]] = []
        self._error = error

    async def describe_topic(self, topic: str) -> None:
        if topic not in [each[0] for each in self.made]:
            raise UnknownTopic(topic)

    async def create_topic(self, topic: str, partitions: int, **policy: Any) -> None:
        if self._error is not None:
            raise self._error
        self.made.append((topic, partitions, policy))


@pytest.mark.parametrize(
    ("can", "kept"),
    [
        (capabilities.KAFKA, {"replay_s": 5.0, "retain_s": None}),
        (capabilities.REDIS, {"replay_s": 5.0, "retain_s": None}),
        (capabilities.NATS, {"replay_s": 5.0}),
        (capabilities.MQTT, {}),
        (capabilities.KUBEMQ, {}),
    ],
)
def test_a_topic_is_made_once_with_what_its_broker_keeps(
    can: Any, kept: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    client = Made(can)
    with caplog.at_level(logging.INFO, "penstock.pipeline"):
        asyncio.run(ensure_topic(client, "t", replay_s=5.0, retain_s=None))
        asyncio.run(ensure_topic(client, "t", replay_s=5.0, retain_s=None))
    assert client.made == [("t", 1, kept)]
    left = [name for name in ("replay_s", "retain_s") if name not in kept]
    assert all(name in caplog.text for name in left)
    assert bool(left) == bool(caplog.text)


def test_a_topic_that_somebody_else_has_just_made_is_as_good() -> None:
    client = Made(capabilities.NATS, TopicExists("made"))
    asyncio.run(ensure_topic(client, "t", 3, replay_s=5.0))
    assert client.made == []
