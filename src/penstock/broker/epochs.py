"""Epochs of named publishers: each client that opens under a name gets one above all before it.

Clients propose the wall clock, which may have been set back since; what the broker knows decides.
"""

from typing import Final

from penstock.broker.broker import Broker
from penstock.vocabulary.errors import InvalidArgument

EPOCH_MAX: Final = 1 << 62
TAKEN_MAX: Final = 100_000
"""Epochs remembered of publishers that took one; whoever published since is known anyway."""


def take_epoch(broker: Broker, publisher: bytes, at_least: int) -> int:
    """An epoch above every one this publisher used or took. Raises InvalidArgument."""
    if len(publisher) != len(bytes(16)) or not 0 <= at_least < EPOCH_MAX:
        raise InvalidArgument("an epoch is taken by a publisher of 16 bytes, at least 0")
    taken = broker.epochs
    with broker.engine.lock:
        epoch = max(at_least, newest_epoch(broker, publisher) + 1, taken.pop(publisher, -1) + 1)
        if len(taken) >= TAKEN_MAX:
            del taken[next(iter(taken))]
        taken[publisher] = epoch
        return epoch


def newest_epoch(broker: Broker, publisher: bytes) -> int:
    """The newest epoch of a publisher that anything here knows of; -1 when it is not known."""
    books = broker.state.units.get(publisher)
    found = -1 if books is None else max(books.epoch, books.decided_epoch)
    for topic in broker.state.topics.values():
        for partition in topic.map:
            known = (partition.publishers or {}).get(publisher)
            if known is not None:
                found = max(found, known.epoch)
    return found
