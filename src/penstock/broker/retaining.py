"""Time and size limits of topics, carried out: which partitions to look at, and when."""

from collections.abc import Callable, Iterable

from penstock.broker.clock import Clock
from penstock.broker.wall import BrokerTime
from penstock.delivery.policies import forget_rows, is_over
from penstock.delivery.retention import GUARDS, decide_retention, decide_size, due_at
from penstock.delivery.state import Partition, State, Topic
from penstock.delivery.traits import NEVER
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
        self.over: dict[Topic, None] = {}
        """Topics above their size."""
        self._looked_at = 0
        self.guards = GUARDS

    def note(self, partitions: Iterable[Partition]) -> bool:
        """These keep something from now on; True when a topic of them is over its size."""
        for partition in partitions:
            self.partitions[partition] = None
            self.next_at = min(self.next_at, due_at(partition))
            if is_over(partition.topic):
                self.over[partition.topic] = None
        return bool(self.over)

    def decide(self, submit: Callable[[Record], None]) -> None:
        """Submits what time and size demand now. The caller holds the lock."""
        wall = self.time.now_wall()
        if self.over:
            self._keep_sizes(submit)
        # A clock that went back must not put off what was to be looked at soon.
        if self._looked_at <= wall < self.next_at:
            return
        self._looked_at = wall
        soonest = NEVER
        for partition in list(self.partitions):
            topic = partition.topic
            if topic.id not in self._state.topics or not (partition.retained or partition.keeping):
                del self.partitions[partition]
                continue
            forget_rows(partition)
            if not self.time.is_paused and not topic.is_removing:
                for record in decide_retention(partition, wall, self.guards):
                    submit(record)
            soonest = min(soonest, due_at(partition))
        self.next_at = max(soonest, wall + AGAIN_MS)

    def _keep_sizes(self, submit: Callable[[Record], None]) -> None:
        for topic in list(self.over):
            if topic.id not in self._state.topics or topic.is_removing:
                del self.over[topic]
                continue
            for record in decide_size(topic, self.guards):
                submit(record)
            # Until what was submitted is applied it is looked at again.
            if not is_over(topic):
                del self.over[topic]
