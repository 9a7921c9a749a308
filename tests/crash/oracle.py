"""What was confirmed, and whether a recovered broker kept it.

A History has one Model per step. A step is *invoked* when its command is given and *confirmed*
when its answer arrives; `floor` is the newest confirmed step. After a crash the broker must look
exactly like one of the steps from the floor to the last invoked: nothing confirmed is missing,
nothing is there that was never asked for, no operation is there by half.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from penstock.batch import Batch
from penstock.batch.frame import Frame
from penstock.broker.broker import Broker
from penstock.delivery.apply import REJECTED
from penstock.delivery.dedup import Window, hashes
from penstock.delivery.state import Cursor, Partition, Subscription
from penstock.delivery.traits import Traits
from penstock.vocabulary.limits import DEDUP_S
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import OnDuplicate
from penstock.vocabulary.units import UnitWish
from tests.crash.model import GroupView, Item, Model, Spot, SubView, TopicView, View


class Violation(AssertionError):
    """A promise was broken; the text begins with the id of the invariant."""


class Batched(NamedTuple):
    """One publish, to be tried again after a crash."""

    step: int
    topic: str
    born: int
    partition: int
    base: int
    data: bytes
    size: int
    publisher: bytes
    epoch: int
    sequence: int
    places: tuple[int, ...]
    """Where each of its messages lies, whenever it was stored."""
    has_ids: bool


class Committed(NamedTuple):
    """One unit, to be tried again after a crash."""

    step: int
    wish: UnitWish
    places: tuple[int, ...]


class Facts(NamedTuple):
    """What holds at one moment of a workload."""

    floor: int
    ceiling: int
    ends: dict[tuple[int, int], int]
    """(born, partition) of `written` topics → offset after the highest one anybody was told."""
    now: int
    wall: int
    lonely: frozenset[tuple[int, str]]
    """(born, subscription) whose messages may be out alone: such a loss counts as a failure."""
    attempts: dict[tuple[int, str, Spot], int]
    """Attempts on messages that were out when an earlier broker died: each was written first."""

    @property
    def told(self) -> tuple[object, ...]:
        """What an image seen before must be checked for again once it changes."""
        return (*sorted(self.ends.items()), *sorted(self.attempts.items()))


class History:
    """Everything that was asked for and answered so far."""

    def __init__(self) -> None:
        self.steps: list[Model] = [Model()]
        self.views: list[View] = [{}]
        self.floor = 0
        self.ends: dict[tuple[int, int], int] = {}
        self.batches: list[Batched] = []
        self.units: list[Committed] = []
        self.stored: dict[tuple[int, Spot], int] = {}
        """(born, spot) → the step that stored the message."""
        self.subscribed: dict[tuple[int, str], int] = {}
        """(born, subscription) → the step that created it."""
        self.ids: dict[int, set[tuple[int, str]]] = {}
        """born → (partition, given id) of everything that was ever to be stored there."""
        self.lonely: set[tuple[int, str]] = set()
        self.attempts: dict[tuple[int, str, Spot], int] = {}
        self.confirmed_count = 0

    @property
    def last(self) -> Model:
        """The model after the newest step."""
        return self.steps[-1]

    def propose(self, change: Callable[[Model], None]) -> int:
        """A new step, invoked and not yet confirmed."""
        model = self.last.copy()
        change(model)
        self.steps.append(model)
        self.views.append(model.view())
        step = len(self.steps) - 1
        for topic in model.topics.values():
            self.ids.setdefault(topic.born, set()).update(topic.ids)
            for name in topic.subs:
                self.subscribed.setdefault((topic.born, name), step)
            for spot in topic.held:
                self.stored.setdefault((topic.born, spot), step)
        return step

    def confirm(self, step: int) -> None:
        """The answer for this step arrived: it may never be undone."""
        self.floor = max(self.floor, step)
        self.confirmed_count += 1

    def tell(self, born: int, partition: int, end: int) -> None:
        """Somebody knows the offsets below `end`: none of them may be given out again."""
        key = (born, partition)
        self.ends[key] = max(self.ends.get(key, 0), end)

    def delivered(self, topic: str, name: str | None, spot: Spot, item: Item) -> None:
        """A consumer got this message: it must be the one published there, and durable."""
        home = self.last.topics[topic]
        step = self.stored.get((home.born, spot))
        if step is None:
            raise Violation(f"S2 phantom: {topic} {spot} was delivered and never published")
        expected = self.steps[step].topics[topic].held[spot]
        if item != expected:
            raise Violation(f"S8 silent corruption: {topic} {spot} is {item}, was {expected}")
        if name is not None:
            self.floor = max(self.floor, self.subscribed[home.born, name])
            self.floor = max(self.floor, self._open_since(topic, name, step, spot))
        if home.policy.durability is Durability.WRITTEN:
            self.tell(home.born, spot[0], spot[1] + 1)
        else:
            self.floor = max(self.floor, step)

    def _open_since(self, topic: str, name: str, stored: int, spot: Spot) -> int:
        """The first step not yet undone in which this subscription must get the message."""
        if self.floor < stored:
            return 0
        for number in range(self.floor, len(self.steps)):
            home = self.steps[number].topics.get(topic)
            if home is not None and name in home.subs and spot in home.subs[name].unfinished:
                return number
        raise Violation(f"S13 delivered after its confirmed ack: {topic} {spot} to {name}")

    def facts(self, now: int, wall: int) -> Facts:
        """What a crash at this moment must respect."""
        return Facts(
            self.floor,
            len(self.steps) - 1,
            dict(self.ends),
            now,
            wall,
            frozenset(self.lonely),
            dict(self.attempts),
        )


# -- looking at a broker --------------------------------------------------------------------------


def items(frame: Frame) -> Iterator[tuple[int, Item]]:
    """(offset, message) of a frame, its checksum verified."""
    view = Batch(frame.batch)
    for offset, index in zip(frame.offsets, frame.indexes, strict=True):
        key = view.keys[index] if view.keys is not None else None
        yield (
            offset,
            Item(
                view.bodies[index],
                key,
                frame.id_of(view, index),
                frame.published_at_of(view, index),
                view.priorities[index] if view.priorities is not None else 0,
                view.deliver_at[index] if view.deliver_at is not None else 0,
                view.expires_at[index] if view.expires_at is not None else 0,
            ),
        )


def unfinished(cursor: Cursor) -> list[int]:
    """Offsets this cursor still has to hand out or has handed out."""
    end = cursor.partition.next_offset
    return [o for low, high in cursor.done.gaps(cursor.done.floor, end) for o in range(low, high)]


def look(broker: Broker) -> View:
    """What can be seen of a broker: every held message is read back from its disk."""
    view: View = {}
    for shown in broker.topics():
        topic = broker.state.names[shown["topic"]]
        held: dict[Spot, Item] = {}
        for partition, frame in broker.held(topic.name):
            for offset, item in items(frame):
                if (partition, offset) in held:
                    raise Violation(f"S3 {topic.name} {partition}:{offset} is there twice")
                held[partition, offset] = item
                check_traits(topic.partitions[partition], offset, item)
        is_written = topic.policy.durability is Durability.WRITTEN
        view[topic.name] = TopicView(
            topic.policy,
            len(topic.partitions),
            None if is_written else tuple(p.next_offset for p in topic.partitions),
            held,
            {
                (p.index, number): (durable.epoch, durable.last)
                for p in topic.partitions
                for number, known in (p.publishers or {}).items()
                if (durable := known.durable()) is not None
            },
            {
                (p.index, key): tuple(offsets)
                for p in topic.partitions
                if p.keeping is not None
                for key, offsets in p.keeping.newest.items()
            },
            tuple(p.keeping.window if p.keeping else 0 for p in topic.partitions),
        )
    for shown in broker.subscriptions():
        name = (shown["topic"], shown["subscription"])
        if "topics" in shown or "members" in shown:
            view[name] = _look_at_group(broker, shown)
        else:
            view[name] = _look_at_subscription(broker, shown)
    return view


def _look_at_group(broker: Broker, shown: dict[str, Any]) -> GroupView:
    if "topics" in shown:
        policy = broker.state.patterns[shown["topic"], shown["subscription"]].policy
        return GroupView(policy, tuple(sorted(shown["topics"])))
    multicasts = broker.state.names[shown["topic"]].multicasts or {}
    parent = multicasts[shown["subscription"]]
    return GroupView(parent.policy, tuple(sorted(shown["members"])), parent.forgotten)


def _look_at_subscription(broker: Broker, shown: dict[str, Any]) -> SubView:
    topic = broker.state.names[shown["topic"]]
    subscription = (topic.subscriptions or {})[shown["subscription"]]
    waiting = [(c.partition.index, o) for c in subscription.cursors for o in unfinished(c)]
    _check_counts(shown, len(waiting))
    return SubView(
        subscription.policy, frozenset(waiting), shown["attached"], shown["acked"], shown["dead"],
        shown["dropped"], shown["expired"], frozenset(_endings(subscription)),
        _look_at_reader(subscription),
    )  # fmt: skip


def _endings(subscription: Subscription) -> Iterator[tuple[Spot, int]]:
    for cursor in subscription.cursors:
        for start, end, (outcome, *_) in cursor.otherwise.items() if cursor.otherwise else ():
            for offset in range(start, end):
                if offset not in cursor.partition.released:
                    yield (cursor.partition.index, offset), outcome


def _look_at_reader(
    subscription: Subscription,
) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    reader = subscription.reader
    if reader is None or not reader.owner:
        return None
    return reader.owner, tuple(reader.progress), tuple(reader.planned)


def check_traits(partition: Partition, offset: int, item: Item) -> None:
    """What the broker knows of a held message without reading it is what the message says."""
    traits = partition.traits or Traits()
    is_timed = ".dead." not in partition.topic.name
    key = item.key.encode() if isinstance(item.key, str) else item.key
    expected = {
        "hashes": 0 if key is None else xxh3_64_intdigest(key),
        "levels": item.priority,
        "due": item.due if is_timed else 0,
        "expiry": item.expiry if is_timed else 0,
    }
    for name, value in expected.items():
        found = int(traits.column(name, offset, offset + 1)[0])
        if found != value:
            where = f"{partition.topic.name} {partition.index}:{offset}"
            raise Violation(f"S12 {where}: the broker takes its {name} for {found}, not {value}")


def _check_counts(shown: dict[str, Any], waiting: int) -> None:
    """S15, counted again from the set of unfinished messages instead of the broker's sum."""
    where = f"{shown['topic']}/{shown['subscription']}"
    if shown["unexplained"]:
        raise Violation(f"S15 {where}: unexplained = {shown['unexplained']}")
    if waiting != shown["leased"] + shown["waiting"] + shown["delayed"]:
        raise Violation(f"S15 {where}: {waiting} messages are unfinished, counted {shown}")
    closed = shown["acked"] + shown["dead"] + shown["expired"] + shown["dropped"]
    if shown["attached"] != waiting + closed:
        raise Violation(f"S15 {where}: attached is not the sum of the rest: {shown}")
    for name in ("attached", "acked", "leased", "waiting", "delayed", "dead", "expired", "dropped"):
        if shown[name] < 0:
            raise Violation(f"S15 {where}: {name} = {shown[name]}")


