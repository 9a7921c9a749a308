"""Held messages page by page, so that looking at a large topic needs little memory."""

from collections.abc import AsyncIterator
from typing import Any, Final

PAGE: Final = 1_000


async def held(client: Any, topic: str) -> AsyncIterator[Any]:
    """Every held message of a topic, partition by partition, oldest first."""
    described = await client.describe_topic(topic)
    for partition in range(described["partitions"]):
        after: int | str = 0
        while page := await client.peek(topic, PAGE, partition=partition, after=after):
            for message in page:
                yield message
            last = page[-1]  # without offsets, a foreign broker goes on after a position
            after = last.position if last.offset is None else last.offset + 1
