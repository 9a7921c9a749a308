"""The half of a Run that moves subscriptions and reads ranges."""

from penstock.vocabulary.claims import Claim
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from tests.crash.base import Base, Holder
from tests.crash.model import Plan

READER = SubscriptionPolicy(kind=Kind.READER)


class Moving(Base):
    """Seeks, readers, and acks of many scattered messages at once."""

    def seek(self, topic: str, name: str, to: str, *, is_committed: bool = True) -> None:
        """Moves a subscription; what its consumers hold is void."""
        places = self._places(topic, to)
        step = self._propose(lambda m: m.seek(topic, name, places))
        self.history.attempts.clear()
        if is_committed:
            self.broker.seek(topic, name, to)
            self.history.confirm(step)
        else:
            position = None
            if to[0].isdigit():
                partition, _, offset = to.partition(":")
                position = (int(partition), int(offset))
            engine = self.broker.engine
            with engine.lock:
                record = self.broker._decide_seek(topic, name, to, position, None)
                assert record is not None
                engine.submit(record, None)
        for holder in self.holders:
            self.notice_voids(holder)
        if is_committed:
            self.commit()

    def _places(self, topic: str, to: str) -> list[int | None]:
        home = self.history.last.topics[topic]
        if to == "latest":
            return [*home.ends]
        if to == "earliest":
            return [*home.earliest()]
        partition, _, offset = to.partition(":")
        return [int(offset) if index == int(partition) else None for index in range(len(home.ends))]

    def ack_scattered(
        self, holder: Holder, *offsets: int, partition: int = 0, is_committed: bool = True
    ) -> None:
        """Acks messages of one lease by one claim, which names them by their bits."""
        spots = [(partition, offset) for offset in offsets]
        topic, name = holder.topic, holder.subscription
        assert name is not None
        [(lease, attempt)] = {holder.held[spot] for spot in spots}
        self._propose(lambda m: m.finish(topic, name, spots))
        first, last = min(offsets), max(offsets)
        mask = sum(1 << (offset - first) for offset in offsets)
        claim = Claim(lease, partition, attempt, ((first, last + 1),), mask)
        refused = self.broker.ack(holder.consumer, [claim])
        assert not refused, refused
        self.forget(holder, spots)
        if is_committed:
            self.settle()

    # -- readers ---------------------------------------------------------------------------------

    def open_reader(self, topic: str, name: str, owner: str) -> None:
        """A run of a reader begins; the one before is fenced."""
        self._propose_topic(topic)
        if name not in self.history.last.topics[topic].subs:
            self._propose_sub(topic, name, READER)
        step = self._propose(lambda m: m.open_reader(topic, name, owner))
        self.broker.open_reader(topic, name, owner, None)
        self.history.confirm(step)

    def _plan(self, topic: str, name: str) -> Plan:
        plan = self.history.last.topics[topic].subs[name].plan
        assert plan is not None
        return plan

    def plan(self, topic: str, name: str, count: int) -> None:
        """Plans to read so many more messages; of one partition, without gaps."""
        plan = self._plan(topic, name)
        home = self.history.last.topics[topic]
        waiting = [o for _, o in sorted(home.subs[name].unfinished) if o >= plan.planned[0]]
        if not waiting:
            return
        end = waiting[count - 1] + 1 if count <= len(waiting) else home.ends[0]
        step = self._propose(lambda m: m.move_reader(topic, name, {}, {0: end}))
        self.broker.plan_ranges(topic, name, plan.owner, count, None, None)
        self.history.confirm(step)

    def commit_reader(self, topic: str, name: str, end: int) -> None:
        """Everything below `end` is read."""
        owner = self._plan(topic, name).owner
        step = self._propose(lambda m: m.move_reader(topic, name, {0: end}, {}))
        self.broker.commit_reader(topic, name, owner, {0: end})
        self.history.confirm(step)

    def release_reader(self, topic: str, name: str) -> None:
        """Gone with its plan."""
        owner = self._plan(topic, name).owner
        step = self._propose(lambda m: m.delete_sub(topic, name))
        self.broker.release_reader(topic, name, owner, is_forced=True)
        self.history.confirm(step)
