"""The broker as a few dictionaries: what each operation means, without bytes, leases or files.

Written from the contract, not from the code under test. A History holds one Model per step of
a workload; a recovered broker must look like one of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.packing import partition_of
from penstock.vocabulary.filters import matches
from penstock.vocabulary.limits import DEDUP_S
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import OnDuplicate, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Outcome

Spot = tuple[int, int]
"""Partition and offset."""


class Item(NamedTuple):
    """A message as a reader must see it for ever, wherever it is moved to."""

    body: bytes | None
    key: bytes | str | None
    id: str
    published_at: int
    priority: int = 0
    due: int = 0
    expiry: int = 0


class Plan(NamedTuple):
    """What a reader was told."""

    owner: str
    retired: tuple[str, ...]
    progress: tuple[int, ...]
    planned: tuple[int, ...]


@dataclass
class Sub:
    """A durable subscription: what it still has to get, and how often each failed."""

    policy: SubscriptionPolicy
    unfinished: dict[Spot, int] = field(default_factory=dict)
    attached: int = 0
    acked: int = 0
    dead: int = 0
    dropped: int = 0
    expired: int = 0
    begins: list[int] = field(default_factory=list)
    """Nothing below was ever attached, partition by partition."""
    endings: dict[Spot, Outcome] = field(default_factory=dict)
    """How messages ended, where it was not by an ack."""
    plan: Plan | None = None

    def copy(self) -> "Sub":
        return Sub(
            self.policy, dict(self.unfinished), self.attached, self.acked, self.dead, self.dropped,
            self.expired, list(self.begins), dict(self.endings), self.plan,
        )  # fmt: skip

    def end(self, spot: Spot, outcome: Outcome) -> None:
        """This message is finished."""
        del self.unfinished[spot]
        if outcome is Outcome.ACKED:
            self.acked += 1
        else:
            self.endings[spot] = outcome
            self._count(outcome, 1)

    def reopen(self, spot: Spot) -> None:
        """A finished message that is still held comes again: it leaves the count it ended in."""
        self.unfinished[spot] = 0
        outcome = self.endings.pop(spot, Outcome.ACKED)
        is_new = spot[1] < self.begins[spot[0]] or (outcome is Outcome.DEAD and not self.dead)
        if is_new:
            self.attached += 1
        elif outcome is Outcome.ACKED:
            self.acked -= 1
        else:
            self._count(outcome, -1)

    def _count(self, outcome: Outcome, count: int) -> None:
        if outcome is Outcome.DEAD:
            self.dead += count
        elif outcome is Outcome.EXPIRED:
            self.expired += count
        else:
            self.dropped += count


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
    ids: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    """(partition, given id) → (offset, publish time) of the newest message that has it."""
    aimed: set[Spot] = field(default_factory=set)
    """Sent to one subscription only."""
    newest: dict[tuple[int, bytes | None], tuple[int, ...]] = field(default_factory=dict)
    """(partition, key) → offsets that `keep_last` keeps, oldest first."""
    windows: list[int] = field(default_factory=list)
    """Where the replay window begins."""
    times: dict[Spot, int] = field(default_factory=dict)
    """Publish times of all messages there ever were."""
    origins: dict[Spot, int] = field(default_factory=dict)
    """Of dead letters: the partition each came from."""
    multicasts: dict[str, tuple[SubscriptionPolicy, int]] = field(default_factory=dict)
    """Name → its policy, and what was dropped with members that stayed away."""
    growths: list[tuple[int, ...]] = field(default_factory=list)
    """Where its partitions ended each time it got more."""

    def copy(self) -> "Topic":
        subs = {name: sub.copy() for name, sub in self.subs.items()}
        return Topic(
            self.born, self.policy, list(self.ends), dict(self.held), set(self.retained), subs,
            dict(self.publishers), dict(self.ids), set(self.aimed), dict(self.newest),
            list(self.windows), dict(self.times), dict(self.origins),
            dict(self.multicasts), list(self.growths),
        )  # fmt: skip

    def is_at_home(self, spot: Spot, key: bytes | str | None, id: str | None) -> bool:
        """True when an older map had a message of this key, or id, in this partition."""
        homes = ((partition_of(key, id, len(ends), 0), ends) for ends in self.growths)
        return any(spot[0] == home and spot[1] < ends[home] for home, ends in homes)

    def era(self, spot: Spot) -> int:
        """How often it had got more partitions when this message came."""
        return sum(spot[0] >= len(ends) or spot[1] >= ends[spot[0]] for ends in self.growths)

    def release(self, spots: Iterable[Spot], *, is_forced: bool = False) -> None:
        """What nobody waits for any more, and no policy keeps, is gone."""
        for spot in spots:
            is_free = is_forced or not self._is_kept(spot)
            if (
                is_free
                and spot not in self.retained
                and not any(spot in sub.unfinished for sub in self.subs.values())
                and self.held.pop(spot, None) is not None
            ):
                self.aimed.discard(spot)
                self._forget_newest(spot)

    def _is_kept(self, spot: Spot) -> bool:
        if self.policy.replay_s > 0 and spot[1] >= self.windows[spot[0]]:
            return True
        return any(
            partition == spot[0] and spot[1] in offsets
            for (partition, _), offsets in self.newest.items()
        )

    def _forget_newest(self, spot: Spot) -> None:
        for name, offsets in list(self.newest.items()):
            if name[0] == spot[0] and spot[1] in offsets:
                self.newest[name] = tuple(each for each in offsets if each != spot[1])
                if not self.newest[name]:
                    del self.newest[name]

    def note_newest(self, spot: Spot, key: bytes | str | None) -> list[Spot]:
        """The newest of its key; returns what is no longer kept for it."""
        name = (spot[0], key.encode() if isinstance(key, str) else key)
        offsets = (*self.newest.get(name, ()), spot[1])
        kept = offsets[-self.policy.keep_last :]
        self.newest[name] = kept
        former = [(spot[0], offset) for offset in offsets if offset not in kept]
        return former if key is None else former + self._trim_moved(spot[0], name[1], key)

    def _trim_moved(self, partition: int, name: bytes | None, key: bytes | str) -> list[Spot]:
        rows = [
            (each, offset)
            for (each, other), offsets in self.newest.items()
            for offset in offsets
            if other == name
            and (each == partition or self.is_at_home((each, offset), key, None))
        ]  # fmt: skip
        rows.sort(key=lambda spot: (self.era(spot), spot))
        former = rows[: -self.policy.keep_last]
        for spot in former:
            self._forget_newest(spot)
        return former

    def earliest(self) -> tuple[int, ...]:
        """The first held offset of each partition, or its end."""
        return tuple(
            min((offset for partition, offset in self.held if partition == index), default=end)
            for index, end in enumerate(self.ends)
        )

    def planned(self) -> set[Spot]:
        """What readers have planned to read: nothing may remove it."""
        return {
            (partition, offset)
            for sub in self.subs.values()
            if sub.plan is not None
            for partition, (low, high) in enumerate(
                zip(sub.plan.progress, sub.plan.planned, strict=True)
            )
            for offset in range(low, high)
        }


class TopicView(NamedTuple):
    """What can be seen of a topic."""

    policy: TopicPolicy
    partitions: int
    ends: tuple[int, ...] | None
    """None for a topic of durability `written`, which may skip offsets."""
    held: dict[Spot, Item]
    publishers: dict[tuple[int, bytes], tuple[int, int]]
    newest: dict[tuple[int, bytes | None], tuple[int, ...]]
    windows: tuple[int, ...]


class SubView(NamedTuple):
    """What can be seen of a subscription."""

    policy: SubscriptionPolicy
    unfinished: frozenset[Spot]
    attached: int
    acked: int
    dead: int
    dropped: int
    expired: int
    endings: frozenset[tuple[Spot, int]]
    """How messages ended that are still held, where it was not by an ack."""
    reader: tuple[str, tuple[int, ...], tuple[int, ...]] | None
    """Owner, progress and planned ends."""


class GroupView(NamedTuple):
    """What can be seen of a pattern or a multicast, besides its subscriptions."""

    policy: SubscriptionPolicy
    parts: tuple[str, ...]
    """Topics of a pattern, members of a multicast."""
    forgotten: int = 0


View = dict[str | tuple[str, str], TopicView | SubView | GroupView]


class Model:
    """All topics by name."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.patterns: dict[tuple[str, str], SubscriptionPolicy] = {}
        self.births = 0

    def copy(self) -> "Model":
        twin = Model()
        twin.births = self.births
        twin.patterns = dict(self.patterns)
        twin.topics = {name: topic.copy() for name, topic in self.topics.items()}
        return twin

    # -- topics and subscriptions ----------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, policy: TopicPolicy) -> None:
        self.births += 1
        zeros = [0] * partitions
        self.topics[name] = Topic(self.births, policy, list(zeros), windows=list(zeros))
        for (pattern, sub), wanted in self.patterns.items():
            if matches(pattern, name):
                self.create_sub(name, sub, wanted, tuple(zeros))

    def create_pattern(self, pattern: str, name: str, policy: SubscriptionPolicy) -> None:
        """A subscription on each topic that matches, and on those to come."""
        self.patterns[pattern, name] = policy
        for topic, home in self.topics.items():
            if matches(pattern, topic):
                self.create_sub(topic, name, policy, home.earliest())

    def delete_pattern(self, pattern: str, name: str) -> None:
        del self.patterns[pattern, name]
        for topic in self.topics:
            if matches(pattern, topic):
                self.delete_sub(topic, name)

    def join(self, topic: str, name: str, member: str, policy: SubscriptionPolicy) -> None:
        """A multicast and its member, from the latest on."""
        home = self.topics[topic]
        home.multicasts.setdefault(name, (policy, 0))
        self.create_sub(topic, member, policy, tuple(home.ends))

    def forget_member(self, topic: str, name: str, member: str) -> None:
        """Its backlog is dropped, and counted at the multicast."""
        home = self.topics[topic]
        policy, forgotten = home.multicasts[name]
        home.multicasts[name] = (policy, forgotten + len(home.subs[member].unfinished))
        self.delete_sub(topic, member)

    def alter_topic(self, name: str, policy: TopicPolicy) -> None:
        """A rule that is over keeps nothing any more."""
        home = self.topics[name]
        home.policy = policy
        if policy.replay_s <= 0:
            home.windows = [0] * len(home.ends)
        keep = policy.keep_last
        home.newest = {key: kept[-keep:] for key, kept in home.newest.items() if keep}
        home.release(list(home.held))

    def grow_topic(self, name: str, partitions: int) -> None:
        """More partitions, all of them empty; who subscribed gets what comes there."""
        home = self.topics[name]
        fresh = [0] * (partitions - len(home.ends))
        home.growths.append(tuple(home.ends))
        home.ends.extend(fresh)
        home.windows.extend(fresh)
        for sub in home.subs.values():
            sub.begins.extend(fresh)

    def delete_topic(self, name: str) -> None:
        del self.topics[name]

    def create_sub(
        self, topic: str, name: str, policy: SubscriptionPolicy, starts: tuple[int, ...]
    ) -> None:
        """Takes over everything held from `starts` on that was not sent to another alone."""
        home = self.topics[topic]
        above = [spot for spot in home.held if spot[1] >= starts[spot[0]]]
        home.retained.difference_update(above)
        covered = [spot for spot in above if spot not in home.aimed]
        home.subs[name] = Sub(policy, dict.fromkeys(covered, 0), len(covered), begins=list(starts))

    def delete_sub(self, topic: str, name: str) -> None:
        home = self.topics[topic]
        home.release(home.subs.pop(name).unfinished)

    # -- messages --------------------------------------------------------------------------------

    def publish(
        self, topic: str, partition: int, items: list[Item], given: Sequence[str | None], *,
        publisher: bytes, epoch: int, last: int, out: Iterable[tuple[str, Spot]] = (),
    ) -> list[int]:  # fmt: skip
        """Stores what is new; returns where each message lies. `out`: what consumers hold."""
        home = self.topics[topic]
        is_replacing = home.policy.on_duplicate is OnDuplicate.REPLACE
        places: list[int] = []
        is_stored = False
        for item, id in zip(items, given, strict=True):
            place, at = home.ids.get((partition, id or ""), (0, -DEDUP_S * 1000.0))
            is_known = id is not None and at > item.published_at - DEDUP_S * 1000
            if is_known and not is_replacing:
                places.append(place)
                continue
            if id is not None and is_replacing:
                self._replace(home, partition, id, item.key, set(out))
            _, place = self._store(home, partition, item, list(home.subs))
            places.append(place)
            is_stored = True
            if id is not None:
                home.ids[partition, id] = (place, item.published_at)
        if is_stored:
            home.publishers[partition, publisher] = (epoch, last)
        return places

    @staticmethod
    def _replace(
        home: Topic, partition: int, id: str, key: bytes | str | None, out: set[tuple[str, Spot]]
    ) -> None:
        """Older messages with this id that wait are dropped; readers see them all the same."""
        for spot, item in list(home.held.items()):
            is_here = spot[0] == partition or home.is_at_home(spot, key, id)
            if is_here and item.id == id:
                for name, sub in home.subs.items():
                    limit = sub.policy.retry.max_attempts
                    is_free = spot in sub.unfinished and (name, spot) not in out
                    is_doomed = limit is not None and sub.unfinished.get(spot, 0) >= limit
                    if is_free and not is_doomed and sub.policy.kind is not Kind.READER:
                        sub.end(spot, Outcome.REPLACED)
                home.release([spot])

    @staticmethod
    def _store(home: Topic, partition: int, item: Item, subs: list[str]) -> Spot:
        spot = (partition, home.ends[partition])
        home.ends[partition] += 1
        home.held[spot] = item
        home.times[spot] = item.published_at
        former = home.note_newest(spot, item.key) if home.policy.keep_last else []
        for name in subs:
            home.subs[name].unfinished[spot] = 0
            home.subs[name].attached += 1
        if not subs:
            home.retained.add(spot)
            if home.policy.retain_s is not None and home.policy.retain_s <= 0:
                home.retained.discard(spot)
                home.release([spot])
        home.release(former)
        return spot

    def finish(self, topic: str, name: str, spots: Iterable[Spot]) -> None:
        """Acked: this subscription never sees them again."""
        self._end(topic, name, spots, Outcome.ACKED)

    def expire(self, topic: str, name: str, spots: Iterable[Spot]) -> None:
        """Their time was over before anybody took them."""
        self._end(topic, name, spots, Outcome.EXPIRED)

    def _end(self, topic: str, name: str, spots: Iterable[Spot], outcome: Outcome) -> None:
        home = self.topics[topic]
        sub = home.subs[name]
        for spot in spots:
            if spot in sub.unfinished:
                sub.end(spot, outcome)
                home.release([spot])

    def fail(self, topic: str, name: str, spots: Iterable[Spot], count: int = 1) -> None:
        """A delivery failed in a way that counts."""
        sub = self.topics[topic].subs[name]
        for spot in spots:
            if spot in sub.unfinished:
                sub.unfinished[spot] += count

    def seek(self, topic: str, name: str, places: Sequence[int | None]) -> None:
        """What lies below is dropped, what is held above comes again, failures are forgotten."""
        home = self.topics[topic]
        sub = home.subs[name]
        for partition, place in enumerate(places):
            if place is None:
                continue
            for spot in [s for s in sub.unfinished if s[0] == partition]:
                sub.unfinished[spot] = 0
                if spot[1] < place:
                    sub.end(spot, Outcome.DROPPED)
                    home.release([spot])
            for spot in [s for s in home.held if s[0] == partition and s[1] >= place]:
                if spot not in sub.unfinished and spot not in home.aimed:
                    sub.reopen(spot)
                home.retained.discard(spot)
            sub.begins[partition] = min(sub.begins[partition], place)

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
            item = home.held[spot]._replace(due=0, expiry=0)
            there.origins[self._store(there, 0, item, list(there.subs))] = spot[0]
            sub.end(spot, Outcome.DEAD)
            home.release([spot])

    def redrive(self, topic: str, name: str, spots: list[Spot], wall: int) -> None:
        """In one step from the dead-letter topic back to its subscription, and only there."""
        home, there = self.topics[topic], self.topics[f"{topic}.dead.{name}"]
        sub = home.subs[name]
        for spot in spots:
            fresh = (there.origins[spot], home.ends[there.origins[spot]])
            home.ends[fresh[0]] += 1
            home.held[fresh] = there.held[spot]
            home.times[fresh] = wall
            home.aimed.add(fresh)
            sub.unfinished[fresh] = 0
            if sub.dead:
                sub.dead -= 1
            else:
                sub.attached += 1
        self._remove(there, spots)

    def remove(self, topic: str, spots: Iterable[Spot]) -> None:
        """Purge, age and size: gone whatever subscriptions say."""
        self._remove(self.topics[topic], spots)

    @staticmethod
    def _remove(home: Topic, spots: Iterable[Spot]) -> None:
        for spot in spots:
            for sub in home.subs.values():
                if sub.unfinished.pop(spot, None) is not None:
                    sub.dropped += 1
            home.retained.discard(spot)
            home.release([spot], is_forced=True)

    def outlive(self, topic: str, partition: int, spots: Iterable[Spot], window: int) -> None:
        """The time of some messages is over, and the replay window begins later."""
        home = self.topics[topic]
        for spot in spots:
            home.retained.discard(spot)
        home.windows[partition] = max(home.windows[partition], window)
        home.release([spot for spot in list(home.held) if spot[0] == partition])

    # -- readers ---------------------------------------------------------------------------------

    def open_reader(self, topic: str, name: str, owner: str) -> None:
        """A new owner; the one before is fenced."""
        sub = self.topics[topic].subs[name]
        if sub.plan is None:
            starts = tuple(sub.begins)
            sub.plan = Plan(owner, (), starts, starts)
        elif owner != sub.plan.owner:
            retired = (*sub.plan.retired, sub.plan.owner)
            sub.plan = sub.plan._replace(owner=owner, retired=retired)

    def move_reader(
        self, topic: str, name: str, progress: dict[int, int], planned: dict[int, int]
    ) -> None:
        """Further planned, or further done: what lies below is finished."""
        sub = self.topics[topic].subs[name]
        assert sub.plan is not None
        ends = tuple(planned.get(i, end) for i, end in enumerate(sub.plan.planned))
        done = tuple(progress.get(i, end) for i, end in enumerate(sub.plan.progress))
        sub.plan = sub.plan._replace(progress=done, planned=ends)
        self.finish(topic, name, [s for s in list(sub.unfinished) if s[1] < done[s[0]]])

    # -- what can be seen ------------------------------------------------------------------------

    def view(self) -> View:
        """The part of the model a broker can be compared with."""
        view: View = {
            key: GroupView(policy, tuple(sorted(t for t in self.topics if matches(key[0], t))))
            for key, policy in self.patterns.items()
        }
        for name, topic in self.topics.items():
            is_written = topic.policy.durability is Durability.WRITTEN
            view[name] = TopicView(
                topic.policy,
                len(topic.ends),
                None if is_written else tuple(topic.ends),
                topic.held,
                topic.publishers,
                topic.newest,
                tuple(topic.windows),
            )
            for parent, (policy, forgotten) in topic.multicasts.items():
                members = tuple(sorted(s for s in topic.subs if s.startswith(f"{parent}@")))
                view[name, parent] = GroupView(policy, members, forgotten)
            for sub_name, sub in topic.subs.items():
                view[name, sub_name] = SubView(
                    sub.policy, frozenset(sub.unfinished), sub.attached,
                    sub.acked, sub.dead, sub.dropped, sub.expired,
                    frozenset((s, int(o)) for s, o in sub.endings.items() if s in topic.held),
                    sub.plan and (sub.plan.owner, sub.plan.progress, sub.plan.planned),
                )  # fmt: skip
        return view
