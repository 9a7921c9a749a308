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


class Seek(msgspec.Struct, frozen=True):
    """None, once the subscription stands elsewhere."""

    topic: str
    subscription: str
    to: Any


class ListSubscriptions(msgspec.Struct, frozen=True):
    """One dict for each durable subscription, of one topic or of all."""

    topic: str | None


class OpenReader(msgspec.Struct, frozen=True):
    """A ReaderState, once `owner` owns the reader, which is created when missing."""

    topic: str
    reader: str
    owner: str
    start: Any


class DescribeReader(msgspec.Struct, frozen=True):
    """A ReaderState."""

    topic: str
    reader: str


class PlanRanges(msgspec.Struct, frozen=True):
    """A list of PlannedRange: what to read next, held from now on."""

    topic: str
    reader: str
    owner: str
    max_messages: int | None
    max_bytes: int | None
    after: dict[int, int] | None


class ReadRange(msgspec.Struct, frozen=True):
    """(list of Frame, offset to go on from): about `bytes_max` bytes of start…end."""

    topic: str
    reader: str
    owner: str
    partition: int
    start: int
    end: int
    bytes_max: int


class CommitReader(msgspec.Struct, frozen=True):
    """None, once everything below these ends is finished."""

    topic: str
    reader: str
    owner: str
    ends: dict[int, int]


class ReleaseReader(msgspec.Struct, frozen=True):
    """None, once the reader is gone."""

    topic: str
    reader: str
    owner: str
    is_forced: bool


class Peek(msgspec.Struct, frozen=True):
    """A list of (partition, Frame): held messages, oldest first, leased to nobody."""

    topic: str
    limit: int
    partition: int | None
    after: int | str
    """The first offset; or, where messages have none, the position to go on after."""


class TopicLog(msgspec.Struct, frozen=True):
    """A dict, subscription → its unfinished messages in the order they come.

    Each is a dict of `timestamp` (Unix ms), `priority`, `msg` and `id`; at most `limit` of each.
    """

    topic: str
    limit: int = 100


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


class ConfirmTime(msgspec.Struct, frozen=True):
    """None, once rules about the age of messages go on."""


class BeginBackup(msgspec.Struct, frozen=True):
    """A BackupPlan: what to copy, kept as it is until EndBackup or a minute without a read."""


class ReadBackup(msgspec.Struct, frozen=True):
    """Bytes: so many of a file of the plan, from `start` on; fewer only at its end."""

    backup: str
    file: str
    start: int
    bytes_max: int


class EndBackup(msgspec.Struct, frozen=True):
    """None, once the broker need not keep anything for this backup."""

    backup: str


class TakeEpoch(msgspec.Struct, frozen=True):
    """An int: an epoch of this publisher, at least this one and above every one taken before."""

    publisher: bytes
    at_least: int


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
    | OpenReader
    | DescribeReader
    | PlanRanges
    | ReadRange
    | CommitReader
    | ReleaseReader
    | Peek
    | TopicLog
    | Redrive
    | PurgeDead
    | Stats
    | Seek
    | ConfirmTime
    | Explain
    | BeginBackup
    | ReadBackup
    | EndBackup
    | TakeEpoch
)
