"""Committing a unit: decided under one lock, durable as one record, answered once."""

from collections.abc import Callable
from typing import Any

from penstock.broker.administration import Administration
from penstock.broker.engine import Engine
from penstock.broker.mailbox import DIRECT, Mailbox, Target
from penstock.delivery import units
from penstock.delivery.growth import stale_map
from penstock.delivery.publish import InFlight
from penstock.delivery.state import Partition, Topic
from penstock.delivery.units import Claims, Places
from penstock.vocabulary.message import Durability
from penstock.vocabulary.stored import Stored
from penstock.vocabulary.units import Part, UnitWish


class Committing:
    """One unit on its way. Calling it decides; it calls itself again while a first try flies."""

    def __init__(
        self, engine: Engine, wish: UnitWish, claims: Claims, mailbox: Mailbox, target: Target, *,
        find_topic: Callable[[str], Topic], durability: Durability,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._wish = wish
        self._claims = claims
        self._mailbox = mailbox
        self._target = target
        self._find_topic = find_topic
        self._durability = durability

    def __call__(self) -> None:
        """Decides and submits. Raises when nothing of the unit will be stored."""
        engine, wish = self._engine, self._wish
        with engine.lock:
            engine.check_alive()
            found = units.first_outcome(engine.state, wish)
            if found is None:
                units.check_size(wish.parts, self._claims)
                found = self._decide()
            if isinstance(found, InFlight):
                engine.after_pending((DIRECT, self._again, None))
            elif found is not None:
                answer = self._answer(found, is_retry=True)
                engine.after_pending((self._mailbox, self._target, answer))

    def _decide(self) -> InFlight | None:
        engine, wish = self._engine, self._wish
        partitions = [self._partition_of(part) for part in wish.parts]
        wall = engine.clock.wall()
        decision = units.decide_unit(engine.state, wish, partitions, self._claims, wall)
        if isinstance(decision, InFlight):
            return decision
        unit, places = decision
        answer = self._answer(places, is_retry=False)
        engine.submit(unit, (self._mailbox, self._target, answer))
        for consumer, _ in self._claims:
            if consumer.free > 0:
                engine.dispatch_with_group(consumer.subscription)
        return None

    def _partition_of(self, part: Part) -> Partition:
        topic = self._find_topic(part.topic)
        if part.partitions and part.partitions != len(topic.map):
            # Unlike a batch alone: what is stored of a unit is known by the number of the unit.
            raise stale_map(topic)
        return units.partition_of(topic.map, part)

    def _answer(self, places: Places, *, is_retry: bool) -> list[Stored]:
        return [
            Stored(base, self._durability, is_retry or is_duplicate, kept, known)
            for base, is_duplicate, kept, known in places
        ]

    def _again(self, answer: Any) -> None:
        try:
            if not isinstance(answer, BaseException):
                self()
                return
        except Exception as error:  # noqa: BLE001 - the waiter gets whatever went wrong
            answer = error
        self._mailbox.post([(self._target, answer)])


class Units(Administration):
    """The part of a Broker that commits units."""

    _levels: dict[Durability, Durability]
    _check_publish: Callable[[], None]
    _topic_to_publish: Callable[[str], Topic]

    def commit_unit(self, wish: UnitWish, claims: Claims, mailbox: Mailbox, target: Target) -> None:
        """Commits publishes and acks as one; the target gets a list, one for each batch.

        Raises AckRefused, UnitTooLarge, StaleMap and what `publish` raises: nothing is stored then.
        """

        def find_topic(name: str) -> Topic:
            if self.engine.is_blocked:
                self._check_publish()
            topic = self.state.names.get(name)
            if topic is None or topic.is_removing or topic.policy.dead_of:
                topic = self._topic_to_publish(name)
            return topic

        Committing(
            self.engine, wish, claims, mailbox, target, find_topic=find_topic,
            durability=self._levels[Durability.SYNCED],
        )()  # fmt: skip
