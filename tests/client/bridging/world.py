"""Two brokers and what is in them, for the tests of the bridge."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import penstock
from penstock.batch.frame import gather
from penstock.client.bridging import Bridged
from penstock.client.bridging.sources import Ending
from penstock.client.bridging.targets import held
from penstock.client.client import Client
from penstock.vocabulary.message import Message

Row = tuple[Any, ...]
IDLE_S = 60.0
"""How long a bridge waits for what must come."""
SILENCE_S = 0.5
"""How long it waits where nothing comes."""


def some(count: int, **fields: Any) -> list[Message]:
    """Messages of every make: keys of text and bytes and none, headers, no body at all."""
    return [
        Message(
            body=None if at % 11 == 10 else b"" if at % 11 == 9 else b"body %d" % at,
            key=(None, f"key {at % 3}", b"\x00k%d" % (at % 2))[at % 3],
            id=f"id {at}" if at % 2 else None,
            headers={"content-type": "text/plain", "näme": "ü"} if at % 5 == 0 else None,
            **fields,
        )
        for at in range(count)
    ]


def all_of(count: int) -> dict[str, Any]:
    """For a bridge whose source does not know its end: it stops after so many messages."""
    ending = Ending(follows=False)

    def told(found: Bridged) -> None:
        if found.copied + found.known >= count:
            ending.stop()

    return {"ending": ending, "told": told}


async def contents(client: Client, topic: str) -> list[Row]:
    """What a topic holds: id, key, headers, body, priority, published_at; by partition."""
    rows: list[Row] = []
    async for _, frame in held(client, topic):
        _, columns = gather([frame])
        listed: list[Any] = [
            columns.ids, columns.keys, [each or {} for each in columns.headers or ()],
            columns.bodies, columns.priorities, columns.published_at,
        ]  # fmt: skip
        rows.extend(zip(*listed, strict=True))
    return rows


@asynccontextmanager
async def filled(
    url: str, topic: str, messages: Sequence[Message], partitions: int = 1
) -> AsyncIterator[Client]:
    """A client of a broker with these messages, which keeps what was read."""
    async with penstock.connect(url) as client:
        if partitions > 1:
            await client.create_topic(topic, partitions, replay_s=3600.0)
        elif url.startswith(("file:", "memory:", "penstock:")):
            await client.create_topic(topic, replay_s=3600.0)
        await client.publish_many(topic, messages)
        yield client
