"""Penstock as one side of a comparison: inside this process, or behind a server."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib import metadata
from typing import Any, Final
from uuid import uuid4

import penstock
from penstock.cli.bench.plan import SUBSCRIPTION, Plan
from penstock.cli.bench.side import Tally

CREDIT: Final = 50_000


class Ours:
    """One client that publishes and consumes."""

    in_flight = 64

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._topic = f"bench-{uuid4().hex[:8]}"
        self._stack = AsyncExitStack()
        self._client: Any = None

    async def open(self) -> None:
        self._client = await self._stack.enter_async_context(penstock.connect(self._plan.url))
        await self._client.create_topic(self._topic, durability=self._plan.durability)
        self._stack.push_async_callback(self._client.delete_topic, self._topic)
        await self._client.create_subscription(self._topic, SUBSCRIPTION)

    async def close(self) -> None:
        await self._stack.aclose()

    async def publish(self, body: bytes) -> None:
        await self._client.publish(self._topic, body)

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        await self._client.publish_many(self._topic, bodies)

    async def consume(self, tally: Tally) -> None:
        arrived = tally.arrived
        async with self._client.subscribe(self._topic, SUBSCRIPTION, credit=CREDIT) as deliveries:
            async for message in deliveries:
                message.ack()
                tally.taken += 1
                if arrived is not None:
                    arrived(message.body)
                if tally.taken >= tally.wanted:
                    break
            await deliveries.flush()

    async def about(self) -> dict[str, str]:
        version = f"penstock {metadata.version('penstock')}"
        is_kept = not self._plan.url.startswith("memory:")
        durability = self._plan.durability if is_kept else "none: in memory"
        return {"server": version, "client": version, "durability": durability}
