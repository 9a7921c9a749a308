"""Moving subscriptions, and confirming the time."""

from functools import partial
from typing import Any

from penstock.batch.frame import Slice
from penstock.broker.administration import Administration
from penstock.delivery import admin
from penstock.delivery.seek import decide_seek
from penstock.delivery.state import Lease, Subscription, Topic
from penstock.vocabulary.places import position_of
from penstock.vocabulary.records import Sought


class Seeking(Administration):
    """The half of a Broker that moves subscriptions."""

    def seek(self, topic_name: str, name: str, to: Any) -> None:
        """Moves a subscription and waits until that is durable.

        `to`: 'earliest', 'latest', Unix seconds, or a position, which moves its partition only.
        Raises UnknownTopic, UnknownSubscription, PositionNotHeld, InvalidArgument, Unsupported.
        """
        position = position_of("to", to)
        with self.engine.lock:
            topic, subscription = self._find(topic_name, name)
            is_pending = subscription.is_pending
        if is_pending:
            self._run(lambda: None)
        times: tuple[int, ...] | None = None
        if not isinstance(to, str):
            times = tuple(self._offset_at(p, int(to * 1000)) for p in topic.partitions)
        self._run(partial(self._decide_seek, topic_name, name, to, position, times))

    def _find(self, topic_name: str, name: str) -> tuple[Topic, Subscription]:
        topic = admin.find_topic(self.state, topic_name)
        return topic, admin.find_subscription(topic, name)

    def _decide_seek(
        self, topic_name: str, name: str, to: Any, position: tuple[int, int] | None,
        times: tuple[int, ...] | None,
    ) -> Sought | None:  # fmt: skip
        """Under the lock, where topic and subscription may be others than a moment ago."""
        topic, subscription = self._find(topic_name, name)
        places: tuple[int | None, ...]
        if position is not None:
            starts = admin.at_position(topic, *position)
            places = tuple(p if i == position[0] else None for i, p in enumerate(starts))
        elif to == "earliest":
            places = admin.earliest(topic)
        elif to == "latest" or times is None:
            places = admin.latest(topic)
        else:
            places = times
        leases = [lease for c in subscription.consumers or () for lease in c.leases.values()]
        record = decide_seek(self.state, subscription, places)
        for lease in leases:
            if lease.id not in lease.consumer.leases:
                _tell_void(lease)
        return record

    def confirm_time(self) -> None:
        """The wall clock is right: rules about the age of messages go on."""
        with self.engine.lock:
            self.engine.retaining.time.confirm()
            self.engine.retaining.next_at = 0
        self.engine.wake_timer()


def _tell_void(lease: Lease) -> None:
    # While the caller holds the lock, as with every slice: order holds.
    sink = lease.consumer.sink
    index = lease.cursor.partition.index
    nothing = Slice(lease.id, index, lease.start, lease.end, lease.attempt, [])
    sink.mailbox.post([(sink.on_slice, nothing)])
