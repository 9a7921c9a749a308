"""The API a program calls: connect, publish, subscribe, on_message.

`Broker` is imported when it is first used: a client of a served broker needs nothing of it.
"""

from typing import TYPE_CHECKING, Any

from penstock.client.blocking import (
    BlockingClient,
    BlockingDeliveries,
    BlockingTransaction,
    connect_blocking,
)
from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.client.transaction import Transaction

if TYPE_CHECKING:
    from penstock.client.broker import Broker

__all__ = [
    "BlockingClient",
    "BlockingDeliveries",
    "BlockingTransaction",
    "Broker",
    "Client",
    "Deliveries",
    "ReceivedMessage",
    "Transaction",
    "connect",
    "connect_blocking",
]


def __getattr__(name: str) -> Any:
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.client.broker import Broker  # noqa: PLC0415 - slow, and often not needed

    return Broker
