"""For tests of programs that use Penstock: a broker in memory, with a clock the test moves.

It is the real engine without a disk. Leases, back-off and retention run on `clock`, so a test
that wants a lease to expire says `broker.advance(31)` and does not wait.

    from penstock.testing import penstock_broker     # a pytest fixture

    def test_orders(penstock_broker):
        async def scenario():
            async with penstock_broker.client() as client:
                await client.publish("orders", b"1")
        asyncio.run(scenario())
"""

import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.client.blocking import BlockingClient
from penstock.client.client import Client, check_options
from penstock.drivers.embedded import MEMORY, EmbeddedDriver
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import Closed, InvalidArgument
from penstock.vocabulary.message import Durability

if TYPE_CHECKING:
    penstock_broker: Any
    """A pytest fixture: a MemoryBroker, closed at the end of the test."""

SETTLE_S_MAX: Final = 10.0
STEPS_PER_LEASE: Final = 10
"""Time moves in steps, so that consumers renew their leases on the way as they really would."""


class ManualClock:
    """Stands still until `advance`. Starts at the present wall time."""

    def __init__(self) -> None:
        self._now = 1_000_000
        self._wall = time.time_ns() // 1_000_000

    def now(self) -> int:
        """Monotonic milliseconds."""
        return self._now

    def wall(self) -> int:
        """Unix milliseconds."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward."""
        if seconds < 0:
            raise InvalidArgument(f"time moves forward only, not by {seconds} s")
        self._now += round(seconds * 1000)
        self._wall += round(seconds * 1000)


class MemoryBroker:
    """A broker in memory whose time the test moves. `with`, or `close()`, ends it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker.open(
            MemoryDisk(), clock=self.clock, timers=False, durability=Durability.MEMORY
        )
        self._clients: list[Client] = []
        self._drivers: list[EmbeddedDriver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def client(self, **options: Any) -> Client:
        """A client of this broker, opened like any other; options as for `connect`."""
        check_options(options)
        client = Client("memory:", self._open_driver, **options)
        self._clients.append(client)
        return client

    def client_blocking(self, **options: Any) -> BlockingClient:
        """The blocking twin of `client`."""
        return BlockingClient(self.client(**options))

    async def _open_driver(self) -> EmbeddedDriver:
        if self.broker.engine.is_closed:
            raise Closed("this MemoryBroker was closed")
        driver = EmbeddedDriver(_Whole(self.broker), get_running_loop(), MEMORY)
        self._drivers.append(driver)
        return driver

    def advance(self, seconds: float) -> None:
        """Moves time, and returns when its consequences are true.

        On the way clients send their acks and renew what they hold. What became deliverable
        arrives as soon as the test awaits something.
        """
        self._before()
        left = seconds
        while left > 0:
            step = min(left, self._step())
            self.clock.advance(step)
            left -= step
            self._tick()

    def settle(self) -> None:
        """Returns when everything decided so far is durable and applied, dead letters included."""
        engine = self.broker.engine
        deadline = time.monotonic() + SETTLE_S_MAX
        while time.monotonic() < deadline:
            pending = Pending()
            self.broker.flush(DIRECT, pending)
            pending.wait()
            if not (engine.has_pending or engine.jobs or engine.doomed):
                return
            time.sleep(0.0005)

    def close(self) -> None:
        """Ends the broker; its clients find it closed."""
        self.broker.close()
