"""Workloads drawn from a seed: any operations in any order, each seed with features of its own."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random

from penstock.broker import rebuild
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause
from tests.crash.enumeration import Workload
from tests.crash.given import ALICE, BOB
from tests.crash.run import Holder, Run
from tests.crash.workload_snapshots import one_topic_per_piece

OPERATIONS = 12
POLICY = SubscriptionPolicy(lease_s=10.0, retry=Retry(first_s=2.0, max_s=8.0, max_attempts=2))


class Mood(StrEnum):
    """What a swarm does most of."""

    SETTLING = "settling"
    KEEPING = "keeping"
    CHANGING = "changing"


def swarm(mood: Mood, seed: int) -> Workload:
    """The workload of this seed."""

    def workload(run: Run) -> None:
        Swarm(run, mood, Random(f"{mood} {seed}")).go()

    workload.__name__ = f"swarm {mood} {seed}"
    return workload


class Swarm:
    """Draws commands that make sense now and gives them."""

    def __init__(self, run: Run, mood: Mood, random: Random) -> None:
        self.run = run
        self.random = random
        self.topics = ["a", "b", "c"][: random.randint(1, 3)]
        commands: dict[Mood, list[Callable[[], object]]] = {
            Mood.SETTLING: [
                self.ack, self.nack, self.reject, self.detach, self.pass_time, self.bury,
                self.redrive, self.purge, self.retry,
            ],
            Mood.KEEPING: [
                run.roll, run.snapshot, self.fuzzy_snapshot, self.compact, run.free, run.mark,
                self.restart, run.prepare_spare,
            ],
            Mood.CHANGING: [
                self.change_topic, self.delete_topic, self.subscribe, self.unsubscribe,
                self.alter_subscription, self.restart, self.kill, self.pass_time,
            ],
        }  # fmt: skip
        every = [command for group in commands.values() for command in group]
        chosen = random.sample(every, random.randint(6, len(every)))
        own = random.sample(commands[mood], random.randint(3, len(commands[mood])))
        self.commands = [self.publish, self.publish, self.attach, self.ack, *own, *own, *chosen]

    def go(self) -> None:
        run = self.run
        run.open()
        if self.random.random() < 0.3:
            run.create_topic("a", self.random.randint(1, 2), durability=Durability.WRITTEN)
        self.publish()
        self.attach()
        self.publish()
        for _ in range(OPERATIONS):
            self.random.choice(self.commands)()
        run.settle()

    # -- what to do it to ------------------------------------------------------------------------

    def _holder(self) -> Holder | None:
        holders = [holder for holder in self.run.holders if holder.held]
        return self.random.choice(holders) if holders else None

    def _graves(self) -> list[tuple[str, str]]:
        return [
            (name.split(".dead.")[0], name.split(".dead.")[1])
            for name, topic in self.run.history.last.topics.items()
            if ".dead." in name and topic.held
        ]

    def _living(self) -> list[str]:
        return [name for name in self.run.history.last.topics if ".dead." not in name]

    # -- commands --------------------------------------------------------------------------------

    def publish(self) -> None:
        random, topic = self.random, self.random.choice(self.topics)
        home = self.run.history.last.topics.get(topic)
        sizes = random.choices((0, 3, 40, 700, 2000), k=random.choice((1, 1, 2, 4)))
        bodies = [random.randbytes(size) for size in sizes]
        self.run.publish(
            topic, *bodies, partition=random.randrange(len(home.ends)) if home else 0,
            publisher=random.choice((ALICE, BOB)), is_new_epoch=random.random() < 0.1,
            is_committed=random.random() < 0.7,
        )  # fmt: skip

    def retry(self) -> None:
        newest = {}
        for number, batch in enumerate(self.run.history.batches):
            newest[batch.born, batch.partition, batch.publisher] = number
        alive = {topic.born for topic in self.run.history.last.topics.values()}
        numbers = [n for (born, _, _), n in newest.items() if born in alive]
        if numbers:
            self.run.retry(self.random.choice(numbers))

    def attach(self) -> None:
        if len(self.run.holders) < 3:
            topic = self.random.choice(self.topics + [f"{t}.dead.{s}" for t, s in self._graves()])
            name = self.random.choice(("s", "s", "t"))
            self.run.attach(topic, name, POLICY, credit=self.random.choice((1, 2, 1000)))

    def ack(self) -> None:
        holder = self._holder()
        if holder is not None:
            held = sorted(holder.held)
            spots = self.random.sample(held, self.random.randint(1, len(held)))
            partition = spots[0][0]
            offsets = [offset for index, offset in spots if index == partition]
            self.run.ack(
                holder, *offsets, partition=partition, is_committed=self.random.random() < 0.6
            )

    def nack(self, cause: Cause = Cause.NACKED) -> None:
        holder = self._holder()
        if holder is not None:
            partition, offset = self.random.choice(sorted(holder.held))
            delay = self.random.choice((0.0, 3.0, 50.0, None))
            self.run.nack(
                holder, offset, partition=partition, delay_s=delay, cause=cause,
                is_committed=self.random.random() < 0.6,
            )  # fmt: skip

    def reject(self) -> None:
        self.nack(self.random.choice((Cause.REJECTED, Cause.UNSTARTED)))

    def detach(self) -> None:
        if self.run.holders:
            holder = self.random.choice(self.run.holders)
            self.run.detach(holder, is_clean=self.random.random() < 0.5)

    def pass_time(self) -> None:
        self.run.settle()
        self.run.pass_time(self.random.choice((1, 4, 11, 40)))

    def bury(self) -> None:
        self.run.settle()
        self.run.bury_all()

    def redrive(self) -> None:
        for topic, name in self._graves()[:1]:
            if name in self.run.history.last.topics[topic].subs:
                self.run.redrive(topic, name, *self._some_of(f"{topic}.dead.{name}"))

    def purge(self) -> None:
        for topic, name in self._graves()[:1]:
            self.run.purge(topic, name, *self._some_of(f"{topic}.dead.{name}"))

    def _some_of(self, topic: str) -> list[tuple[int, int]]:
        """Dead letters of one partition, chosen by offset."""
        held = sorted(self.run.history.last.topics[topic].held)
        partition = held[0][0]
        return [spot for spot in held if spot[0] == partition][: self.random.randint(1, 2)]

    def change_topic(self) -> None:
        name = self.random.choice(self.topics)
        if name not in self.run.history.last.topics:
            self.run.create_topic(name, self.random.randint(1, 2), retain_s=20.0)
        elif self.run.history.last.topics[name].policy.durability is not Durability.WRITTEN:
            self.run.alter_topic(name, retain_s=self.random.choice((5.0, 60.0)))

    def delete_topic(self) -> None:
        for name in self._living():
            graves = [t for t, _ in self._graves()]
            if name not in graves and all(holder.topic != name for holder in self.run.holders):
                self.run.settle()
                self.run.delete_topic(name)
                return

    def subscribe(self) -> None:
        topic = self.random.choice(self.topics)
        home = self.run.history.last.topics.get(topic)
        if home is None or "u" not in home.subs:
            self.run.settle()
            self.run.subscribe(topic, "u", POLICY, start=self.random.choice(("earliest", "latest")))

    def unsubscribe(self) -> None:
        for topic in self._living():
            for name in self.run.history.last.topics[topic].subs:
                if all((h.topic, h.subscription) != (topic, name) for h in self.run.holders):
                    self.run.settle()
                    self.run.unsubscribe(topic, name)
                    return

    def alter_subscription(self) -> None:
        for topic in self._living():
            for name in list(self.run.history.last.topics[topic].subs)[:1]:
                policy = SubscriptionPolicy(
                    lease_s=self.random.choice((5.0, 30.0)), retry=POLICY.retry
                )
                self.run.alter_subscription(topic, name, policy)

    # -- keeping ---------------------------------------------------------------------------------

    def compact(self) -> None:
        segments = self.run.broker.journal.index.segments
        sealed = [s.sequence for s in segments.values() if s.is_sealed and s.live]
        if sealed:
            self.run.compact(self.random.choice(sealed))

    def fuzzy_snapshot(self) -> None:
        """A snapshot with other commands between its pieces."""
        engine = self.run.broker.engine

        def pieces() -> Iterator[bytes]:
            for piece in rebuild.pieces(engine):
                yield piece
                self.random.choice((self.publish, self.ack, self.nack, self.run.roll))()

        with one_topic_per_piece():
            draft = engine.journal.begin_snapshot(engine.applied_end, engine.applied_records)
            engine.journal.finish_snapshot(draft, pieces())

    def restart(self) -> None:
        self.run.settle()
        self.run.close()
        self.run.open()

    def kill(self) -> None:
        self.run.settle()
        self.run.kill()
        self.run.open()
