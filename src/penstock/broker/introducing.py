"""Publishers that are not known here although they have published a moment ago.

A publisher with a generated id that is not known may have been forgotten; then a retry cannot be
told from a new message and is refused. Over a network a batch may be refused while others behind it
are under way, so that the first one to be stored has not the first number. Whoever carries it
knows that it was first sent a short while ago: nothing of it can have been forgotten.
"""

from penstock.broker.broker import Broker
from penstock.delivery.state import Publisher, UnitBook
from penstock.vocabulary.units import UnitWish


def introduce(broker: Broker, topic: str, partition: int, publisher: bytes, epoch: int) -> None:
    """Makes a publisher known in a partition; nothing changes when it is."""
    engine = broker.engine
    with engine.lock:
        known = broker.state.names.get(topic)
        if known is None or not 0 <= partition < len(known.map):
            return
        place = known.map[partition]
        if place.publishers is None:
            place.publishers = {}
        place.publishers.setdefault(publisher, Publisher(epoch, engine.clock.wall()))


def introduce_unit(broker: Broker, wish: UnitWish) -> None:
    """Makes the publisher of a unit known wherever the unit speaks of it."""
    engine = broker.engine
    with engine.lock:
        book = UnitBook(wish.epoch, engine.clock.wall())
        broker.state.units.setdefault(wish.publisher, book)
        for part in wish.parts:
            introduce(broker, part.topic, part.partition, wish.publisher, part.epoch)
