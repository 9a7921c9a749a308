"""Random operations on a real broker and on the model, and everything compared after each step.

An operation is a method and a row of `operations`. Each step draws from a chance of its
own, so that a failing run can be cut down to the steps that matter.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from penstock.batch import Batch
from penstock.batch.frame import Slice
from penstock.client.packing import partition_of
from penstock.delivery.state import Cursor, Subscription
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy, TopicPolicy
from tests.broker.rig import Rig, Worker
from tests.model import book, watch
from tests.model.book import DEAD, DOOMED, Fact, Place, Sub, demand

KEYS: Final = ("ant", "bee", "cow", "dog", "eel")
IDS: Final = ("i1", "i2", "i3", "i4")
KINDS: Final = {
    "plain": "shared", "other": "shared", "once": "shared", "keyed": "key_shared", "tail": "reader",
    "cast@left": "multicast", "cast@right": "multicast",
}  # fmt: skip
ONCE: Final = "once"
"""The subscription of QoS 2."""
OWNER: Final = "run"
HANDOUTS_MAX: Final = 60


class Handout:
    """A slice as a consumer got it; kept after it is settled, for late claims."""

    def __init__(self, topic: str, sub: str, worker: int, part: Slice) -> None:
        self.topic = topic
        self.sub = sub
        self.worker = worker
        self.part = part
        self.offsets = [offset for frame in part.frames for offset in frame.offsets]


class Driver:
    """A broker without threads, the book about it, and what compares the two."""

    operations: ClassVar[dict[str, int]]
    """Names of methods, and how often each is drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rig = Rig()
        self.clock = book.Clock(self.rig.clock.now(), self.rig.clock.wall())
        self.topics: dict[str, book.Topic] = {}
        self.workers: dict[int, Worker] = {}
        self.log: list[tuple[int, Slice]] = []
        self.handouts: list[Handout] = []
        self.leases = 0
        self.bodies = 0
        self.is_burst = False
        self.is_waiting = False
        self.is_quiet = False
        """In this step nothing comes back that was out."""
        self.pending: list[tuple[str, int, list[Fact], Callable[[], Any]]] = []
        self.done: list[str] = []
        rnd = Random(f"{seed}")
        for name in ("a", "b"):
            partitions, replaces = rnd.randint(1, 2), rnd.random() < 0.4
            policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE if replaces else OnDuplicate.DROP)
            self.rig.broker.create_topic(name, partitions, policy)
            self.topics[name] = book.Topic(name, partitions, replaces)
            for sub in rnd.sample(list(KINDS), 4):
                self.make_sub(name, sub, "earliest")
        self.settle()

    # -- steps -------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """One operation, and every check."""
        rnd = Random(f"{self.seed}/{number}")
        self.clock.step = number
        self.is_waiting = self.is_burst = False
        name = rnd.choices(list(self.operations), list(self.operations.values()))[0]
        self.done.append(f"{number}:{name}")
        self.is_quiet = name in ("publish", "join", "ack", "read", "extend")
        getattr(self, name)(rnd)
        self.settle()
        self.check()

    def settle(self) -> None:
        """Lets the broker finish, and the book see what it did."""
        rig = self.rig
        rig.settle()
        while rig.engine.doomed and rig.keeper.move_doomed():
            rig.settle()
        self.see_published()
        self.see_dead()
        self.see_deliveries()

    def see_published(self) -> None:
        waiting, self.pending = self.pending, []
        for name, partition, facts, answer in waiting:
            self.stored(self.topics[name], partition, facts, answer())

    def see_dead(self) -> None:
        for topic in self.topics.values():
            for name, sub in topic.subs.items():
                dead = self.rig.broker.state.names.get(f"{topic.name}.dead.{name}")
                if dead is None:
                    continue
                rows = topic.dead.setdefault(name, [])
                known = {place for place, _, _ in rows}
                for partition, frame in self.rig.broker.held(dead.name):
                    view = Batch(frame.batch)
                    for offset, index in zip(frame.offsets, frame.indexes, strict=True):
                        if (partition, offset) not in known:
                            headers = (view.headers[index] if view.headers else None) or {}
                            home, fact = self._died(topic, sub, headers, view.bodies[index])
                            rows.append(((partition, offset), fact, home))
                            known.add((partition, offset))
                        known.discard((partition, offset))
                demand(not known, f"{dead.name} lost its dead letters {known}")

    @staticmethod
    def _died(topic: book.Topic, sub: Sub, headers: dict[str, str], body: Any) -> tuple[int, Fact]:
        place = (
            int(headers["penstock-dead-partition"]), int(headers["penstock-dead-offset"]),
        )  # fmt: skip
        entry, fact = sub.entries[place], topic.facts[place]
        demand(entry.state == DOOMED or entry.may_die, f"{place} is a dead letter, was {entry}")
        demand(body == fact.body, f"dead letter of {place} has body {body!r}")
        sub.end(place, DEAD)
        return place[0], fact

    def see_deliveries(self) -> None:
        """In the order in which they were decided."""
        log, self.log = self.log, []
        for name, topic in self.topics.items():
            rows = [row for row in self.pending if row[0] == name and topic.replaces]
            topic.coming = {
                (partition, fact.id)
                for row in rows
                for fact in row[2]
                if fact.id
                for partition in (row[1], *older_ends(topic, fact))
            }
        for worker, part in sorted(log, key=lambda row: row[1].lease_id):
            if not part.frames or worker not in self.workers:
                continue
            subscription = self.workers[worker].consumer.subscription
            topic = self.topics[subscription.topic.name]
            handout = Handout(topic.name, subscription.name, worker, part)
            self.handouts = [*self.handouts[-HANDOUTS_MAX:], handout]
            self.leases = max(self.leases, part.lease_id)
            for frame in part.frames:
                view = Batch(frame.batch)
                for offset, index in zip(frame.offsets, frame.indexes, strict=True):
                    watch.deliver(
                        topic, topic.subs[subscription.name], worker, (part.partition, offset),
                        part.attempt, part.lease_id, view.bodies[index], self.clock,
                        is_burst=self.is_burst, is_quiet=self.is_quiet,
                    )  # fmt: skip

    def subscription(self, topic: str, sub: str) -> Subscription:
        return (self.rig.broker.state.names[topic].subscriptions or {})[sub]

    def cursors(self, topic: str, sub: str) -> list[Cursor]:
        return self.subscription(topic, sub).cursors

    def check(self) -> None:
        """Everything that must hold between two steps."""
        for topic in self.topics.values():
            state = self.rig.broker.state.names[topic.name]
            planned: dict[Place, bool] = {}
            for name, sub in topic.subs.items():
                cursors = self.cursors(topic.name, name)
                if sub.rules.kind == "reader":
                    planned |= self._planned(topic.name, name)
                watch.see_endings(topic, sub, cursors, self.clock, waited=self.is_waiting)
                watch.check_doomed(topic, sub)
                watch.check_counts(topic, sub, cursors, self.clock)
                watch.check_waiting(topic, sub, self.clock)
            real = set()
            for part in state.partitions:
                right = topic.next.get(part.index, 0)
                text = f"{topic.name}/{part.index} ends at {part.next_offset}, must be {right}"
                demand(part.next_offset == right, text)
                for low, high in part.released.gaps(0, part.next_offset):
                    real |= {(part.index, offset) for offset in range(low, high)}
            watch.check_held(topic, real, planned, self.clock, waited=self.is_waiting)
        for topic in self.topics.values():
            for sub in topic.subs.values():
                for entry in sub.entries.values():
                    entry.is_fresh = False

    def _planned(self, topic: str, name: str) -> dict[Place, bool]:
        state = self.rig.broker.describe_reader(topic, name)
        return {
            (partition, offset): True
            for partition, (low, high) in enumerate(zip(state.progress, state.planned, strict=True))
            for offset in range(low, high)
        }

    # -- what operations need ----------------------------------------------------------------------

    def pick(self, rnd: Random, *kinds: str) -> tuple[book.Topic, Sub] | None:
        """One of the subscriptions of some kinds."""
        found = [
            (topic, sub)
            for topic in self.topics.values()
            for sub in topic.subs.values()
            if sub.rules.kind in (kinds or ("shared", "key_shared", "multicast"))
        ]
        return rnd.choice(found) if found else None

    def make_sub(self, topic_name: str, name: str, start: str) -> None:
        rules = book.Rules(kind=KINDS[name], qos=2 if name == ONCE else 1)
        retry = Retry(first_s=rules.first_ms / 1000, max_s=rules.max_ms / 1000, max_attempts=3)
        policy = SubscriptionPolicy(kind=Kind(rules.kind), qos=rules.qos, lease_s=30, retry=retry)
        topic = self.topics[topic_name]
        begin = {}
        for partition in range(topic.partitions):
            held = [p[1] for p in topic.held if p[0] == partition]
            begin[partition] = topic.next.get(partition, 0)
            if start == "earliest" and held:
                begin[partition] = min(held)
        if rules.kind == "reader":
            self.rig.broker.open_reader(topic_name, name, OWNER, start)
        elif rules.kind == "multicast":
            known = [each for each in topic.subs.values() if each.rules.kind == "multicast"]
            if known:
                rules = known[0].rules
            else:
                self.rig.broker.create_subscription(topic_name, cast_of(name), policy, None)
            book.subscribe(topic, Sub(name, rules, begin), self.clock)
            self.attach(topic, topic.subs[name], 5, start)
            return
        else:
            self.rig.broker.create_subscription(topic_name, name, policy, start)
        book.subscribe(topic, Sub(name, rules, begin), self.clock)

    def attach(self, topic: book.Topic, sub: Sub, credit: int, start: str | None = None) -> None:
        """A consumer joins; whatever reaches it stands in the log."""
        options: dict[str, Any] = {}
        if sub.rules.kind == "multicast":
            options = {"name": sub.name.partition("@")[2], "is_named": True, "start": start}
            options["policy"] = SubscriptionPolicy(kind=Kind.MULTICAST)
        worker = self.rig.attach(
            topic.name, cast_of(sub.name), credit=credit, is_settled=False, **options
        )
        number, log = worker.consumer.id, self.log

        def receive(part: Slice) -> None:
            self.log.append((number, part))

        assert not worker.slices
        assert log is self.log
        worker.consumer.sink = worker.consumer.sink._replace(on_slice=receive)
        self.workers[number] = worker
        sub.workers[number] = credit

    def forget(self, worker: int) -> None:
        """A consumer is gone; late claims of it may still come."""
        for topic in self.topics.values():
            for sub in topic.subs.values():
                sub.workers.pop(worker, None)

    def _is_on_its_way(self, topic: str, sub: str, place: Place) -> bool:
        """Several decisions at once: a message may be leased before it is seen."""
        return self.is_burst and place[1] not in self.cursors(topic, sub)[place[0]].done

    def stored(self, topic: book.Topic, partition: int, facts: list[Fact], answer: Any) -> None:
        """The publisher has its answer: what of it is new, and what it replaced."""
        everything = range(len(facts)) if answer.kept is None else answer.kept
        kept = set() if answer.is_duplicate else set(everything)
        name = f"{topic.name}/{partition}"
        base = topic.next.get(partition, 0)
        demand(not kept or answer.base == base, f"{answer} in {name}, must be {base}")
        for index, fact in enumerate(facts):
            id = None if topic.replaces else fact.id
            is_new = None if id is not None else True
            if id is not None:
                is_new = self._is_new(topic, partition, fact)
            if is_new is not None:
                demand(is_new == (index in kept), f"{name}: {fact} and {answer}")
            if index not in kept:
                continue
            if id is not None:
                topic.ids[partition, id] = (self.clock.wall, False)
            offset = book.publish(topic, partition, fact, self.clock)[1]
            if topic.replaces and fact.id is not None:
                is_out = partial(self._is_on_its_way, topic.name)
                ends = older_ends(topic, fact) | {partition: offset}
                book.replace(topic, fact.id, ends, is_out)

    def _is_new(self, topic: book.Topic, partition: int, fact: Fact) -> bool | None:
        """Whether an id was not given in time, here or where its key lay before; None = unsure."""
        wall = self.clock.wall
        homes = {partition}
        for grown_at, ends in topic.growths:
            if grown_at > wall - book.ID_MS:
                homes.add(home_of(fact.key or fact.id or "", len(ends)))
        is_new = True
        for home in homes:
            stored_at, is_unsure = topic.ids.get((home, fact.id or ""), (-book.NEVER, False))
            age = wall - stored_at
            if is_unsure or book.ID_MS <= age <= book.ID_MS + 2_000:
                return None
            is_new = is_new and age > book.ID_MS
        return is_new


def older_ends(topic: book.Topic, fact: Fact) -> dict[int, int]:
    """The partitions a message would have had in older maps, and where those ended."""
    found: dict[int, int] = {}
    for _, ends in topic.growths:
        home = home_of(fact.key or fact.id or "", len(ends))
        found[home] = max(ends[home], found.get(home, 0))
    return found


def home_of(text: str, partitions: int) -> int:
    """The partition of a key or an id."""
    return partition_of(text, None, partitions, 0)


def cast_of(name: str) -> str:
    """The subscription a consumer names to be this one."""
    return name.partition("@")[0]