# -- comparing ------------------------------------------------------------------------------------


def match(history: History, facts: Facts, broker: Broker, *, is_live: bool = False) -> int:
    """The newest step this broker may be at. Raises Violation when there is none.

    A live broker knows of failures it has not counted yet, and of ids that are not durable yet:
    these are not compared.
    """
    view = look(broker)
    trouble = ""
    for step in range(facts.ceiling, facts.floor - 1, -1):
        if history.views[step] == view:
            trouble = ""
            if not is_live:
                trouble = wrong_ids(history, facts, step, broker)
                trouble = trouble or wrong_trials(history, facts, step, broker)
            if not trouble:
                return step
    if trouble:
        raise Violation(trouble)
    texts = [
        "; ".join(difference(history.views[step], view))
        for step in range(facts.floor, facts.ceiling + 1)
    ]
    raise Violation(
        f"no step from {facts.floor} to {facts.ceiling} looks like this. Compared with step "
        f"{facts.floor}: {texts[0]}. Compared with step {facts.ceiling}: {texts[-1]}"
    )


def difference(expected: View, found: View) -> Iterator[str]:
    """What differs, in words, with the invariant it breaks."""
    for name in expected.keys() - found.keys():
        yield f"S12 {name} is missing"
    for name in found.keys() - expected.keys():
        yield f"S12 {name} was not asked for"
    for name in expected.keys() & found.keys():
        there, here = expected[name], found[name]
        if isinstance(there, TopicView) and isinstance(here, TopicView):
            yield from _topic_difference(str(name), there, here)
        elif isinstance(there, SubView) and isinstance(here, SubView):
            yield from _sub_difference(str(name), there, here)
        elif there != here:
            yield f"S12 {name} is {here} and should be {there}"


