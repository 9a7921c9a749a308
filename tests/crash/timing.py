"""The half of a Run that lets time pass: leases, back-off, expiry, age, size and retention."""

from functools import partial

from penstock.vocabulary.message import Kind
from tests.crash.base import Base, Holder
from tests.crash.model import Model, Spot, Topic


class Timing(Base):
    """What time does."""

    def pass_time(self, seconds: float) -> None:
        """Moves the clock and does what time demands."""
        self.clock.advance(int(seconds * 1000))
        now = self.clock.now()
        for holder in self.holders:
            self._propose_late(holder, now)
        late = {
            holder: [s for s, (n, _) in holder.held.items() if self._is_late(holder, n, now)]
            for holder in self.holders
        }
        self.propose_expiry()
        self._propose_sizes()
        self._propose_retention()
        for holder, spots in late.items():
            self.forget(holder, spots)
        step = self.newest_step
        self.propose_expiry()
        self.history.attempts.clear()
        self.broker.tick()
        self.settle(step)
        for holder in self.holders:
            self.notice_voids(holder)

    def _propose_late(self, holder: Holder, now: int) -> None:
        """Leases run out one after the other; kind `key_shared`: each takes back its keys' rest."""
        topic, name = holder.topic, holder.subscription
        if name is None:
            return
        home = self.history.last.topics[topic]
        is_keyed = home.subs[name].policy.kind is Kind.KEY_SHARED
        revoked: set[Spot] = set()
        for lease in list(holder.consumer.leases.values()):
            held = [s for s, (n, _) in holder.held.items() if n == lease.id and s not in revoked]
            if lease.deadline > now or not held:
                continue
            self._propose(partial(Model.fail, topic=topic, name=name, spots=held))
            for partition, offset in held if is_keyed else ():
                key = home.held[partition, offset].key
                revoked.update(
                    s
                    for s in holder.held
                    if key is not None
                    and (s[0], home.held[s].key) == (partition, key)
                    and s[1] > offset
                )

    @staticmethod
    def _is_late(holder: Holder, number: int, now: int) -> bool:
        lease = holder.consumer.leases.get(number)
        return lease is not None and lease.deadline <= now

    # -- what has expired ------------------------------------------------------------------------

    def propose_expiry(self, only: str | None = None) -> None:
        """What waits and is over its time ends, subscription by subscription; then the rest."""
        wall = self.clock.wall()
        for partition in self.broker.engine.expiring:
            name, index = partition.topic.name, partition.index
            topic = self.history.last.topics.get(name)
            if topic is None or ".dead." in name or only not in (None, name):
                continue
            over = [s for s, i in topic.held.items() if s[0] == index and 0 < i.expiry <= wall]
            free = set(over)
            for sub_name, sub in topic.subs.items():
                pending = [spot for spot in over if spot in sub.unfinished]
                free.difference_update(pending)
                if sub.policy.kind is Kind.READER:
                    continue
                ended = [spot for spot in pending if self._waits(name, sub_name, spot)]
                if ended:
                    self._propose(partial(Model.expire, topic=name, name=sub_name, spots=ended))
            if free:
                self._propose(partial(Model.remove, topic=name, spots=sorted(free)))

    def _waits(self, topic: str, name: str, spot: Spot) -> bool:
        """True when nobody holds it and it is not on its way to the dead letters."""
        holders = [h for h in self.holders if (h.topic, h.subscription) == (topic, name)]
        if any(spot in holder.held for holder in holders):
            return False
        sub = self.history.last.topics[topic].subs[name]
        limit = sub.policy.retry.max_attempts
        return limit is None or sub.unfinished[spot] < limit

    # -- what is too old, too much, or kept long enough ------------------------------------------

    def _propose_sizes(self) -> None:
        """The oldest go until the rest fits. Workloads use batches of one size for this."""
        for name, topic in list(self.history.last.topics.items()):
            limit, spots = topic.policy.max_bytes, sorted(topic.held)
            sizes = [len(b.data) // b.size for b in self.history.batches if b.born == topic.born]
            if limit is None or not sizes:
                continue
            count = -(-(len(spots) * sizes[0] - limit) // sizes[0])
            free = [spot for spot in spots if spot not in topic.planned()]
            if 0 < count <= len(free):
                self._propose(partial(Model.remove, topic=name, spots=free[:count]))

    def _propose_retention(self) -> None:
        for partition in list(self.broker.engine.retaining.partitions):
            name, index = partition.topic.name, partition.index
            topic = self.history.last.topics.get(name)
            if topic is not None:
                self._propose_age(name, topic, index)
                self._propose_outlived(name, self.history.last.topics[name], index)

    def _propose_age(self, name: str, topic: Topic, index: int) -> None:
        age = topic.policy.max_age_s
        if age is not None:
            old = self._published_before(topic, index, age)
            gone = [spot for spot in old if spot in topic.held and spot not in topic.planned()]
            if gone:
                self._propose(partial(Model.remove, topic=name, spots=gone))

    def _propose_outlived(self, name: str, topic: Topic, index: int) -> None:
        keep, replay = topic.policy.retain_s, topic.policy.replay_s
        old: list[Spot] = []
        if keep is not None:
            old = [s for s in self._published_before(topic, index, keep) if s in topic.retained]
        window = 0
        if replay > 0:
            passed = self._published_before(topic, index, replay)
            window = max((offset + 1 for _, offset in passed), default=0)
        if old or window > topic.windows[index]:
            self._propose(
                partial(Model.outlive, topic=name, partition=index, spots=old, window=window)
            )

    def _published_before(self, topic: Topic, index: int, seconds: float) -> list[Spot]:
        limit = self.clock.wall() - int(seconds * 1000)
        return sorted(s for s, at in topic.times.items() if s[0] == index and at <= limit)
