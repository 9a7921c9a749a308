"""The same work for every side of a comparison.

One process runs the publisher and the consumer on one event loop; the broker, when it is a server,
is the other process. On two cores that leaves each of them one, for every side alike.
"""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from statistics import median
from typing import Any, Final

import uvloop

from penstock.cli.bench import loopback, measure, raw
from penstock.cli.bench.plan import Budget, Plan
from penstock.cli.bench.publish import WARM_UP, rates
from penstock.cli.bench.side import Side, Tally, side_of

AHEAD_MAX: Final = 100_000
"""Messages under way: publishers that are further ahead wait for the consumer."""
AHEAD_S: Final = 0.001
PATIENCE_S: Final = 60.0
"""A consumer that is not done this long after the last publish has lost something."""
RATE: Final = 1_000.0
"""Messages a second whose latency is measured, unless the plan says otherwise."""
SPIN_S: Final = 0.002
"""A timer is late by up to a millisecond; so the last moments before a due time are spun."""
NEVER: Final = -1.0
"""The time of what has not come."""
NUMBER: Final = 12
"""Bytes of a body that tell its number."""
TURNS: Final = 10

Work = Callable[[Side, Plan], Awaitable[dict[str, Any]]]


def run(work: Work, plan: Plan) -> dict[str, Any]:
    """Opens the side of the plan, does the work, and says what it was done with."""

    async def whole() -> dict[str, Any]:
        side = side_of(plan)
        try:
            await side.open()
            found = await work(side, plan)
            return found | {"about": await side.about()}
        finally:
            await side.close()

    return uvloop.run(whole())


def publish(plan: Plan) -> dict[str, Any]:
    """Batches, several in flight; nobody consumes."""
    return run(_publish, plan)


def consume(plan: Plan) -> dict[str, Any]:
    """What was published for the time of the plan is taken and acked one by one."""
    return run(_consume, plan)


def end_to_end(plan: Plan) -> dict[str, Any]:
    """Publish in batches, deliver, ack each message; the clock stops at the last ack."""
    return run(_end_to_end, plan)


def callers(plan: Plan) -> dict[str, Any]:
    """Many tasks, each awaiting its own publish."""
    return run(_callers, plan)


def one(plan: Plan) -> dict[str, Any]:
    """One publish at a time, in turns with the raw disk and the raw loopback."""
    return run(_one, plan)


def latency(plan: Plan) -> dict[str, Any]:
    """Publishes that are due at a fixed rate, whether or not earlier ones are done (open loop)."""
    return run(_latency, plan)


# -- throughput ------------------------------------------------------------------------------------


async def _publish(side: Side, plan: Plan) -> dict[str, Any]:
    batch = measure.bodies(plan.batch, plan.size)
    done = 0

    async def caller(budget: Budget) -> None:
        nonlocal done
        while budget.take(len(batch)):
            await side.publish_many(batch)
            done += len(batch)

    async def everyone(budget: Budget) -> None:
        await asyncio.gather(*(caller(budget) for _ in range(_in_flight(side, plan))))

    await everyone(Budget(plan.seconds * WARM_UP))
    done = 0
    began = time.perf_counter()
    await everyone(Budget(plan.seconds, plan.messages))
    return rates(plan, done, time.perf_counter() - began)


async def _consume(side: Side, plan: Plan) -> dict[str, Any]:
    batch = measure.bodies(plan.batch, plan.size)
    budget = Budget(plan.seconds, plan.messages)
    tally = Tally()
    stored = 0

    async def caller() -> None:
        nonlocal stored
        while budget.take(len(batch)):
            await side.publish_many(batch)
            stored += len(batch)

    await asyncio.gather(*(caller() for _ in range(_in_flight(side, plan))))
    tally.wanted = stored
    began = time.perf_counter()
    async with _consuming(side, tally) as consuming:
        await asyncio.wait([consuming], timeout=PATIENCE_S + plan.seconds)
        elapsed = time.perf_counter() - began
        if consuming.done():
            consuming.result()
    return rates(plan, tally.taken, elapsed) | {"published": stored, "lost": stored - tally.taken}


async def _end_to_end(side: Side, plan: Plan) -> dict[str, Any]:
    batch = measure.bodies(plan.batch, plan.size)
    tally = Tally()
    sent = 0

    async def publisher(budget: Budget) -> None:
        nonlocal sent
        while budget.take(len(batch)):
            sent += len(batch)
            await side.publish_many(batch)
            while sent - tally.taken > AHEAD_MAX:  # noqa: ASYNC110 - an event costs each message
                await asyncio.sleep(AHEAD_S)

    began = time.perf_counter()
    async with _consuming(side, tally) as consuming:
        budget = Budget(plan.seconds, plan.messages)
        await _beside(consuming, *(publisher(budget) for _ in range(_in_flight(side, plan))))
        sent += 1
        await _finish(side, tally, sent, consuming)
        elapsed = time.perf_counter() - began
    return rates(plan, tally.taken, elapsed) | {"published": sent, "lost": sent - tally.taken}


