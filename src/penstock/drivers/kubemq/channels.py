"""Topics and subscriptions as names of queues, and letters as their messages. Pure.

A topic is the queue of its name, which holds what no subscription took; a subscription is the
queue `TOPIC=.NAME`. A byte that KubeMQ might not allow is `=XX`, so no two names meet.
"""

from math import ceil
from typing import Any, Final
from uuid import uuid4

from penstock.drivers.foreign.envelope import Letter, seal, unseal
from penstock.drivers.foreign.naming import SAFE, escape, unescape

MARK: Final = "="
BETWEEN: Final = "=."
PASSING: Final = "=-"
"""Begins the name of a queue that ends with its consumer."""


def escaped(name: str) -> str:
    """A name in characters any channel may have; dots stay where they are harmless."""
    has_dots = not (name.startswith(".") or name.endswith(".") or ".." in name)
    return escape(name, SAFE | frozenset(b".") if has_dots else SAFE, MARK)


def queue_of(topic: str, subscription: str) -> str:
    """The queue of a subscription."""
    return escaped(topic) + BETWEEN + escaped(subscription)


def passing_queue(topic: str) -> str:
    """A queue for a consumer without a subscription."""
    return escaped(topic) + BETWEEN + PASSING + uuid4().hex


def parts_of(channel: str) -> tuple[str, str | None] | None:
    """Topic and subscription of a queue; no subscription: the topic's own; None: neither."""
    front, between, back = channel.partition(BETWEEN)
    if back.startswith(PASSING):
        return None
    try:
        topic, name = unescape(front, MARK), unescape(back, MARK) if between else None
    except ValueError:
        return None
    made = escaped(topic) if name is None else queue_of(topic, name)
    return (topic, name) if made == channel else None


def belongs(channel: str, topic: str) -> bool:
    """True for the queues that get a copy of a topic's messages."""
    return channel.startswith(escaped(topic) + BETWEEN)


def fields_of(letter: Letter, channels: list[str], now: float) -> list[dict[str, Any]]:
    """The messages that carry a letter to queues, in the words of KubeMQ."""
    policy: dict[str, Any] = {}
    if letter.deliver_at / 1000 > now:
        policy["DelaySeconds"] = ceil(letter.deliver_at / 1000 - now)
    if letter.expires_at:
        policy["ExpirationSeconds"] = max(1, ceil(letter.expires_at / 1000 - now))
    message_id = uuid4().hex
    letter.position = message_id
    tags = seal(letter)
    return [
        {"MessageID": message_id, "Channel": channel, "Body": letter.body or b"", "Tags": tags,
         "Metadata": "penstock", "Policy": policy}
        for channel in channels
    ]  # fmt: skip


def opened(message: Any) -> Letter:
    """The letter in a message, whoever wrote it."""
    at = message.Attributes.Timestamp // 1_000_000
    letter = unseal(dict(message.Tags), message.Body, id=message.MessageID, at=at)
    letter.position = message.MessageID
    letter.attempt = max(1, message.Attributes.ReceiveCount)
    letter.sequence = message.Attributes.Sequence
    return letter