def _topic_difference(name: str, there: TopicView, here: TopicView) -> Iterator[str]:
    for spot in sorted(there.held.keys() - here.held.keys()):
        yield f"S1 lost-write: {name} {spot} {there.held[spot]}"
    for spot in sorted(here.held.keys() - there.held.keys()):
        yield f"S2 phantom: {name} {spot} {here.held[spot]}"
    for spot in sorted(there.held.keys() & here.held.keys()):
        if there.held[spot] != here.held[spot]:
            yield f"S3 {name} {spot} is {here.held[spot]} and was {there.held[spot]}"
    if there.ends != here.ends:
        yield f"S3 {name} ends at {here.ends} and should at {there.ends}"
    if there.publishers != here.publishers:
        yield f"S7 {name} knows publishers {here.publishers}, should {there.publishers}"
    if (there.policy, there.partitions) != (here.policy, here.partitions):
        yield f"S12 {name} is {here[:2]} and should be {there[:2]}"
    if there[5:] != here[5:]:
        yield f"S12 {name} keeps {here[5:]} and should keep {there[5:]}"


def _sub_difference(name: str, there: SubView, here: SubView) -> Iterator[str]:
    if missing := there.unfinished - here.unfinished:
        yield f"S1 {name} will never get {sorted(missing)}"
    if again := here.unfinished - there.unfinished:
        yield f"S13 {name} would get again {sorted(again)}"
    if there[2:] != here[2:]:
        order = "attached, acked, dead, dropped, expired, how others ended, reader"
        yield f"S15 {name} counts {here[2:]} and should {there[2:]} ({order})"
    if there.policy != here.policy:
        yield f"S12 {name} has policy {here.policy}, should {there.policy}"