async def _callers(side: Side, plan: Plan) -> dict[str, Any]:
    body = measure.bodies(1, plan.size)[0]
    times = array("d")

    async def caller(budget: Budget) -> None:
        while budget.take(1):
            began = time.perf_counter()
            await side.publish(body)
            times.append(time.perf_counter() - began)

    async def everyone(budget: Budget) -> None:
        await asyncio.gather(*(caller(budget) for _ in range(plan.callers)))

    await everyone(Budget(plan.seconds * WARM_UP))
    del times[:]
    began = time.perf_counter()
    await everyone(Budget(plan.seconds, plan.messages))
    elapsed = time.perf_counter() - began
    return rates(plan, len(times), elapsed) | {"latency": measure.latency(times)}


def _in_flight(side: Side, plan: Plan) -> int:
    return plan.in_flight or side.in_flight


async def _beside(consuming: asyncio.Task[None], *publishing: Coroutine[Any, Any, None]) -> None:
    """Publishes to the end; a consumer that fails meanwhile fails the measurement."""
    left = {asyncio.create_task(each) for each in publishing}
    try:
        while left:
            done, _ = await asyncio.wait([*left, consuming], return_when=asyncio.FIRST_COMPLETED)
            left -= done
            for task in done:
                task.result()
    finally:
        for task in left:
            task.cancel()


async def _finish(side: Side, tally: Tally, sent: int, consuming: asyncio.Task[None]) -> None:
    """Publishes one more, so that the consumer sees the end, and waits for it."""
    tally.wanted = sent
    await side.publish(b"%012d the last one" % (sent - 1))
    await asyncio.wait([consuming], timeout=PATIENCE_S)
    if consuming.done():
        consuming.result()


@asynccontextmanager
async def _consuming(side: Side, tally: Tally) -> AsyncIterator[asyncio.Task[None]]:
    """A consumer at work, which has ended before its side is closed, whatever happens."""
    task = asyncio.create_task(side.consume(tally))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_S)


# -- latency ---------------------------------------------------------------------------------------


async def _one(side: Side, plan: Plan) -> dict[str, Any]:
    """Ours, the disk and the loopback take turns, so that all meet the same mood of the machine."""
    body = measure.bodies(1, plan.size)[0]
    ours: list[float] = []
    disk: list[float] = []
    wire: list[float] = []
    with ExitStack() as stack:
        write = stack.enter_context(raw.writing(plan.path)) if plan.folder else None
        echo = stack.enter_context(loopback.echoing(plan.size))
        await side.publish(body)
        for turn in range(TURNS):
            budget = Budget(plan.seconds / TURNS, plan.share(turn, TURNS))
            count = len(ours)
            while budget.take(1):
                began = time.perf_counter()
                await side.publish(body)
                ours.append(time.perf_counter() - began)
            for _ in range(len(ours) - count):
                wire.append(_timed(echo))
                if write is not None:
                    disk.append(_timed(write))
    found = {"messages": len(ours), "latency": measure.latency(ours)}
    found["loopback"] = measure.latency(wire)
    return found | ({"raw": measure.latency(disk)} if disk else {})


def _timed(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


async def _latency(side: Side, plan: Plan) -> dict[str, Any]:
    """Times from when a publish was due: a late start is waiting, too, and counts."""
    rate = plan.rate or RATE
    count = plan.messages or max(1, int(plan.seconds * rate))
    noise = measure.bodies(1, plan.size)[0][NUMBER:]
    confirmed = array("d", [NEVER]) * count
    delivered = array("d", [NEVER]) * (count + 1)
    latest = 0.0
    sending = Sending()
    began = time.perf_counter() + 0.1

    def arrived(body: bytes) -> None:
        number = int(body[:NUMBER])
        delivered[number] = time.perf_counter() - began - number / rate

    async def send(number: int) -> None:
        await side.publish(b"%012d" % number + noise)
        confirmed[number] = time.perf_counter() - began - number / rate

    tally = Tally(arrived)
    async with _consuming(side, tally) as consuming:
        try:
            for number in range(count):
                latest = max(latest, await _until(began + number / rate))
                sending.start(send(number))
                if consuming.done():
                    consuming.result()
            await sending.finish()
        finally:
            sending.cancel()
        await _finish(side, tally, count + 1, consuming)
    return {
        "rate": rate,
        "messages": count,
        "confirmed": measure.latency(confirmed),
        "delivered": measure.latency([value for value in delivered[:count] if value != NEVER]),
        "delivered_p99": median(measure.p99s(delivered[:count], max(1, round(rate)))),
        "start_late": latest,
        "lost": count + 1 - tally.taken,
    }


class Sending:
    """Publishes under way; one that fails fails the measurement, and is never a quick one."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    def start(self, publish: Coroutine[Any, Any, None]) -> None:
        """Begins one. Raises what an earlier one failed with."""
        task = asyncio.create_task(publish)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        self._check()

    async def finish(self) -> None:
        """Waits for all of them. Raises what one failed with."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)
        self._check()

    def cancel(self) -> None:
        """Gives up those that are not done."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._failed = self._failed or task.exception()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed


async def _until(due: float) -> float:
    """Waits for a moment, and returns how much later it is."""
    left = due - time.perf_counter()
    if left > SPIN_S:
        await asyncio.sleep(left - SPIN_S)
    while (late := time.perf_counter() - due) < 0:  # noqa: ASYNC110 - see SPIN_S
        await asyncio.sleep(0)
    return late
