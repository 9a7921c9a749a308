"""The API a program calls: connect, publish, subscribe, on_message."""

from penstock.client.blocking import BlockingClient, BlockingDeliveries, connect_blocking
from penstock.client.broker import Broker
from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage

__all__ = [
    "BlockingClient",
    "BlockingDeliveries",
    "Broker",
    "Client",
    "Deliveries",
    "ReceivedMessage",
    "connect",
    "connect_blocking",
]
