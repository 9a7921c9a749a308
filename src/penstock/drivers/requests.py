"""What a client may ask of a broker besides messages: one value for each question.

Values, so that any driver can carry them. The docstring of each says what its answer is.
"""

from typing import Any

import msgspec

from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy


class CreateTopic(msgspec.Struct, frozen=True):
    """None, once the topic exists as asked."""

    topic: str
    partitions: int
    policy: TopicPolicy


class AlterTopic(msgspec.Struct, frozen=True):
    """None, once the policy has these values and the topic so many partitions."""

    topic: str
    changes: dict[str, Any]
    partitions: int | None = None


class DeleteTopic(msgspec.Struct, frozen=True):
    """None, once the topic is gone."""

    topic: str


class ListTopics(msgspec.Struct, frozen=True):
    """One dict for each topic."""


class DescribeTopic(msgspec.Struct, frozen=True):
    """A dict."""

    topic: str


class CreateSubscription(msgspec.Struct, frozen=True):
    """None, once the subscription exists as asked."""

    topic: str
    subscription: str
    policy: SubscriptionPolicy
    start: Any


class AlterSubscription(msgspec.Struct, frozen=True):
    """None, once the policy has these values."""

    topic: str
    subscription: str
    changes: dict[str, Any]


class DeleteSubscription(msgspec.Struct, frozen=True):
    """None, once the subscription is gone."""

    topic: str
    subscription: str


class ListSubscriptions(msgspec.Struct, frozen=True):
    """One dict for each durable subscription, of one topic or of all."""

    topic: str | None


class Peek(msgspec.Struct, frozen=True):
    """A list of (partition, Frame): held messages, oldest first, leased to nobody."""

    topic: str
    limit: int
    partition: int | None
    after: int


class Filter(msgspec.Struct, frozen=True):
    """Which dead letters are meant; every given condition must hold."""

    id: str | None = None
    reason_contains: str | None = None


class Redrive(msgspec.Struct, frozen=True):
    """How many dead letters went back, or would go when `is_dry`."""

    topic: str
    subscription: str
    which: Filter
    limit: int | None
    is_dry: bool


class PurgeDead(msgspec.Struct, frozen=True):
    """How many dead letters were removed for good, or would be when `is_dry`."""

    topic: str
    subscription: str
    which: Filter
    limit: int | None
    is_dry: bool


class Explain(msgspec.Struct, frozen=True, kw_only=True):
    """A dict: why something does not move, with `reason`, `text` and details."""

    topic: str
    subscription: str | None = None
    position: str | None = None
    id: str | None = None
    key: bytes | str | None = None
    consumer: str | None = None


class Stats(msgspec.Struct, frozen=True):
    """A dict: the broker in numbers."""


Request = (
    CreateTopic
    | AlterTopic
    | DeleteTopic
    | ListTopics
    | DescribeTopic
    | CreateSubscription
    | AlterSubscription
    | DeleteSubscription
    | ListSubscriptions
    | Peek
    | Redrive
    | PurgeDead
    | Stats
    | Explain
)
