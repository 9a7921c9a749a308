"""Which publishes of a group count from the write on, before the sync: those to `written` topics.

The engine asks. A publish never overtakes a record of its topic that changes what it means, such
as a redrive with earlier offsets or the end of a subscription.
"""

from typing import Final

from penstock.delivery.apply import topic_ids
from penstock.delivery.state import State
from penstock.vocabulary.message import Durability
from penstock.vocabulary.records import (
    Attached,
    Delivered,
    Detached,
    Published,
    Record,
    Returned,
    Settled,
)

_OVERTAKEN: Final = frozenset({Settled, Delivered, Returned, Attached, Detached})
"""Records a publish to the same topic may overtake: they speak of older messages only."""


def early_publishes(state: State, records: list[Record], at: int, upto: int) -> set[int]:
    """Indexes of the publishes in at…upto that count before the sync."""
    early: set[int] = set()
    if not state.written_topics:
        return early
    behind: set[int] = set()
    for index in range(at, upto):
        record = records[index]
        if _is_written(state, record) and behind.isdisjoint(topic_ids(record)):
            early.add(index)
        elif type(record) not in _OVERTAKEN:
            behind.update(topic_ids(record))
    return early


def _is_written(state: State, record: Record) -> bool:
    topic = state.topics.get(record.topic_id) if type(record) is Published else None
    return topic is not None and topic.policy.durability is Durability.WRITTEN
