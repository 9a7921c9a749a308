"""What the journal remembers: one record per durable decision.

`delivery` decides and applies them, `journal` writes and reads them. A record changes exactly
one topic; a Unit holds several that stand or fall together.
"""

from enum import IntEnum

import msgspec

from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

Ranges = tuple[tuple[int, int], ...]
"""Half-open offset ranges, rising and disjoint."""

Placed = tuple[int | None, bool, tuple[int, ...] | None, dict[int, int] | None]
"""Where a batch of a unit is: first offset, whether all of it was stored before, the indexes that
were kept, and the offsets of those that were not, by index."""


class Outcome(IntEnum):
    """How a message left a subscription for good."""

    ACKED = 1
    DEAD = 2
    EXPIRED = 3
    DROPPED = 4
    REPLACED = 5
    """Dropped because a newer message with the same id took its place."""


class Cause(IntEnum):
    """Why a delivered message came back."""

    NACKED = 1
    EXPIRED = 2
    REJECTED = 3
    LOST = 4
    """Its consumer vanished while holding other messages too."""
    LOST_ALONE = 5
    UNSTARTED = 6
    """Handed back without having been started: the attempt is not counted."""
    RELEASED = 7
    """Its consumer closed in good order without finishing it."""
    REVOKED = 8
    """An earlier message of its key came back: it comes again in order, no attempt counted."""


class Published(msgspec.Struct, frozen=True, gc=False):
    """A batch was stored at `base`…`base + kept count`."""

    topic_id: int
    partition: int
    base: int
    count: int
    """Offsets this record takes: messages of the batch that were kept."""
    publisher: bytes
    epoch: int
    sequence: int
    """Sequence of the first message of the batch (kept or not)."""
    published_at: int
    batch: bytes
    kept: tuple[int, ...] | None = None
    """Indexes of the kept messages when not all are."""
    target: int = 0
    """Subscription id that alone receives it (redrive); 0 = every subscription."""
    ledger: int = 1

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.base + self.count


class Copied(msgspec.Struct, frozen=True, gc=False):
    """Compaction stored these messages again; offsets and meaning are unchanged."""

    topic_id: int
    partition: int
    offsets: tuple[int, ...]
    batch: bytes
    ledger: int = 1


