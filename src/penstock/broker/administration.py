"""Topics and subscriptions: create, change, delete, list. Each call waits until it is durable."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.broker.engine import Engine
from penstock.broker.following import Following
from penstock.broker.mailbox import DIRECT, Pending
from penstock.broker.multicasting import Multicasting, check_multicast_start
from penstock.delivery import admin, counts, members, multicast, patterns
from penstock.delivery.explain_returning import describe_returning
from penstock.delivery.growth import decide_partitions
from penstock.delivery.reader import describe_row
from penstock.delivery.setbacks import held_for_all, stretches
from penstock.delivery.state import Partition, State, Subscription, Topic
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, UnknownTopic
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.message import Kind
from penstock.vocabulary.places import position_of
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Unit

SCAN_COUNT: Final = 1_000
"""So many messages are read at once where publish times have no order."""


class Administration(Following, Multicasting):
    """The administrative half of a Broker."""

    engine: Engine
    state: State

    auto_create_topics = True
    """Whether a topic is created by its first publish or subscribe."""

    def check_creating(self, name: str) -> None:
        """Raises UnknownTopic when topics are created explicitly only, and this one was not."""
        if not self.auto_create_topics and name not in self.state.names:
            names.check_topic(name, reserved=names.is_dead_topic(name))
            raise UnknownTopic(
                f"there is no topic {name!r}, and a first use creates none here "
                f"(auto_create_topics is off): `penstock topics create {name}` or "
                f"client.create_topic({name!r}) does"
            )

    def _ensure_topic(self, name: str) -> Topic:
        self.check_creating(name)
        record = admin.decide_create_topic(
            self.state, name, 1, TopicPolicy(), self.engine.clock.wall(), is_explicit=False,
            is_reserved=names.is_dead_topic(name),
        )  # fmt: skip
        self.add_topic(record)
        return self.state.names[name]

    def _topic_to_follow(
        self, topic_name: str, name: str | None, policy: SubscriptionPolicy | None,
        member: str | None = None,
    ) -> Topic:  # fmt: skip
        """The topic of a subscription; none is made for a name that would be refused in it."""
        if name is not None and topic_name not in self.state.names:
            names.check_topic(topic_name)
            names.check_subscription(name)
            policy = policy or SubscriptionPolicy()
            admin.check_dead(topic_name, name, policy)
            if policy.kind is Kind.MULTICAST and member is not None:
                names.check_member(topic_name, name, member)
        return self._ensure_topic(topic_name)

    def _starts(self, topic: Topic, start: Any, default: str) -> tuple[int, ...]:
        start = default if start is None else start
        if isinstance(start, tuple):  # an offset for each partition, made by the broker itself
            return start
        position = position_of("start", start)
        with self.engine.lock:
            if start == "earliest":
                return admin.earliest(topic)
            if start == "latest":
                return admin.latest(topic)
            if position is not None:
                return admin.at_position(topic, *position)
        return tuple(self._offset_at(p, int(start * 1000)) for p in topic.partitions)

    def _offset_at(self, partition: Partition, wall: int) -> int:
        """The first held offset published at or after a time: nothing younger lies before it."""
        with self.engine.lock:
            cuts, end = list(stretches(partition)), partition.next_offset
        for start, upto, is_rising in cuts:
            search = self._bisect if is_rising else self._scan
            found = search(partition, start, upto, wall)
            if found is not None:
                return found
        return end

    def _bisect(self, partition: Partition, low: int, high: int, wall: int) -> int | None:
        found: int | None = None
        while low < high:
            middle = (low + high) // 2
            run = self._held_run(partition, middle, high)
            if run is None:
                high = middle
                continue
            frames, _ = self.engine.read(partition, run[0], run[0] + 1)
            times = [at for frame in frames for _, at in _times(frame)]
            if not times or times[0] >= wall:  # What cannot be read might be young.
                found, high = run[0], middle
            else:
                low = run[0] + 1
        return found

    def _scan(self, partition: Partition, low: int, high: int, wall: int) -> int | None:
        while (run := self._held_run(partition, low, high)) is not None:
            low = min(run[1], run[0] + SCAN_COUNT)
            frames, _ = self.engine.read(partition, run[0], low)
            young = [offset for frame in frames for offset, at in _times(frame) if at >= wall]
            if young:
                return min(young)
        return None

    def _held_run(self, partition: Partition, start: int, end: int) -> tuple[int, int] | None:
        with self.engine.lock:
            return next(held_for_all(partition, start, end), None)

    def _run(self, decide: Callable[[], Any]) -> None:
        """Decides under the lock, submits, and waits until it is durable."""
        pending = Pending()
        with self.engine.lock:
            self.engine.check_alive()
            record = decide()
            if record is None:
                self.engine.after_pending((DIRECT, pending, None))
            else:
                self.engine.submit(record, (DIRECT, pending, None))
        self.engine.settle_down(pending)

    def create_topic(self, name: str, partitions: int, policy: TopicPolicy) -> None:
        """Creates a topic; nothing happens when it exists as asked."""
        wall = self.engine.clock.wall()
        self._run(
            lambda: self.add_topic(
                admin.decide_create_topic(
                    self.state, name, partitions, policy, wall, is_explicit=True
                )
            )
        )

    def alter_topic(
        self, name: str, changes: dict[str, Any], partitions: int | None = None
    ) -> None:
        """Changes a topic's policy; with `partitions`, adds so many that it has that number."""
        wall = self.engine.clock.wall()

        def decide() -> Any:
            topic = admin.find_topic(self.state, name)
            policy = changed(topic.policy, changes)
            altered = admin.decide_alter_topic(topic, policy, wall)
            added = None if partitions is None else decide_partitions(topic, partitions, wall)
            return Unit((altered, added)) if altered and added else altered or added

        self._run(decide)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, its messages and its subscriptions."""
        self._run(lambda: admin.decide_delete_topic(self.state, admin.find_topic(self.state, name)))

    def create_subscription(
        self, topic_name: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        """Creates a durable subscription; nothing happens when it exists as asked."""
        if is_pattern(topic_name):
            self._ensure_pattern(topic_name, name, policy, start, is_explicit=True)
            self._run(lambda: None)
            return
        self.refuse_taken(topic_name, name)
        check_multicast_start(policy, start)
        check_wanted(policy, start)
        with self.engine.lock:
            self.engine.check_alive()
            topic = self._topic_to_follow(topic_name, name, policy)
        starts = self._starts(topic, start, "earliest")
        wall = self.engine.clock.wall()
        self._run(
            lambda: admin.decide_create_subscription(
                self.state, topic, name, policy, starts, wall, is_explicit=True
            )
        )

    def alter_subscription(self, topic_name: str, name: str, changes: dict[str, Any]) -> None:
        """Changes a subscription's policy."""

        def decide() -> Any:
            if is_pattern(topic_name):
                known = patterns.find_pattern(self.state, topic_name, name)
                return patterns.decide_alter_pattern(
                    self.state, known, changed(known.policy, changes)
                )
            topic = admin.find_topic(self.state, topic_name)
            subscription = admin.find_subscription(topic, name)
            patterns.refuse_part(self.state, subscription)
            return multicast.decide_alter(subscription, changed(subscription.policy, changes))

        self._run(decide)

    def delete_subscription(self, topic_name: str, name: str) -> None:
        """Deletes a subscription; what only it held is released."""

        def decide() -> Any:
            if is_pattern(topic_name):
                return self.decide_delete_pattern(topic_name, name)
            subscription = admin.find_subscription(admin.find_topic(self.state, topic_name), name)
            patterns.refuse_part(self.state, subscription)
            return multicast.decide_delete(subscription)

        self._run(decide)

    def topics(self) -> list[dict[str, Any]]:
        """Every topic, described."""
        with self.engine.lock:
            shown = [
                t for t in self.state.topics.values() if not t.is_pending and not t.is_removing
            ]
            return [admin.describe(topic) for topic in sorted(shown, key=lambda t: t.name)]

    def describe_topic(self, name: str) -> dict[str, Any]:
        """One topic. Raises UnknownTopic."""
        with self.engine.lock:
            return admin.describe(admin.find_topic(self.state, name))

    def subscriptions(self, topic_name: str | None = None) -> list[dict[str, Any]]:
        """Every durable subscription with its counts."""
        with self.engine.lock:
            if topic_name is None:
                topics = list(self.state.topics.values())
            elif is_pattern(topic_name):
                return self.describe_patterns(topic_name)
            else:
                topics = [admin.find_topic(self.state, topic_name)]
            return self.describe_patterns(topic_name) + [
                self._describe_subscription(s)
                for topic in sorted(topics, key=lambda t: t.name)
                for s in members.listed(topic)
            ]

    def _describe_subscription(self, subscription: Subscription) -> dict[str, Any]:
        found = counts.count(subscription, self.engine.clock.wall())
        row = {
            "topic": subscription.topic.name,
            "subscription": subscription.name,
            "kind": subscription.policy.kind.value,
            "consumers": [c.name for c in subscription.connected],
            **describe_returning(subscription, self.engine.clock.now(), self.engine.clock.wall()),
            **msgspec.to_builtins(found),
            "unexplained": counts.unexplained(found),
            "oldest": [cursor.done.floor for cursor in subscription.cursors],
            **describe_row(subscription),
            "policy": msgspec.to_builtins(subscription.policy),
        }
        return self.describe_part(self.describe_multicast(subscription, row))


def check_wanted(policy: SubscriptionPolicy | None, start: Any) -> None:
    """Refuses what makes no sense anywhere, before a topic is made for it.

    Raises InvalidArgument, Unsupported.
    """
    if policy is not None:
        admin.check_subscription_policy(policy)
    if start is not None and not isinstance(start, tuple):
        position_of("start", start)


def _times(frame: Frame) -> list[tuple[int, int]]:
    """Offset and publish time of each message."""
    view = Batch(frame.batch, verify=False)
    return [
        (offset, frame.published_at_of(view, index))
        for offset, index in zip(frame.offsets, frame.indexes, strict=True)
    ]


def changed(policy: Any, changes: dict[str, Any]) -> Any:
    """A policy with some fields changed. Raises InvalidArgument for an unknown field or value."""
    fields = msgspec.to_builtins(policy)
    known = type(policy).__struct_fields__
    for name, value in changes.items():
        if name not in known:
            raise InvalidArgument(f"there is no setting {name!r}; known: {', '.join(known)}")
        fields[name] = msgspec.to_builtins(value)
    try:
        return msgspec.convert(fields, type(policy))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"wrong setting: {error}") from error
