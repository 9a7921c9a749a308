"""Time and size limits of topics, carried out: which partitions to look at, and when."""

from collections.abc import Callable, Iterable

from penstock.broker.clock import Clock
from penstock.broker.wall import BrokerTime
from penstock.delivery.policies import forget_rows
from penstock.delivery.retention import GUARDS, NEVER, decide_retention, decide_size, due_at
from penstock.delivery.state import Partition, State, Topic
from penstock.vocabulary.records import Record

AGAIN_MS = 1_000
"""What was just decided is looked at again when it has been applied."""


class Retaining:
    """Partitions that keep something for a time or up to a size."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self.time = BrokerTime(clock)
        self.partitions: dict[Partition, None] = {}
        self.next_at = 0
        """Wall time before which there is nothing to do."""
        self._looked_at = 0
        self.guards = GUARDS

    def note(self, partitions: Iterable[Partition]) -> bool:
        """These keep something from now on; True when one of them is over its limit already."""
        for partition in partitions:
            self.partitions[partition] = None
            self.next_at = min(self.next_at, due_at(partition))
        return self.next_at == 0

    def decide(self, submit: Callable[[Record], None]) -> None:
        """Submits what time and size demand now. The caller holds the lock."""
        wall = self.time.now_wall()
        if self._looked_at <= wall < self.next_at:
            return
        self._looked_at = wall
        soonest = NEVER
        topics: dict[Topic, None] = {}
        for partition in list(self.partitions):
            topic = partition.topic
            if topic.id not in self._state.topics or not (partition.retained or partition.keeping):
                del self.partitions[partition]
                continue
            if topic.is_removing:
                continue
            forget_rows(partition)
            topics[topic] = None
            if not self.time.is_paused:
                for record in decide_retention(partition, wall, self.guards):
                    submit(record)
            soonest = min(soonest, due_at(partition))
        for topic in topics:
            records, topic.is_full = decide_size(topic, self.guards)
            for size_record in records:
                submit(size_record)
        self.next_at = max(soonest, wall + AGAIN_MS)