class Settled(msgspec.Struct, frozen=True, gc=False):
    """These messages are finished for this subscription."""

    topic_id: int
    partition: int
    subscription_id: int
    outcome: Outcome
    ranges: Ranges
    mask: bytes = b""
    """Bits of the messages that are meant, from the start of the only range on; empty = all."""

    @property
    def count(self) -> int:
        """How many messages are meant."""
        if self.mask:
            return int.from_bytes(self.mask, "little").bit_count()
        return sum(end - start for start, end in self.ranges)


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A slice was handed to a consumer: each message has one more attempt."""

    topic_id: int
    partition: int
    subscription_id: int
    start: int
    end: int
    is_alone: bool
    consumer_id: int
    mask: bytes = b""
    """Bits of the messages that are meant, from `start` on; empty = all."""


class Returned(msgspec.Struct, frozen=True, gc=False):
    """Delivered messages came back unfinished."""

    topic_id: int
    partition: int
    subscription_id: int
    cause: Cause
    ranges: Ranges
    delay_ms: int
    decided_at: int
    reason: str
    consumer: str

    @property
    def count(self) -> int:
        """How many messages are meant."""
        return sum(end - start for start, end in self.ranges)


class Removed(msgspec.Struct, frozen=True, gc=False):
    """These messages leave the topic whatever its subscriptions say (retention, purge, redrive)."""

    topic_id: int
    partition: int
    ranges: Ranges


class Lost(msgspec.Struct, frozen=True, gc=False):
    """These messages cannot be read any more: damage on disk."""

    topic_id: int
    partition: int
    ranges: Ranges


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """Offsets up to `next_offset` are never used (unclean stop of a `written` topic)."""

    topic_id: int
    partition: int
    next_offset: int


class TopicCreated(msgspec.Struct, frozen=True):
    """A topic exists from here on."""

    topic_id: int
    name: str
    partitions: int
    policy: TopicPolicy
    created_at: int


class TopicAltered(msgspec.Struct, frozen=True):
    """The topic has a new policy."""

    topic_id: int
    policy: TopicPolicy
    altered_at: int = 0


class PartitionsAdded(msgspec.Struct, frozen=True):
    """The topic has `partitions` partitions from here on; keys are spread anew."""

    topic_id: int
    partitions: int
    ends: tuple[int, ...]
    """Where each partition there was before ended: what lies below was spread the old way."""
    added_at: int


class TopicDeleted(msgspec.Struct, frozen=True):
    """The topic, its messages and its subscriptions are gone."""

    topic_id: int


class SubscriptionCreated(msgspec.Struct, frozen=True):
    """A durable subscription exists from here on."""

    topic_id: int
    subscription_id: int
    name: str
    starts: tuple[int, ...]
    """First covered offset of each partition."""
    policy: SubscriptionPolicy
    created_at: int


class SubscriptionAltered(msgspec.Struct, frozen=True):
    """The subscription has a new policy."""

    topic_id: int
    subscription_id: int
    policy: SubscriptionPolicy


class SubscriptionDeleted(msgspec.Struct, frozen=True):
    """The subscription is gone; what only it held is released."""

    topic_id: int
    subscription_id: int


class ReaderOpened(msgspec.Struct, frozen=True):
    """A reader has a new owner; the one before may not use it any more."""

    topic_id: int
    subscription_id: int
    owner: str


class ReaderMoved(msgspec.Struct, frozen=True):
    """How far a reader got, and how far it has planned to read, partition by partition."""

    topic_id: int
    subscription_id: int
    progress: tuple[int, ...]
    planned: tuple[int, ...]


class Attached(msgspec.Struct, frozen=True):
    """A consumer joined the subscription."""

    topic_id: int
    subscription_id: int
    consumer_id: int
    consumer: str


class Detached(msgspec.Struct, frozen=True):
    """A consumer left the subscription."""

    topic_id: int
    subscription_id: int
    consumer_id: int
    at: int = 0
    """Wall time in ms."""


class Started(msgspec.Struct, frozen=True):
    """The broker opened the store. `is_clean` tells whether the stop before was."""

    generation: int
    is_clean: bool
    started_at: int
    is_waiting: bool = False
    """Consumers attached before may return: what was out stays out until they do, or do not."""


class Outlived(msgspec.Struct, frozen=True):
    """The time for which these messages were kept is over: what nothing else holds is released."""

    topic_id: int
    partition: int
    ranges: Ranges
    """Messages that no durable subscription covered."""
    window: int
    """Everything below this offset has left the replay window."""


class Sought(msgspec.Struct, frozen=True):
    """The subscription stands elsewhere: what lies below is finished, what is held above waits."""

    topic_id: int
    subscription_id: int
    places: tuple[int | None, ...]
    """The new place in each partition; None where it stays."""
    voided: int = 0
    """Leases with smaller numbers ended with it, where the place is new."""


class MemberExpired(msgspec.Struct, frozen=True):
    """A consumer of a multicast subscription stayed away too long: its backlog is dropped."""

    topic_id: int
    subscription_id: int


class PatternCreated(msgspec.Struct, frozen=True):
    """Each topic that matches has a subscription of this name, from here on; or a new policy."""

    pattern: str
    name: str
    policy: SubscriptionPolicy
    created_at: int


class PatternDeleted(msgspec.Struct, frozen=True):
    """New topics that match get no subscription of this name any more."""

    pattern: str
    name: str


class UnitCommitted(msgspec.Struct, frozen=True):
    """Part of a client's unit: it is committed, and this is what its retry is answered."""

    publisher: bytes
    epoch: int
    sequence: int
    """Units of one publisher have numbers of their own."""
    committed_at: int
    places: tuple[Placed, ...]
    """For each batch of the unit, in its order."""


class Missed(msgspec.Struct, frozen=True):
    """QoS 0: finished at hand-over, but they never reached the application: not acked, dropped."""

    topic_id: int
    partition: int
    subscription_id: int
    ranges: Ranges
    reason: str


class Unit(msgspec.Struct, frozen=True):
    """Several records that stand or fall together."""

    records: tuple["Record", ...]


Record = (
    Published
    | Copied
    | Settled
    | Delivered
    | Returned
    | Removed
    | Lost
    | Skipped
    | TopicCreated
    | TopicAltered
    | TopicDeleted
    | SubscriptionCreated
    | SubscriptionAltered
    | SubscriptionDeleted
    | ReaderOpened
    | ReaderMoved
    | Attached
    | Detached
    | Started
    | Outlived
    | Sought
    | Unit
    | MemberExpired
    | PatternCreated
    | PatternDeleted
    | PartitionsAdded
    | UnitCommitted
    | Missed
)

WITHOUT_TOPIC = (Started, PatternCreated, PatternDeleted, UnitCommitted)
"""Records that speak of no topic; applying one again must be harmless."""


def partition_key(topic_id: int, partition: int) -> int:
    """One number for one partition of one topic."""
    return topic_id << 16 | partition
