"""Held messages page by page, so that looking at a large topic needs little memory."""

from collections.abc import AsyncIterator
from typing import Any, Final

PAGE: Final = 1_000


async def held(client: Any, topic: str) -> AsyncIterator[Any]:
    """Every held message of a topic, partition by partition, oldest first."""
    described = await client.describe_topic(topic)
    for partition in range(described["partitions"]):
        after = 0
        while page := await client.peek(topic, PAGE, partition=partition, after=after):
            for message in page:
                yield message
            after = page[-1].offset + 1
