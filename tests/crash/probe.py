"""What a recovered broker must still be able to do: serve, recognise retries, go on counting."""

from collections import Counter
from functools import partial
from typing import Any

from penstock.batch import encode_one
from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT
from penstock.delivery.state import Consumer
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import PublisherFenced, ReaderFenced
from penstock.vocabulary.message import Kind
from penstock.vocabulary.stored import Stored
from tests.crash.given import Hand
from tests.crash.model import Item, Model, Spot
from tests.crash.oracle import Batched, Facts, History, Violation, is_hopeless, items
from tests.crash.publishing import check_answer
from tests.crash.uniting import EVERYBODY, check_unit

PROBER = b"\x01" + bytes(14) + b"\x99"
LATER_MS = 3_600_000


def probe(broker: Broker, history: History, step: int, facts: Facts) -> None:
    """Retries, publishes and drains. `step` is what the broker looks like."""
    model = history.steps[step]
    _read(broker, model)
    _retry(broker, history, step)
    _retry_units(broker, history, step)
    fresh = _publish(broker, model, facts)
    clock = broker.engine.clock
    assert isinstance(clock, Hand)
    clock.advance(LATER_MS)
    hopeless = _hopeless(broker)
    _bury(broker, model, hopeless)
    _drain(broker, model, fresh, hopeless)


def settle(broker: Broker) -> None:
    """Does all work that waits."""
    engine = broker.engine
    while engine.run_jobs() or engine.commit_once():
        pass


# -- publishing -----------------------------------------------------------------------------------


def _retry(broker: Broker, history: History, step: int) -> None:
    """S7: the newest batch of each publisher, sent again, is recognised; an older epoch is over."""
    for batch in history.batches:
        home = history.steps[step].topics.get(batch.topic)
        if home is None or home.born != batch.born or batch.step > step:
            continue
        epoch, last = home.publishers.get((batch.partition, batch.publisher), (-1, -1))
        if batch.epoch < epoch:
            _expect_fenced(broker, batch)
        elif (batch.epoch, batch.sequence + batch.size - 1) == (epoch, last):
            check_answer(batch, _send(broker, batch), is_duplicate=True)


def _retry_units(broker: Broker, history: History, step: int) -> None:
    """A unit sent again gets its first outcome, before its acks are looked at."""
    for unit in history.units:
        if unit.step <= step:
            answers: list[Any] = []
            broker.commit_unit(unit.wish, [], DIRECT, answers.append)
            settle(broker)
            check_unit(unit, answers[0])


def _send(broker: Broker, batch: Batched) -> Any:
    answers: list[Any] = []
    broker.publish(
        batch.topic, batch.partition, batch.data, batch.size, batch.publisher, batch.epoch,
        batch.sequence, DIRECT, answers.append,
    )  # fmt: skip
    settle(broker)
    return answers[0]


def _expect_fenced(broker: Broker, batch: Batched) -> None:
    try:
        answer = _send(broker, batch)
    except PublisherFenced:
        return
    raise Violation(f"S7 an old epoch of {batch[:5]} was answered with {answer}")


def _message(partition: int) -> bytes:
    """One with an id of its own: growth makes partitions ask each other for ids."""
    return encode_one(f"probe {partition}".encode(), id=f"probe {partition}")


def _publish(broker: Broker, model: Model, facts: Facts) -> dict[str, list[tuple[Spot, Item]]]:
    """S3: a new message gets an offset nobody was ever told."""
    fresh: dict[str, list[tuple[Spot, Item]]] = {}
    answered: dict[tuple[str, int], Any] = {}
    for name, topic in model.topics.items():
        if ".dead." in name:
            continue
        for partition in range(len(topic.ends)):
            broker.publish(
                name, partition, _message(partition), 1, PROBER,
                0, 0, DIRECT, partial(answered.__setitem__, (name, partition)),
            )  # fmt: skip
    settle(broker)
    for (name, partition), answer in answered.items():
        topic = model.topics[name]
        if not isinstance(answer, Stored) or answer.base is None:
            raise Violation(f"a publish after recovery was answered with {answer}")
        told = max(facts.ends.get((topic.born, partition), 0), topic.ends[partition])
        if answer.base < told:
            raise Violation(f"S3 {name} {partition}:{answer.base} is given out a second time")
        text = f"probe {partition}"
        item = Item(text.encode(), None, text, broker.engine.clock.wall())
        fresh.setdefault(name, []).append(((partition, answer.base), item))
    return fresh


# -- reading --------------------------------------------------------------------------------------


def _read(broker: Broker, model: Model) -> None:
    """A reader gets exactly what it holds, and former owners get nothing."""
    for topic, home in model.topics.items():
        for name, sub in home.subs.items():
            if sub.plan is None:
                continue
            found: dict[Spot, Item] = {}
            for partition, start in enumerate(sub.plan.progress):
                at, end = start, home.ends[partition]
                while at < end:
                    frames, at = broker.read_range(
                        topic, name, sub.plan.owner, partition, at, end, 1 << 30
                    )
                    for frame in frames:
                        found.update({(partition, o): item for o, item in items(frame)})
            expected = {spot: home.held[spot] for spot in sub.unfinished}
            if found != expected:
                raise Violation(f"S1 reader {topic}/{name} read {found}, should {expected}")
            for owner in sub.plan.retired:
                _expect_reader_fenced(broker, topic, name, owner)


