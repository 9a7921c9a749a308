"""Publishing messages with given ids at a rig, and looking what became of them."""

from typing import Any

from penstock.batch import Batch, encode_many
from penstock.broker.mailbox import DIRECT, Pending
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy
from penstock.vocabulary.stored import Stored
from tests.broker.rig import NAMED, Rig

OTHER = b"\x01" + bytes(14) + b"o"
"""Another publisher."""


def submit(
    rig: Rig,
    *ids: str | None,
    topic: str = "orders",
    publisher: bytes = NAMED,
    sequence: int | None = None,
    **fields: Any,
) -> Pending:
    """Publishes one message for each id without committing; its body says which and when."""
    place = (topic, 0, publisher, 0)
    at = rig.sequences.get(place, 0) if sequence is None else sequence
    rig.sequences[place] = max(rig.sequences.get(place, 0), at + len(ids))
    pending = Pending()
    bodies = [f"{id}.{at + n}".encode() for n, id in enumerate(ids)]
    messages = [Message(body=body, id=id, **fields) for body, id in zip(bodies, ids, strict=True)]
    batch = encode_many(messages)
    rig.broker.publish(topic, 0, batch, len(ids), publisher, 0, at, DIRECT, pending)
    return pending


def publish(rig: Rig, *ids: str | None, **options: Any) -> Stored:
    pending = submit(rig, *ids, **options)
    rig.settle()
    stored: Stored = pending.wait()
    return stored


def held(rig: Rig, topic: str = "orders") -> list[str | None]:
    """The ids of every held message, in order."""
    found: list[str | None] = []
    for _, frame in rig.broker.held(topic):
        ids = Batch(frame.batch).ids
        found.extend(None if ids is None else ids[index] for index in frame.indexes)
    return found


def replacing(topic: str = "orders") -> Rig:
    """A rig with a topic whose newer messages replace older ones."""
    rig = Rig()
    rig.broker.create_topic(topic, 1, TopicPolicy(on_duplicate=OnDuplicate.REPLACE))
    return rig
