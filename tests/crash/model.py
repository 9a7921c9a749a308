"""The broker as a few dictionaries: what each operation means, without bytes, leases or files.

Written from the contract, not from the code under test. A History holds one Model per step of
a workload; a recovered broker must look like one of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

Spot = tuple[int, int]
"""Partition and offset."""


class Item(NamedTuple):
    """A message as a reader must see it for ever, wherever it is moved to."""

    body: bytes | None
    key: bytes | str | None
    id: str
    published_at: int


@dataclass
class Sub:
    """A durable subscription: what it still has to get, and how often each failed."""

    policy: SubscriptionPolicy
    unfinished: dict[Spot, int] = field(default_factory=dict)
    attached: int = 0
    acked: int = 0
    dead: int = 0
    dropped: int = 0

    def copy(self) -> "Sub":
        return Sub(
            self.policy, dict(self.unfinished), self.attached, self.acked, self.dead, self.dropped
        )


@dataclass
class Topic:
    """A topic. `born` tells two topics of one name apart."""

    born: int
    policy: TopicPolicy
    ends: list[int]
    held: dict[Spot, Item] = field(default_factory=dict)
    retained: set[Spot] = field(default_factory=set)
    subs: dict[str, Sub] = field(default_factory=dict)
    publishers: dict[tuple[int, bytes], tuple[int, int]] = field(default_factory=dict)
    """(partition, publisher) → (epoch, last sequence)."""
    origins: dict[Spot, int] = field(default_factory=dict)
    """Of dead letters: the partition each came from."""

    def copy(self) -> "Topic":
        subs = {name: sub.copy() for name, sub in self.subs.items()}
        return Topic(
            self.born, self.policy, list(self.ends), dict(self.held), set(self.retained), subs,
            dict(self.publishers), dict(self.origins),
        )  # fmt: skip

    def release(self, spots: Iterable[Spot]) -> None:
        """What nobody waits for any more is gone."""
        for spot in spots:
            if spot not in self.retained and not any(
                spot in sub.unfinished for sub in self.subs.values()
            ):
                self.held.pop(spot, None)


class TopicView(NamedTuple):
    """What can be seen of a topic."""

    policy: TopicPolicy
    partitions: int
    ends: tuple[int, ...] | None
    """None for a topic of durability `written`, which may skip offsets."""
    held: dict[Spot, Item]
    publishers: dict[tuple[int, bytes], tuple[int, int]]


class SubView(NamedTuple):
    """What can be seen of a subscription."""

    policy: SubscriptionPolicy
    unfinished: frozenset[Spot]
    attached: int
    acked: int
    dead: int
    dropped: int


View = dict[str | tuple[str, str], TopicView | SubView]


class Model:
    """All topics by name."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.births = 0

    def copy(self) -> "Model":
        twin = Model()
        twin.births = self.births
        twin.topics = {name: topic.copy() for name, topic in self.topics.items()}
        return twin

    # -- topics and subscriptions ----------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, policy: TopicPolicy) -> None:
        self.births += 1
        self.topics[name] = Topic(self.births, policy, [0] * partitions)

    def grow_topic(self, name: str, partitions: int) -> None:
        """More partitions, all of them empty; who subscribed gets what comes there."""
        ends = self.topics[name].ends
        ends.extend([0] * (partitions - len(ends)))

    def delete_topic(self, name: str) -> None:
        del self.topics[name]

    def create_sub(
        self, topic: str, name: str, policy: SubscriptionPolicy, starts: tuple[int, ...]
    ) -> None:
        """Takes over everything held from `starts` on."""
        home = self.topics[topic]
        covered = [spot for spot in home.held if spot[1] >= starts[spot[0]]]
        home.retained.difference_update(covered)
        home.subs[name] = Sub(policy, dict.fromkeys(covered, 0), len(covered))

    def delete_sub(self, topic: str, name: str) -> None:
        home = self.topics[topic]
        home.release(home.subs.pop(name).unfinished)

    # -- messages --------------------------------------------------------------------------------

    def publish(
        self, topic: str, partition: int, items: list[Item], *, publisher: bytes, epoch: int,
        last: int,
    ) -> None:  # fmt: skip
        home = self.topics[topic]
        for item in items:
            self._store(home, partition, item, list(home.subs))
        home.publishers[partition, publisher] = (epoch, last)

    @staticmethod
    def _store(home: Topic, partition: int, item: Item, subs: list[str]) -> Spot:
        spot = (partition, home.ends[partition])
        home.ends[partition] += 1
        home.held[spot] = item
        for name in subs:
            home.subs[name].unfinished[spot] = 0
            home.subs[name].attached += 1
        if not subs:
            home.retained.add(spot)
            if home.policy.retain_s is not None and home.policy.retain_s <= 0:
                home.retained.discard(spot)
                del home.held[spot]
        return spot

    def finish(self, topic: str, name: str, spots: Iterable[Spot]) -> None:
        """Acked: this subscription never sees them again."""
        home = self.topics[topic]
        sub = home.subs[name]
        for spot in spots:
            if spot in sub.unfinished:
                del sub.unfinished[spot]
                sub.acked += 1
                home.release([spot])

    def fail(self, topic: str, name: str, spots: Iterable[Spot], count: int = 1) -> None:
        """A delivery failed in a way that counts."""
        sub = self.topics[topic].subs[name]
        for spot in spots:
            if spot in sub.unfinished:
                sub.unfinished[spot] += count

    def bury(self, topic: str, name: str, spots: list[Spot]) -> None:
        """In one step from the subscription to its dead-letter topic."""
        home = self.topics[topic]
        sub = home.subs[name]
        grave = f"{topic}.dead.{name}"
        if grave not in self.topics:
            policy = TopicPolicy(retain_s=None, dead_of=f"{topic}\n{name}")
            self.create_topic(grave, 1, policy)
        there = self.topics[grave]
        for spot in spots:
            fresh = self._store(there, 0, home.held[spot], list(there.subs))
            there.origins[fresh] = spot[0]
            del sub.unfinished[spot]
            sub.dead += 1
            home.release([spot])

    def redrive(self, topic: str, name: str, spots: list[Spot]) -> None:
        """In one step from the dead-letter topic back to its subscription, and only there."""
        home, there = self.topics[topic], self.topics[f"{topic}.dead.{name}"]
        for spot in spots:
            item = there.held[spot]
            origin = there.origins[spot]
            fresh = (origin, home.ends[origin])
            home.ends[fresh[0]] += 1
            home.held[fresh] = item
            home.subs[name].unfinished[fresh] = 0
            home.subs[name].dead -= 1
        self._remove(there, spots)

    def remove(self, topic: str, spots: Iterable[Spot]) -> None:
        """Purge and retention: gone whatever subscriptions say."""
        self._remove(self.topics[topic], spots)

    @staticmethod
    def _remove(home: Topic, spots: Iterable[Spot]) -> None:
        for spot in spots:
            for sub in home.subs.values():
                if sub.unfinished.pop(spot, None) is not None:
                    sub.dropped += 1
            home.retained.discard(spot)
            home.release([spot])

    # -- what can be seen ------------------------------------------------------------------------

    def view(self) -> View:
        """The part of the model a broker can be compared with."""
        view: View = {}
        for name, topic in self.topics.items():
            is_written = topic.policy.durability is Durability.WRITTEN
            view[name] = TopicView(
                topic.policy,
                len(topic.ends),
                None if is_written else tuple(topic.ends),
                topic.held,
                topic.publishers,
            )
            for sub_name, sub in topic.subs.items():
                view[name, sub_name] = SubView(
                    sub.policy, frozenset(sub.unfinished), sub.attached,
                    sub.acked, sub.dead, sub.dropped,
                )  # fmt: skip
        return view