def wrong_ids(history: History, facts: Facts, step: int, broker: Broker) -> str:
    """S7: a given id is known where its message lies, as long as it must be, and no longer."""
    for name, topic in history.steps[step].topics.items():
        if topic.policy.on_duplicate is OnDuplicate.REPLACE:
            continue
        for index, id in history.ids.get(topic.born, ()):
            place, at = topic.ids.get((index, id), (-1, 0))
            seen = broker.state.names[name].partitions[index].seen
            found = int(seen.find(hashes([id]), facts.wall)[0]) if isinstance(seen, Window) else -1
            expected = place if at > facts.wall - DEDUP_S * 1000 else -1
            if found != expected:
                return f"S7 {name} {index}: id {id} is known at {found}, should be at {expected}"
    return ""


def wrong_trials(history: History, facts: Facts, step: int, broker: Broker) -> str:
    """D1 and D2: failures survive; a crash adds at most one, and only to what was out alone."""
    for name, topic in history.steps[step].topics.items():
        for sub_name, sub in topic.subs.items():
            subscription = (broker.state.names[name].subscriptions or {})[sub_name]
            for spot, count in sub.unfinished.items():
                trial = subscription.cursors[spot[0]].trial(spot[1])
                counted = trial.counted
                if trial.attempt < facts.attempts.get((topic.born, sub_name, spot), 0):
                    return f"D2 {name}/{sub_name} {spot} was out, attempt {trial.attempt} is old"
                spare = (topic.born, sub_name) in facts.lonely
                if not min(count, REJECTED) <= counted <= count + spare:
                    return f"D1 {name}/{sub_name} {spot} failed {count} times, known {counted}"
                if is_hopeless(subscription, counted) != is_doomed(subscription, spot):
                    return f"D3 {name}/{sub_name} {spot} failed {counted} times: doomed or not"
    return ""


def is_hopeless(subscription: Subscription, counted: int) -> bool:
    """True when the contract sends the message to the dead letters."""
    limit = subscription.policy.retry.max_attempts
    is_dead_topic = ".dead." in subscription.topic.name
    return not is_dead_topic and (counted >= REJECTED or (limit is not None and counted >= limit))


def is_doomed(subscription: Subscription, spot: Spot) -> bool:
    """True when the broker is about to move the message."""
    doomed = subscription.cursors[spot[0]].doomed
    return doomed is not None and spot[1] in doomed
