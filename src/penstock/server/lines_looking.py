"""The commands that only look: `topics`, `peek`, `stats`, `explain`.

They run in a thread, since they may read the disk.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.batch import Batch
from penstock.batch.shown import json_text, tame
from penstock.broker.asking import answer_request
from penstock.broker.broker import Broker
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.limits import LINE_LISTED_MAX, OUT_BYTES_MAX
from penstock.wire.line_reply import event, listing, printable, shown_id, text_line

PEEK_DEFAULT: Final = 10
PEEK_MAX: Final = 100

_SHOWN_STATS: Final = (
    *("topics", "subscriptions", "consumers", "messages_held", "disk_bytes", "live_bytes"),
    "health",
)


def topics(broker: Broker, beginning: str) -> bytes:
    """Each topic as one line of JSON, at most LINE_LISTED_MAX of them."""
    rows = [row for row in answer_request(broker, q.ListTopics()) if _begins(row, beginning)]
    lines = [
        _json(
            {
                "topic": row["topic"],
                "messages": row["messages"],
                "published": row["published"],
                "subscriptions": row["subscriptions"][:LINE_LISTED_MAX],
            }
        )
        for row in rows[:LINE_LISTED_MAX]
    ]
    if len(rows) > LINE_LISTED_MAX:
        lines.append(b"and %d more: say how the name begins" % (len(rows) - LINE_LISTED_MAX))
    return listing(lines)


def _begins(row: dict[str, Any], beginning: str) -> bool:
    return str(row["topic"]).startswith(beginning)


def peek(broker: Broker, topic: str, count: str) -> bytes:
    """The oldest held messages of a topic. Raises InvalidArgument, UnknownTopic."""
    number = int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 0  # noqa: PLR2004
    if count and not 1 <= number <= PEEK_MAX:
        raise InvalidArgument(f"count must be a number from 1 to {PEEK_MAX}")
    found = answer_request(broker, q.Peek(topic, number or PEEK_DEFAULT, None, 0))
    lines: list[bytes] = []
    size = skipped = 0
    for _, frame in found:
        view = Batch(frame.batch, verify=False)
        for index in frame.indexes:
            priority = 0 if view.priorities is None else view.priorities[index]
            line = event(json_text(topic), frame.id_of(view, index), priority, view.bodies[index])
            size += len(line)
            if size <= OUT_BYTES_MAX:
                lines.append(line)
            else:
                skipped += 1
    if skipped:
        lines.append(b"and %d more, too large for one answer: say a smaller count" % skipped)
    return listing(lines)


def stats(broker: Broker, own: dict[str, Any]) -> bytes:
    """The broker and the listener in numbers."""
    found = answer_request(broker, q.Stats())
    return listing([_json({name: found[name] for name in _SHOWN_STATS}), _json({"lines": own})])


def explain(
    broker: Broker, topic: str, subscription: str | None, id: str, held: Mapping[str, str]
) -> bytes:
    """Why an event does not come; `held` is what the client has. Raises UnknownTopic."""
    found = answer_request(broker, q.Explain(topic=topic, subscription=subscription, id=id or None))
    reason, position = found["reason"], found.get("position")
    if position in held:
        shown = f"{printable(topic)} {shown_id(held[position])}"
        text = f"it is with you: say ack {shown} when you are done, or nack {shown}"
    elif reason == "no-credit" and held:
        first = next(iter(held.values()))
        text = f"it comes when you are done with the one you have: ack {printable(topic)} "
        text += shown_id(first)
    else:
        text = found["text"]
    name = _id_at(broker, topic, found)
    return text_line(f"ok {reason}: {f'event {shown_id(name)}: ' if name else ''}{text}")


def _id_at(broker: Broker, topic: str, found: dict[str, Any]) -> str:
    """The id of the event an explanation is about; empty when it is about none."""
    partition, offset = found.get("partition"), found.get("offset")
    if partition is None or offset is None:
        return ""
    for _, frame in answer_request(broker, q.Peek(topic, 1, partition, offset)):
        for at, index in zip(frame.offsets, frame.indexes, strict=True):
            if at == offset:
                return str(frame.id_of(Batch(frame.batch, verify=False), index))
    return ""


def _json(value: Any) -> bytes:
    return tame(msgspec.json.encode(value))
