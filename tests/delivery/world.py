"""A broker whose disk is instant: what is decided is true at once. For tests of delivery."""

from collections.abc import Sequence
from typing import TypeVar

from penstock.batch import encode_many
from penstock.batch.frame import Frame, frame_of
from penstock.delivery import admin, keyed, revoked, settle
from penstock.delivery.apply import apply
from penstock.delivery.dead import decide_dead, decide_redrive
from penstock.delivery.effects import Effects
from penstock.delivery.expiry import decide_expiry
from penstock.delivery.offers import Offer
from penstock.delivery.publish import decide_publish
from penstock.delivery.shared import dispatch, due
from penstock.delivery.state import (
    Consumer,
    Cursor,
    Lease,
    Partition,
    State,
    Subscription,
    Topic,
    bit_ranges,
)
from penstock.vocabulary.claims import Claim, Refusal
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import (
    Attached,
    Cause,
    Detached,
    Missed,
    Published,
    Ranges,
    Record,
    Removed,
    Returned,
    Settled,
    Unit,
)

NAMED = b"\x01" + bytes(14) + b"n"
"""A publisher whose id was derived from a name: its state is kept for ever."""
GENERATED = b"\x02" + bytes(14) + b"g"
"""A publisher whose id was drawn at random."""

T = TypeVar("T")


def the(found: T | None) -> T:
    """What is certainly there."""
    assert found is not None
    return found


