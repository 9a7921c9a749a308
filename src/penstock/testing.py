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
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT, Pending
from penstock.client.blocking import BlockingClient
from penstock.client.client import Client, check_options
from penstock.drivers.embedded import MEMORY, EmbeddedDriver, Share
from penstock.drivers.port import Capabilities
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import Closed, InvalidArgument
from penstock.vocabulary.message import Durability

if TYPE_CHECKING:
    penstock_broker: Any
    """A pytest fixture: a MemoryBroker, closed at the end of the test."""

SETTLE_S_MAX: Final = 10.0
POLL_S: Final = 0.0005
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

    def jump(self, seconds: float) -> None:
        """Sets the wall clock forward or back, as a person or a time server might."""
        self._wall += round(seconds * 1000)


class MemoryBroker:
    """A broker in memory whose time the test moves. `with`, or `close()`, ends it."""

    capabilities: Capabilities = MEMORY

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = self.open_broker()
        self._clients: list[Client] = []

    def open_broker(self) -> Broker:
        """The broker behind it; its timers stand still with the clock."""
        return Broker.open(
            MemoryDisk(), clock=self.clock, timers=False, durability=Durability.MEMORY
        )

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
        """A client of this broker: open at once inside a running loop, else opened like any other.

        Options as for `connect`.
        """
        check_options(options)
        client = Client("memory:", self._open, **options)
        try:
            loop = get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not None:
            client.attach_to(self._connect(loop), loop)
        self._clients.append(client)
        return client

    def client_blocking(self, **options: Any) -> BlockingClient:
        """The blocking twin of `client`."""
        client = Client("memory:", self._open, **options)
        self._clients.append(client)
        return BlockingClient(client)

    async def _open(self) -> EmbeddedDriver:
        return self._connect(get_running_loop())

    def _connect(self, loop: AbstractEventLoop) -> EmbeddedDriver:
        if self.broker.engine.is_closed:
            raise Closed("this MemoryBroker was closed")
        return EmbeddedDriver(_Owned(self.broker), loop, self.capabilities)

    def advance(self, seconds: float) -> None:
        """Moves time, and returns when its consequences are true.

        On the way clients send their acks and renew what they hold. What became deliverable
        arrives as soon as the test awaits something.
        """
        self._catch_up()
        left = seconds
        while left > 0:
            step = min(left, self._step_s())
            self.clock.advance(step)
            left -= step
            self.broker.tick()
            self._catch_up()

    def settle(self) -> None:
        """Returns when everything decided so far is durable and applied, dead letters included."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while time.monotonic() < deadline:
            pending = Pending()
            self.broker.flush(DIRECT, pending)
            pending.wait()
            # Only when nothing waits for the worker is it certain to have begun with all of it.
            if not self._is_busy():
                self._wait_for_worker()
                if not self._is_busy():
                    return
            time.sleep(POLL_S)

    def _is_busy(self) -> bool:
        engine = self.broker.engine
        return bool(engine.has_pending or engine.jobs or engine.doomed)

    def _wait_for_worker(self) -> None:
        finished = Event()
        self.broker.engine.jobs.append(finished.set)
        self.broker.engine.wake_worker()
        finished.wait(SETTLE_S_MAX)

    def close(self) -> None:
        """Ends the broker; clients that are still open find it closed."""
        self.broker.close()

    def _catch_up(self) -> None:
        self.settle()
        for client in self._clients:
            client.catch_up()
        self.settle()

    def _step_s(self) -> float:
        """Short steps while something is leased, one jump otherwise."""
        engine = self.broker.engine
        with engine.lock:
            leases = [
                consumer.subscription.policy.lease_s
                for consumer in engine.consumers.values()
                if consumer.leases
            ]
        return min(leases, default=float("inf")) / STEPS_PER_LEASE


class _Owned(Share):
    """A part in a broker that somebody else closes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def again(self) -> "_Owned":
        return self

    def release(self) -> None:
        """Its owner does that."""


def __getattr__(name: str) -> Any:
    # pytest is needed for the fixture only, and so is imported only for it.
    if name != "penstock_broker":
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    import pytest  # noqa: PLC0415

    @pytest.fixture(name="penstock_broker")
    def fixture() -> Iterator[MemoryBroker]:
        """A broker in memory, with a clock the test moves."""
        with MemoryBroker() as broker:
            yield broker

    globals()[name] = fixture
    return fixture
