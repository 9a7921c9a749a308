"""Workloads drawn from a seed that dwell on ids, order and times of messages, or on places."""

from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Any

from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy
from tests.crash.enumeration import Workload
from tests.crash.given import ALICE, BOB
from tests.crash.run import Run
from tests.crash.swarm import POLICY, Mood, Swarm

KEYED = SubscriptionPolicy(
    kind=Kind.KEY_SHARED, lease_s=10.0, retry=Retry(first_s=2.0, max_s=8.0, max_attempts=2)
)
KEPT: tuple[dict[str, Any], ...] = (
    {"replay_s": 20.0}, {"keep_last": 1}, {"replay_s": 20.0, "keep_last": 2, "retain_s": 5.0},
    {"max_age_s": 30.0}, {"max_age_s": 40.0, "replay_s": 10.0}, {},
)  # fmt: skip


class Feature(StrEnum):
    """What a swarm dwells on."""

    GIVEN = "given"
    ORDERING = "ordering"
    MOVING = "moving"


def feature_swarm(feature: Feature, seed: int, operations: int = 9) -> Workload:
    """The workload of this seed."""
    kinds = {Feature.GIVEN: Given, Feature.ORDERING: Ordering, Feature.MOVING: Places}

    def workload(run: Run) -> None:
        kinds[feature](run, Random(f"{feature} {seed}")).go(operations)

    workload.__name__ = f"swarm {feature} {seed}"
    return workload


class Features(Swarm):
    """A swarm on one topic whose policy is drawn."""

    policy = POLICY

    def __init__(self, run: Run, random: Random) -> None:
        super().__init__(run, Mood.SETTLING, random)
        self.topics = ["a"]
        own = self.own()
        shared: list[Callable[[], object]] = [
            self.nack, self.pass_time, self.restart, self.kill, run.snapshot, self.fuzzy_snapshot,
            run.roll, self.compact, run.free, self.detach,
        ]  # fmt: skip
        chosen = random.sample(shared, random.randint(3, len(shared)))
        self.commands = [self.publish, self.attach, self.ack, *own, *own, *chosen]

    def own(self) -> list[Callable[[], object]]:
        """What this swarm does most of."""
        raise NotImplementedError

    def begin(self) -> None:
        """Makes the topic."""

    def go(self, operations: int = 9) -> None:
        self.run.is_watched = False
        self.run.open()
        self.begin()
        self.publish()
        self.attach()
        self.run.is_watched = True
        for _ in range(operations):
            self.random.choice(self.commands)()
        self.run.settle()

    def attach(self) -> None:
        if len(self.run.holders) < 2:
            name = self.random.choice(("s", "s", "t"))
            self.run.attach("a", name, self.policy, credit=self.random.choice((1, 2, 1000)))


class Given(Features):
    """Ids from a small set, dropped or replaced."""

    def own(self) -> list[Callable[[], object]]:
        return [self.publish, self.twice, self.retry, self.dead_and_back, self.unit]

    def begin(self) -> None:
        self.run.create_topic("a", on_duplicate=self.random.choice([*OnDuplicate]))

    def publish(self, *, is_committed: bool = True) -> None:
        self.run.settle()
        count = self.random.choice((1, 2, 3))
        ids = self.random.choices(("x", "y", "z", None), k=count)
        if not any(ids):
            ids[0] = "x"
        self.run.publish(
            "a", *(self.random.randbytes(3) for _ in ids), ids=ids, is_committed=is_committed,
            publisher=self.random.choice((ALICE, BOB)),
        )  # fmt: skip

    def twice(self) -> None:
        """The second batch is decided while the first is in flight."""
        self.publish(is_committed=False)
        ids = self.random.choices(("x", "y"), k=2)
        self.run.publish("a", b"again", b"too", ids=ids, publisher=BOB)

    def unit(self) -> None:
        """Acks something and publishes, here and elsewhere, as one."""
        self.run.settle()
        holder = self._holder()
        acks = [] if holder is None else [(holder, [self.random.choice(sorted(holder.held))[1]])]
        ids = self.random.choices(("x", "y", None), k=self.random.choice((1, 2)))
        publishes = [(self.random.choice("ab"), self.random.randbytes(2), id) for id in ids]
        self.run.unit(publishes, acks, is_committed=self.random.random() < 0.6)

    def dead_and_back(self) -> None:
        """Rejects something, buries what is doomed, and sends some of it back."""
        self.reject()
        self.bury()
        if self.random.random() < 0.5:
            self.redrive()


