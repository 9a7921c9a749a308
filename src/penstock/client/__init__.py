"""The API a program calls: connect, publish, subscribe, on_message."""

from penstock.client.blocking import (
    BlockingClient,
    BlockingDeliveries,
    BlockingTransaction,
    connect_blocking,
)
from penstock.client.broker import Broker
from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.client.transaction import Transaction

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
