"""Connections of Spark's Python processes: one for each broker, kept from task to task."""

import os
from typing import Any

from penstock.batch.frame import Frame
from penstock.client.blocking import BlockingClient, connect_blocking
from penstock.client.blocking_reader import BlockingReader
from penstock.vocabulary import requests as q

_clients: dict[tuple[int, str], BlockingClient] = {}
_readers: dict[tuple[int, str, str, str, str], BlockingReader] = {}


def client_of(url: str) -> BlockingClient:
    """The open client of this process. Raises what opening raises."""
    # A forked process has no use for the connection of its parent.
    place = (os.getpid(), url)
    found = _clients.get(place)
    if found is None or found.is_closed:
        found = _clients[place] = connect_blocking(url).open()
    return found


def reader_of(
    url: str, topic: str, subscription: str, owner: str, start: Any = None
) -> BlockingReader:
    """The reader in the hands of this owner. Raises ReaderFenced when a newer run has it."""
    place = (os.getpid(), url, topic, subscription, owner)
    found = _readers.get(place)
    if found is None:
        for old in [each for each in _readers if each[:4] == place[:4]]:
            del _readers[old]  # one run at a time
        client = client_of(url)
        found = client.reader(topic, subscription, owner=owner, start=start)
        _readers[place] = found
    return found


def peek_frames(url: str, topic: str, limit: int, partition: int, after: int) -> list[Frame]:
    """Held messages of a partition from offset `after` on, as they are stored."""
    client = client_of(url)

    async def ask() -> list[tuple[int, Frame]]:
        driver = client._client._opened()  # noqa: SLF001 - a part of the client
        found: list[tuple[int, Frame]] = await driver.ask(q.Peek(topic, limit, partition, after))
        return found

    return [frame for _, frame in client._thread.call(ask())]  # noqa: SLF001


def close_all() -> None:
    """Closes every connection of this process."""
    _readers.clear()
    while _clients:
        _, client = _clients.popitem()
        client.close()