class Ordering(Features):
    """Priorities, keys, delays and expiry, on subscriptions of two kinds."""

    def __init__(self, run: Run, random: Random) -> None:
        super().__init__(run, random)
        self.policy = random.choice((KEYED, KEYED, POLICY))
        self.has_times = random.random() < 0.5

    def own(self) -> list[Callable[[], object]]:
        return [self.publish, self.ack, self.nack, self.ack_many]

    def publish(self) -> None:
        random = self.random
        count = random.choice((1, 3, 6))
        options: dict[str, Any] = {}
        if self.has_times:
            options["delay_s"] = random.choice((None, None, 3.0, 30.0))
            options["ttl_s"] = random.choice((None, 5.0, 60.0))
        self.run.publish(
            "a", *(random.randbytes(2) for _ in range(count)),
            key=random.choices(("k", "l", None), k=count),
            priority=random.choices((0, 0, 5), k=count), publisher=random.choice((ALICE, BOB)),
            **options,
        )  # fmt: skip

    def ack_many(self) -> None:
        """Every second message of one lease, in one claim."""
        holder = self._holder()
        if holder is None:
            return
        token = self.random.choice(list(holder.held.values()))
        spots = sorted(spot for spot, each in holder.held.items() if each == token)[::2]
        offsets = [offset for _, offset in spots]
        self.run.ack_scattered(holder, *offsets, partition=spots[0][0])


class Places(Features):
    """Seeks, readers, and topics that keep and remove by rules of their own."""

    def own(self) -> list[Callable[[], object]]:
        return [self.publish, self.seek, self.seek, self.read, self.pass_time]

    def begin(self) -> None:
        self.run.create_topic("a", **self.random.choice(KEPT))

    def publish(self) -> None:
        count = self.random.choice((1, 2, 3))
        self.run.publish(
            "a", *(self.random.randbytes(2) for _ in range(count)),
            key=self.random.choices(("k", "l", None), k=count),
            is_committed=self.random.random() < 0.7,
        )  # fmt: skip

    def seek(self) -> None:
        home = self.run.history.last.topics["a"]
        names = [n for n, sub in home.subs.items() if sub.policy.kind is Kind.SHARED]
        if not names:
            return
        self.run.settle()
        held = sorted(offset for _, offset in self.run.history.last.topics["a"].held)
        to = self.random.choice(("earliest", "latest", *(f"0:{offset}" for offset in held)))
        is_committed = self.random.random() < 0.7
        self.run.seek("a", self.random.choice(names), to, is_committed=is_committed)

    def read(self) -> None:
        """The next thing a reader would do."""
        run = self.run
        run.settle()
        sub = run.history.last.topics["a"].subs.get("r")
        if sub is None or sub.plan is None:
            run.open_reader("a", "r", "run-0")
            return
        number = len(sub.plan.retired)
        choice = self.random.random()
        low, high = sub.plan.progress[0], sub.plan.planned[0]
        if choice < 0.15:
            run.open_reader("a", "r", f"run-{number + 1}")
        elif choice < 0.25:
            run.release_reader("a", "r")
        elif choice < 0.6 and low < high:
            run.commit_reader("a", "r", self.random.randint(low + 1, high))
        else:
            run.plan("a", "r", self.random.randint(1, 3))
