"""What a recovered broker must still be able to do: serve, recognise retries, go on counting."""

from collections import Counter
from functools import partial
from typing import Any

from penstock.batch import encode_one
from penstock.batch.frame import Slice
from penstock.broker.broker import Broker, Sink, Stored
from penstock.broker.mailbox import DIRECT
from penstock.delivery.state import Consumer
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import PublisherFenced
from tests.crash.given import Hand
from tests.crash.model import Item, Model, Spot
from tests.crash.oracle import Batched, Facts, History, Violation, is_hopeless, items

PROBER = b"\x01" + bytes(14) + b"\x99"
LATER_MS = 3_600_000


def probe(broker: Broker, history: History, step: int, facts: Facts) -> None:
    """Retries, publishes and drains. `step` is what the broker looks like."""
    model = history.steps[step]
    _retry(broker, history, step)
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
    newest = {(b.born, b.partition, b.publisher): b for b in history.batches if b.step <= step}
    for batch in history.batches:
        home = history.steps[step].topics.get(batch.topic)
        current = newest.get((batch.born, batch.partition, batch.publisher))
        if home is None or home.born != batch.born or current is None or batch.step > step:
            continue
        if batch.epoch < current.epoch:
            _expect_fenced(broker, batch)
        elif batch is current:
            answer = _send(broker, batch)
            is_known = isinstance(answer, Stored) and answer.is_duplicate
            if not is_known or answer.base != batch.base:
                raise Violation(f"S7 duplicate: a retry of {batch[:5]} was answered with {answer}")


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


def _publish(broker: Broker, model: Model, facts: Facts) -> dict[str, list[tuple[Spot, Item]]]:
    """S3: a new message gets an offset nobody was ever told."""
    fresh: dict[str, list[tuple[Spot, Item]]] = {}
    answered: dict[tuple[str, int], Any] = {}
    for name, topic in model.topics.items():
        if ".dead." in name:
            continue
        for partition in range(len(topic.ends)):
            broker.publish(
                name, partition, encode_one(f"probe {partition}".encode(), id="probe"), 1, PROBER,
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
        item = Item(f"probe {partition}".encode(), None, "probe", broker.engine.clock.wall())
        fresh.setdefault(name, []).append(((partition, answer.base), item))
    return fresh


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
        missing = [spot for spot in spots if not there[model.topics[topic].held[spot]]]
        if grown != len(spots) or missing:
            raise Violation(f"D3 {topic}/{name}: {spots} doomed, {grave} has {there}")


class Drainer:
    """A consumer that acks whatever it gets."""

    def __init__(self, broker: Broker, topic: str, name: str) -> None:
        self.broker = broker
        self.got: Counter[tuple[Spot, Item]] = Counter()
        self.claims: list[Claim] = []
        sink = Sink(DIRECT, self._take, lambda _: None)
        self.consumer: Consumer = broker.attach(
            topic, name, None, None, 1000, 1 << 26, "probe", sink
        )

    def _take(self, piece: Slice) -> None:
        self.claims.append(
            Claim(piece.lease_id, piece.partition, piece.attempt, ((piece.start, piece.end),))
        )
        for frame in piece.frames:
            for offset, item in items(frame):
                self.got[(piece.partition, offset), item] += 1

    def ack(self) -> bool:
        claims, self.claims = self.claims, []
        if claims:
            refused = self.broker.ack(self.consumer, claims)
            if refused:
                raise Violation(f"an ack under a lease was refused: {refused}")
        return bool(claims)


def _drain(
    broker: Broker, model: Model, fresh: dict[str, list[tuple[Spot, Item]]],
    hopeless: dict[tuple[str, str], set[Spot]],
) -> None:  # fmt: skip
    """Every unfinished message is delivered, once, as it was published; nothing else is."""
    drainers: dict[tuple[str, str], Drainer] = {}
    for topic, home in model.topics.items():
        for name in home.subs:
            drainers[topic, name] = Drainer(broker, topic, name)
    broker.tick()
    settle(broker)
    while sum(drainer.ack() for drainer in drainers.values()):
        settle(broker)
    for (topic, name), drainer in drainers.items():
        home = model.topics[topic]
        expected = Counter(
            (spot, home.held[spot])
            for spot in home.subs[name].unfinished
            if spot not in hopeless.get((topic, name), ())
        )
        expected.update(fresh.get(topic, []))
        if drainer.got != expected:
            raise Violation(
                f"S13 {topic}/{name} delivered wrongly: missing {expected - drainer.got}, "
                f"too much {drainer.got - expected}"
            )
    for shown in broker.subscriptions():
        left = {k: shown[k] for k in ("leased", "waiting", "delayed", "unexplained") if shown[k]}
        if left and (shown["topic"], shown["subscription"]) in drainers:
            raise Violation(f"S15 {shown['topic']}/{shown['subscription']}: {left} after draining")
