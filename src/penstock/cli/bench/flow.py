"""How fast messages go through a subscription in batches: published, delivered, acked.

A batch is acked with one call. The clock stops when the last ack is durable; then what the
consumers counted is held against what the broker says was acked.
"""

import asyncio
import gc
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from typing import Any, Final

from penstock.cli.bench import measure
from penstock.cli.bench.broker import opened
from penstock.cli.bench.deliver import AHEAD_MAX, AHEAD_S, CREDIT, PATIENCE_S
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates
from penstock.vocabulary.message import Kind, Message

CONSUMERS: Final = 4
KEYS: Final = 100_000
ROUNDS: Final = 2
"""Each key occurs so often, at random places, before the batches come round again."""
PRIORITIES: Final = 10

Batches = Sequence[Sequence[Message | bytes]]


def shared(plan: Plan) -> dict[str, Any]:
    """One consumer of a plain shared subscription: what the other kinds are held against."""
    return asyncio.run(Flow(plan, [measure.bodies(plan.batch, plan.size)]).run())


def key_shared(plan: Plan) -> dict[str, Any]:
    """Several consumers that share very many keys."""
    return asyncio.run(Flow(plan, keyed(plan), Kind.KEY_SHARED, CONSUMERS).run())


def multicast(plan: Plan) -> dict[str, Any]:
    """Several named consumers, of which each gets everything; deliveries are counted."""
    batches = [measure.bodies(plan.batch, plan.size)]
    return asyncio.run(Flow(plan, batches, Kind.MULTICAST, CONSUMERS).run())


def priorities(plan: Plan) -> dict[str, Any]:
    """One consumer that gets the highest of ten priorities first."""
    return asyncio.run(Flow(plan, ranked(plan)).run())


def keyed(plan: Plan) -> Batches:
    """Batches in which all keys occur, in no order."""
    numbers = list(range(KEYS)) * ROUNDS
    random.Random(1).shuffle(numbers)  # noqa: S311 - the same order in every run
    bodies = measure.bodies(plan.batch, plan.size)
    keys = [numbers[at : at + plan.batch] for at in range(0, len(numbers), plan.batch)]
    return [
        [Message(body=body, key=f"key-{n}") for n, body in zip(part, bodies, strict=False)]
        for part in keys
    ]


def ranked(plan: Plan) -> Batches:
    """Batches in which all priorities occur, in no order."""
    dice = random.Random(1)  # noqa: S311 - the same order in every run
    bodies = measure.bodies(plan.batch, plan.size)
    return [
        [Message(body=body, priority=dice.randrange(PRIORITIES)) for body in bodies]
        for _ in range(plan.in_flight)
    ]


class Flow:
    """Publishers and consumers of one topic, and what they counted."""

    def __init__(
        self, plan: Plan, batches: Batches, kind: Kind = Kind.SHARED, consumers: int = 1
    ) -> None:
        self.sent = 0
        self.taken = [0] * consumers
        """What each consumer was given."""
        self._plan = plan
        self._supply = cycle(batches)
        self._kind = kind
        self._copies = consumers if kind is Kind.MULTICAST else 1
        """How many consumers get each message."""
        self._is_over = False
        self._finished = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        """Publishes for the time of the plan, and sees everything acked."""
        gc.collect()
        gc.freeze()  # the batches stand for what an application makes anew and lets go
        try:
            async with opened(self._plan) as client, AsyncExitStack() as stack:
                streams = [
                    await stack.enter_async_context(self._stream(client, f"consumer-{number}"))
                    for number in range(len(self.taken))
                ]
                elapsed = await self._go(client, streams)
                acked = sum(row["acked"] for row in await client.subscriptions(TOPIC))
        finally:
            gc.unfreeze()
        return rates(self._plan, sum(self.taken), elapsed) | self._proof(acked)

    def _stream(self, client: Any, name: str) -> Any:
        return client.subscribe(TOPIC, SUBSCRIPTION, kind=self._kind, credit=CREDIT, consumer=name)

    async def _go(self, client: Any, streams: list[Any]) -> float:
        """Seconds from the first publish to the last durable ack."""
        began = time.perf_counter()
        consuming = [
            asyncio.create_task(self._consume(number, stream))
            for number, stream in enumerate(streams)
        ]
        try:
            await self._publish_all(client)
            for stream in streams:
                stream.stop()
            await asyncio.gather(*consuming)
        finally:
            for task in consuming:
                task.cancel()
        return time.perf_counter() - began

    def _proof(self, acked: int) -> dict[str, int]:
        """The broker counts each message once; so whatever the consumers had more is a repeat."""
        return {
            "published": self.sent,
            "lost": max(0, self.sent * self._copies - acked),
            "repeated": max(0, sum(self.taken) - acked),
        }

    async def _publish_all(self, client: Any) -> None:
        """Publishes everything, and returns when everything was taken."""
        budget = Budget(self._plan.seconds, self._plan.messages)
        callers = (self._publish(client, budget) for _ in range(self._plan.in_flight))
        await asyncio.gather(*callers)
        self._is_over = True
        self._look()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._finished.wait(), PATIENCE_S)

    async def _publish(self, client: Any, budget: Budget) -> None:
        while budget.take(self._plan.batch):
            batch = next(self._supply)
            self.sent += len(batch)
            await client.publish_many(TOPIC, batch)
            while self._ahead() > AHEAD_MAX:  # noqa: ASYNC110 - an event costs each batch
                await asyncio.sleep(AHEAD_S)

    async def _consume(self, number: int, stream: Any) -> None:
        async for part in stream.batches(max_messages=self._plan.batch):
            self.taken[number] += len(part)
            part.ack()
            self._look()
        await stream.flush()

    def _ahead(self) -> int:
        """Messages that the consumers, or the slowest of them, still have to take."""
        return self.sent - (sum(self.taken) if self._copies == 1 else min(self.taken))

    def _look(self) -> None:
        if self._is_over and self._ahead() <= 0:
            self._finished.set()