class World:
    """Topics, subscriptions and consumers, a clock the test moves, and every effect so far."""

    def __init__(self) -> None:
        self.state = State()
        self.now = 1_000_000
        self.wall = 1_700_000_000_000
        self.stored: list[Published] = []
        self.released: list[tuple[int, int, int]] = []
        self.doomed: dict[Cursor, None] = {}
        self.delayed: dict[Cursor, None] = {}
        self._sequences: dict[tuple[Partition, bytes, int], int] = {}

    def wait(self, seconds: float) -> None:
        """Moves both clocks; whose back-off is over may be offered again."""
        self.now += int(seconds * 1000)
        self.wall += int(seconds * 1000)
        for cursor in self.delayed:
            due(cursor, self.now, self.wall)

    def apply(self, record: Record) -> Effects:
        """Makes a record true and keeps what it leads to."""
        effects = Effects(self.now, self.wall)
        apply(self.state, record, effects)
        for part in record.records if isinstance(record, Unit) else (record,):
            if isinstance(part, Published):
                self.stored.append(part)
        self.released += effects.released
        for key, base, mask in effects.scattered:
            self.released += [(key, low, high) for low, high in bit_ranges(mask, base)]
        self.doomed.update(effects.doomed)
        self.delayed.update(effects.delayed)
        return effects

    def carry_out(self, record: Settled | Returned) -> None:
        """Makes a decision true that reserved its messages when it was taken."""
        cursor = self.state.subscriptions[record.subscription_id].cursors[record.partition]
        cursor.settling -= record.count
        if cursor.subscription.keys is not None:
            cursor.subscription.keys.decided.pop(id(record), None)
        self.apply(record)
        revoked.carried_out(cursor, record)

    # -- topics and subscriptions ----------------------------------------------------------------

    def topic(
        self, name: str = "orders", partitions: int = 1, policy: TopicPolicy | None = None
    ) -> Topic:
        record = admin.decide_create_topic(
            self.state, name, partitions, policy or TopicPolicy(), self.wall, is_explicit=True
        )
        self.apply(the(record))
        return self.state.names[name]

    def subscribe(
        self,
        topic: Topic,
        name: str = "billing",
        policy: SubscriptionPolicy | None = None,
        starts: tuple[int, ...] | None = None,
    ) -> Subscription:
        starts = admin.earliest(topic) if starts is None else starts
        record = admin.decide_create_subscription(
            self.state, topic, name, policy, starts, self.wall, is_explicit=True
        )
        self.apply(the(record))
        return admin.find_subscription(topic, name)

    def publish(
        self,
        topic: Topic,
        count: int = 1,
        partition: int = 0,
        *,
        publisher: bytes = NAMED,
        epoch: int = 0,
        body: bytes = b"body",
    ) -> Published:
        batch = encode_many([body] * count)
        return self.publish_batch(topic, batch, count, partition, publisher, epoch)

    def publish_messages(
        self, topic: Topic, messages: Sequence[Message | bytes], partition: int = 0
    ) -> Published:
        batch = encode_many(messages)
        return self.publish_batch(topic, batch, len(messages), partition, NAMED)

    def publish_batch(
        self, topic: Topic, batch: bytes, count: int, partition: int, publisher: bytes,
        epoch: int = 0,
    ) -> Published:  # fmt: skip
        home = topic.partitions[partition]
        sequence = self._sequences.get((home, publisher, epoch), 0)
        self._sequences[home, publisher, epoch] = sequence + count
        record = decide_publish(home, batch, count, publisher, epoch, sequence, self.wall)
        assert isinstance(record, Published)
        self.apply(record)
        return record

    # -- consumers -------------------------------------------------------------------------------

    def join(
        self,
        subscription: Subscription,
        credit: int = 1000,
        *,
        credit_bytes: int = 1 << 26,
        name: str = "worker",
    ) -> Consumer:
        number = self.state.next_consumer_id
        consumer = Consumer(number, name, subscription, credit, credit_bytes, None)
        subscription.consumers = [*(subscription.consumers or ()), consumer]
        self.apply(Attached(subscription.topic.id, subscription.id, number, name))
        consumer.is_attached = True
        return consumer

    def dispatch(self, subscription: Subscription) -> list[Offer]:
        is_keyed = subscription.policy.kind is Kind.KEY_SHARED
        hand_out = keyed.dispatch if is_keyed else dispatch
        offers = hand_out(self.state, subscription, self.now, self.wall)
        for offer in offers:
            self.apply(offer.record)
        return offers

    def deliver(self, consumer: Consumer) -> list[Lease]:
        """What a consumer gets when its subscription is served now."""
        offers = self.dispatch(consumer.subscription)
        return [offer.lease for offer in offers if offer.lease.consumer is consumer]

    def deliver_one(self, consumer: Consumer) -> Lease:
        (lease,) = self.deliver(consumer)
        return lease

    def ack(self, lease: Lease, *ranges: tuple[int, int]) -> list[Refusal]:
        records, refused = settle.decide_ack(lease.consumer, [claim(lease, *ranges)])
        for record in records:
            self.carry_out(record)
        return refused

    def give_back(
        self,
        lease: Lease,
        *ranges: tuple[int, int],
        cause: Cause = Cause.NACKED,
        delay_s: float | None = None,
        reason: str = "",
    ) -> list[Refusal]:
        records, refused = settle.decide_return(
            lease.consumer, claim(lease, *ranges), cause, delay_s, reason, self.wall
        )
        for record in records:
            self.carry_out(record)
        return refused

    def expire(self, subscription: Subscription) -> list[Returned]:
        records = settle.decide_expired(subscription, self.now, self.wall)
        for record in records:
            self.carry_out(record)
        return records

    def leave(
        self, consumer: Consumer, begun: dict[int, Ranges] | None = None, *, is_clean: bool = True
    ) -> None:
        subscription = consumer.subscription
        left = [c for c in subscription.consumers or () if c is not consumer]
        subscription.consumers = left or None
        consumer.is_gone = True
        for record in settle.decide_detach(consumer, begun or {}, self.wall, is_clean=is_clean):
            if isinstance(record, Missed):
                self.apply(record)
            else:
                self.carry_out(record)
        self.apply(Detached(subscription.topic.id, subscription.id, consumer.id))

    def end_messages(self, topic: Topic) -> list[Settled | Removed]:
        """Settles what has expired by now."""
        records = [r for p in topic.partitions for r in decide_expiry(p, self.wall)]
        for record in records:
            if isinstance(record, Settled):
                self.carry_out(record)
            else:
                self.apply(record)
        return records

    def lose(self, consumer: Consumer) -> None:
        """The consumer vanishes."""
        self.leave(consumer, is_clean=False)

    # -- dead letters ----------------------------------------------------------------------------

    def frames(self, partition: Partition, *ranges: tuple[int, int]) -> list[Frame]:
        return [
            frame_of(record, low, high)
            for low, high in ranges
            for record in self.stored
            if (record.topic_id, record.partition) == (partition.topic.id, partition.index)
            and low < record.end
            and record.base < high
        ]

    def bury(self, cursor: Cursor, *ranges: tuple[int, int]) -> Unit:
        """Moves messages to the dead-letter topic."""
        unit = decide_dead(self.state, cursor, self.frames(cursor.partition, *ranges), self.wall)
        self.apply(unit)
        return unit

    def redrive(
        self, subscription: Subscription, dead: Partition, *ranges: tuple[int, int]
    ) -> Unit:
        unit = decide_redrive(subscription, dead, self.frames(dead, *ranges), self.wall)
        self.apply(unit)
        return unit


def claim(lease: Lease, *ranges: tuple[int, int]) -> Claim:
    """What the holder of a lease says it holds; all of it when no ranges are given."""
    held = ranges or tuple(lease.unfinished()) or ((lease.start, lease.end),)
    return Claim(lease.id, lease.cursor.partition.index, lease.attempt, held)
