"""Publishers that are known to have published a moment ago."""

import pytest

from penstock.batch import encode_many
from penstock.broker.broker import Broker
from penstock.broker.introducing import introduce, introduce_unit
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary.errors import PublisherForgotten, StaleMap
from penstock.vocabulary.units import Part, UnitWish

GENERATED = bytes([2]) * 16
ONE = encode_many([b"x"])


def published(broker: Broker, sequence: int, partitions: int = 0) -> int | None:
    pending = Pending()
    broker.publish("t", 0, ONE, 1, GENERATED, 3, sequence, DIRECT, pending, partitions)
    base: int | None = broker.engine.settle_down(pending).base
    return base


def test_an_introduced_publisher_may_begin_anywhere_and_is_then_known() -> None:
    broker = Broker.open(MemoryDisk(), threads=False)
    broker.partitions("t")
    with pytest.raises(PublisherForgotten):
        published(broker, 5)
    introduce(broker, "t", 0, GENERATED, 3)
    assert published(broker, 5) == 0
    introduce(broker, "t", 0, GENERATED, 3)
    assert published(broker, 5) == 0
    assert published(broker, 6) == 1
    broker.close()


def test_an_introduced_publisher_with_an_old_map_is_told_the_new_one() -> None:
    broker = Broker.open(MemoryDisk(), threads=False)
    broker.partitions("t")
    introduce(broker, "t", 0, GENERATED, 3)
    with pytest.raises(StaleMap):
        published(broker, 5, partitions=2)
    broker.close()


def test_nothing_happens_where_there_is_nothing() -> None:
    broker = Broker.open(MemoryDisk(), threads=False)
    introduce(broker, "missing", 0, GENERATED, 3)
    broker.partitions("t")
    introduce(broker, "t", 9, GENERATED, 3)
    assert not broker.state.names["t"].map[0].publishers
    broker.close()


def test_a_unit_is_introduced_with_its_batches() -> None:
    broker = Broker.open(MemoryDisk(), threads=False)
    wish = UnitWish(GENERATED, 3, 9, [Part("t", 0, ONE, 1, 3, 4)])
    pending = Pending()
    with pytest.raises(PublisherForgotten):
        broker.commit_unit(wish, [], DIRECT, pending)
    introduce_unit(broker, wish)
    broker.commit_unit(wish, [], DIRECT, pending)
    assert [row.base for row in broker.engine.settle_down(pending)] == [0]
    broker.close()
