"""A broker behind each driver, with a clock the test moves: what contract tests run on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from penstock.broker.broker import Broker
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.drivers.embedded import FILE
from penstock.journal.disk import FolderDisk
from penstock.testing import MemoryBroker
from tests.contracts.remote_world import RemoteBroker
from tests.contracts.suites.world import PATIENCE_S, QUIET_S

MOMENT_S = 0.05
_made: WeakSet[MemoryBroker] = WeakSet()


class FolderBroker(MemoryBroker):
    """The same with a disk."""

    capabilities = FILE

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def open_broker(self) -> Broker:
        return Broker.open(FolderDisk(self._folder), clock=self.clock, timers=False)


def make(kind: str, folder: Path) -> MemoryBroker:
    """A broker of this kind of URL."""
    made: MemoryBroker
    if kind == "remote":
        made = RemoteBroker()
    else:
        made = MemoryBroker() if kind == "memory" else FolderBroker(folder)
    _made.add(made)
    return made


async def receive_all(deliveries: Deliveries) -> list[ReceivedMessage]:
    """Everything that comes until nothing does for a moment.

    A broker made here has sent before what it has to send, however slow the machine is.
    """
    brokers = [each for each in _made if not each.broker.engine.is_closed]
    for broker in brokers:
        broker.settle()
    found: list[ReceivedMessage] = []
    while (message := await deliveries.receive(MOMENT_S if brokers else QUIET_S)) is not None:
        found.append(message)
    return found


async def bodies(deliveries: Deliveries) -> list[bytes | None]:
    """The bodies of everything that comes, acked."""
    found = await receive_all(deliveries)
    for message in found:
        message.ack()
    return [message.body for message in found]


@asynccontextmanager
async def subscribed(
    client: Client, topic: str = "orders", name: str | None = "billing", **options: Any
) -> AsyncIterator[Deliveries]:
    """A subscription, with the topic made beforehand."""
    async with client.subscribe(topic, name, **options) as deliveries:
        yield deliveries


async def first(deliveries: Deliveries) -> ReceivedMessage:
    """The next message, which must come."""
    message = await deliveries.receive(timeout_s=PATIENCE_S)
    assert message is not None, "no message came"
    return message