def _expect_reader_fenced(broker: Broker, topic: str, name: str, owner: str) -> None:
    try:
        broker.open_reader(topic, name, owner, None)
    except ReaderFenced:
        return
    raise Violation(f"S7 {owner} opened reader {topic}/{name}, from which it was fenced")


# -- delivering -----------------------------------------------------------------------------------


def _hopeless(broker: Broker) -> dict[tuple[str, str], set[Spot]]:
    found: dict[tuple[str, str], set[Spot]] = {}
    for subscription in broker.state.subscriptions.values():
        spots = found.setdefault((subscription.topic.name, subscription.name), set())
        for cursor in subscription.cursors:
            for start, end, _ in cursor.trials.items() if cursor.trials else ():
                spots.update(
                    (cursor.partition.index, offset)
                    for offset in range(start, end)
                    if offset not in cursor.done
                    and is_hopeless(subscription, cursor.trial(offset).counted)
                )
    return found


def _bury(broker: Broker, model: Model, hopeless: dict[tuple[str, str], set[Spot]]) -> None:
    """D3, D4: the doomed are in the dead-letter topic once, and no longer in the source."""
    before = {name: len(topic.held) for name, topic in model.topics.items()}
    while broker.keeper.move_doomed():
        pass
    for (topic, name), spots in hopeless.items():
        if not spots:
            continue
        grave = f"{topic}.dead.{name}"
        there = Counter(item for _, frame in broker.held(grave) for _, item in items(frame))
        grown = sum(there.values()) - before.get(grave, 0)
        held = model.topics[topic].held
        missing = [spot for spot in spots if not there[held[spot]._replace(due=0, expiry=0)]]
        if grown != len(spots) or missing:
            raise Violation(f"D3 {topic}/{name}: {spots} doomed, {grave} has {there}")


class Drainer:
    """A consumer that acks whatever it gets."""

    def __init__(self, broker: Broker, topic: str, name: str) -> None:
        self.broker = broker
        self.got: Counter[tuple[Spot, Item]] = Counter()
        self.claims: list[Claim] = []
        sink = Sink(DIRECT, self._take, lambda _: None)
        subscription, _, member = name.partition("@")
        self.consumer: Consumer = broker.attach(
            topic, subscription, EVERYBODY if member else None, None, 1000, 1 << 26,
            member or "probe", sink, is_named=bool(member), is_leg=True,
        )  # fmt: skip

    def _take(self, piece: Slice) -> None:
        found = [row for frame in piece.frames for row in items(frame)]
        ranges = tuple((offset, offset + 1) for offset, _ in found)
        self.claims.append(Claim(piece.lease_id, piece.partition, piece.attempt, ranges))
        for offset, item in found:
            self.got[(piece.partition, offset), item] += 1

    def ack(self) -> bool:
        claims, self.claims = self.claims, []
        if claims:
            refused = self.broker.ack(self.consumer, claims)
            if refused:
                raise Violation(f"an ack under a lease was refused: {refused}")
        return bool(claims)


def _check_order(broker: Broker, topic: str, name: str, got: list[tuple[Spot, Item]]) -> None:
    """Kind `key_shared`: a key comes in order, except messages with a time of their own."""
    subscription = (broker.state.names[topic].subscriptions or {})[name]
    if subscription.policy.kind is Kind.KEY_SHARED:
        rows = [(spot, item.key) for spot, item in got if item.key is not None and not item.due]
        wrong = [
            (spot, other)
            for at, (spot, key) in enumerate(rows)
            for other, same in rows[at + 1 :]
            if key == same and other[0] == spot[0] and other[1] < spot[1]
        ]
        if wrong:
            raise Violation(f"{topic}/{name}: a key came out of order: {wrong}")


def _drain(
    broker: Broker, model: Model, fresh: dict[str, list[tuple[Spot, Item]]],
    hopeless: dict[tuple[str, str], set[Spot]],
) -> None:  # fmt: skip
    """Every unfinished message is delivered, once, as it was published; nothing else is."""
    drainers: dict[tuple[str, str], Drainer] = {}
    for topic, home in model.topics.items():
        for name, sub in home.subs.items():
            if sub.policy.kind is not Kind.READER:
                drainers[topic, name] = Drainer(broker, topic, name)
    broker.tick()
    settle(broker)
    while sum(drainer.ack() for drainer in drainers.values()):
        settle(broker)
    for (topic, name), drainer in drainers.items():
        home = model.topics[topic]
        wall = broker.engine.clock.wall()
        expected = Counter(
            (spot, home.held[spot])
            for spot in home.subs[name].unfinished
            if spot not in hopeless.get((topic, name), ())
            and not 0 < home.held[spot].expiry <= wall
        )
        expected.update(fresh.get(topic, []))
        _check_order(broker, topic, name, list(drainer.got))
        # By now much is too old, or too much, where the topic has such limits.
        is_limited = home.policy.max_age_s is not None or home.policy.max_bytes is not None
        if drainer.got != expected and not (is_limited and drainer.got <= expected):
            raise Violation(
                f"S13 {topic}/{name} delivered wrongly: missing {expected - drainer.got}, "
                f"too much {drainer.got - expected}"
            )
    for shown in broker.subscriptions():
        if shown["kind"] == Kind.READER:
            continue
        left = {k: shown[k] for k in ("leased", "waiting", "delayed", "unexplained") if shown[k]}
        if left and (shown["topic"], shown["subscription"]) in drainers:
            raise Violation(f"S15 {shown['topic']}/{shown['subscription']}: {left} after draining")
