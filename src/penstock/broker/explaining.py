"""Finds the message that is meant, on disk if need be, and asks `delivery` why it does not move."""

from collections.abc import Iterator
from typing import Any

from penstock.batch import Batch
from penstock.broker.looking import Looking
from penstock.delivery import admin, explain
from penstock.delivery.dead import MARK
from penstock.delivery.explain import Case
from penstock.delivery.explain_consumer import Finding, explain_consumer, nothing_waits
from penstock.delivery.retention import NEVER, due_at
from penstock.delivery.state import Cursor, Subscription, Topic
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument

Place = tuple[int, int]
"""Partition and offset."""
PLACES_MAX = 100
"""So many places of one id are looked at."""


class Explaining:
    """One question to one broker."""

    def __init__(self, broker: Looking, topic_name: str) -> None:
        self.broker = broker
        self.engine = broker.engine
        with self.engine.lock:
            self.topic: Topic = admin.find_topic(broker.state, topic_name)

    def answer(
        self, subscription: str | None, position: str | None, id: str | None,
        key: bytes | str | None, consumer: str | None,
    ) -> Finding:  # fmt: skip
        """Why something does not move. Raises UnknownSubscription, InvalidArgument."""
        if sum(each is not None for each in (position, id, key)) > 1:
            raise InvalidArgument("name the message by one of position, id and key, not by several")
        with self.engine.lock:
            if subscription is not None:
                chosen = [admin.find_subscription(self.topic, subscription)]
            else:
                durable = self.topic.durable_subscriptions()
                chosen = sorted(durable, key=lambda each: each.name)
        places = self._places(position, id, key)
        if not chosen:
            return self._uncovered(places)
        found = [self._of(each, places, id, key, consumer) for each in chosen]
        if len(found) == 1:
            return found[0]
        worst = next((f for f in found if f["reason"] not in _CALM), found[0])
        return {**worst, "subscriptions": found}

    # -- which message ---------------------------------------------------------------------------

    def _places(
        self, position: str | None, id: str | None, key: bytes | str | None
    ) -> list[Place] | None:
        """Where the message may lie; None when no message is named."""
        if position is not None:
            partition, _, offset = position.partition(":")
            if not (partition.isdigit() and offset.isdigit()):
                raise InvalidArgument(f"position {position!r} is not one like '0:17'")
            if int(partition) >= len(self.topic.partitions):
                raise InvalidArgument(f"topic {self.topic.name!r} has no partition {partition}")
            return [(int(partition), int(offset))]
        if id is not None:
            return [place for place, row in self._held(self.topic.name) if row["id"] == id]
        if key is not None:
            wanted = _bytes(key)
            return [place for place, row in self._held(self.topic.name) if row["key"] == wanted]
        return None

    def _held(self, topic_name: str) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Every held message of a topic with id, key and headers."""
        for partition, frame in self.broker.held(topic_name):
            view = Batch(frame.batch, verify=False)
            for offset, index in zip(frame.offsets, frame.indexes, strict=True):
                key = view.keys[index] if view.keys is not None else None
                headers = view.headers[index] if view.headers is not None else None
                row = {
                    "id": frame.id_of(view, index),
                    "key": None if key is None else _bytes(key),
                    "headers": headers or {},
                }
                yield (partition, offset), row

    def _find_dead(
        self, subscription: Subscription, place: Place | None, id: str | None
    ) -> tuple[Place, str] | None:
        """Where a dead letter came from and lies: by the place it came from, or by its id."""
        name = names.dead_topic(self.topic.name, subscription.name)
        if name not in self.broker.state.names:
            return None
        for (partition, offset), row in self._held(name):
            headers = row["headers"]
            try:
                origin = int(headers[MARK + "partition"]), int(headers[MARK + "offset"])
            except (KeyError, ValueError):
                continue
            if origin == place or (place is None and row["id"] == id):
                return origin, f"{partition}:{offset}"
        return None

    # -- what is to be said of it ----------------------------------------------------------------

    def _of(
        self, subscription: Subscription, places: list[Place] | None, id: str | None,
        key: bytes | str | None, consumer: str | None,
    ) -> Finding:  # fmt: skip
        with self.engine.lock:
            if subscription.is_pending:
                return {
                    "reason": "settling",
                    "text": "the subscription is being written down; ask again in a moment",
                    "topic": self.topic.name,
                    "subscription": subscription.name,
                }
            if consumer is not None and places is None:
                return explain_consumer(subscription, consumer)
        if places is None:
            return self._of_all(subscription)
        found = self._of_message(subscription, places, id, key)
        if consumer is not None:
            with self.engine.lock:
                found["asked"] = explain_consumer(subscription, consumer)
        return found

    def _of_message(
        self, subscription: Subscription, places: list[Place], id: str | None,
        key: bytes | str | None,
    ) -> Finding:  # fmt: skip
        dead_at = None
        place = self._choose(subscription, places)
        if key is not None and (place is None or self._is_done(subscription, place)):
            with self.engine.lock:
                text = f"no unfinished message has the key {key!r}: nothing of it can be stuck"
                return nothing_waits(subscription, text)
        if place is None:
            gone = self._find_dead(subscription, None, id)
            if gone is None:
                return {
                    "reason": "not-held",
                    "text": f"no held message has the id {id!r}: it was never published here, or "
                    "every subscription finished it and it was removed",
                    "topic": self.topic.name,
                    "subscription": subscription.name,
                    "id": id,
                }
            place, dead_at = gone
        elif self._is_done(subscription, place) and self._cursor(subscription, place).dead:
            gone = self._find_dead(subscription, place, None)
            dead_at = None if gone is None else gone[1]
        found = self._explain(subscription, place, dead_at)
        if len(places) > 1:
            found["positions"] = [f"{p}:{offset}" for p, offset in places[:PLACES_MAX]]
        return found

    def _of_all(self, subscription: Subscription) -> Finding:
        with self.engine.lock:
            oldest = [
                (cursor.partition.index, offset)
                for cursor, offset in explain.oldest_unfinished(subscription)
            ]
            if not oldest:
                text = "every message is finished: publish something"
                return nothing_waits(subscription, text)
        found = [self._explain(subscription, place, None) for place in oldest]
        worst = next((f for f in found if f["reason"] not in _CALM), found[0])
        return worst if len(found) == 1 else {**worst, "partitions": found}

    def _uncovered(self, places: list[Place] | None) -> Finding:
        """There is no durable subscription that could hand it out."""
        found: Finding = {
            "reason": "no-subscription",
            "text": f"topic {self.topic.name!r} has no durable subscription: create one; messages "
            "are kept for the retain_s of the topic until then",
            "topic": self.topic.name,
        }
        with self.engine.lock:
            until = [due_at(p) for p in self.topic.partitions if p.retained]
        if until and min(until) < NEVER:
            found["until"] = min(until) / 1000
        if places:
            found["position"] = f"{places[0][0]}:{places[0][1]}"
        return found

    def _explain(self, subscription: Subscription, place: Place, dead_at: str | None) -> Finding:
        with self.engine.lock:
            clock, cursor = self.engine.clock, self._cursor(subscription, place)
            blocked = self.broker.keeper.state.blocked
            case = Case(cursor, place[1], clock.now(), clock.wall(), dead_at, blocked)
            return explain.explain_message(case)

    @staticmethod
    def _cursor(subscription: Subscription, place: Place) -> Cursor:
        return subscription.cursors[place[0]]

    def _is_done(self, subscription: Subscription, place: Place) -> bool:
        with self.engine.lock:
            return place[1] in self._cursor(subscription, place).done

    def _choose(self, subscription: Subscription, places: list[Place]) -> Place | None:
        """The first that is not finished, else the first."""
        with self.engine.lock:
            for place in places:
                if place[1] not in self._cursor(subscription, place).done:
                    return place
        return places[0] if places else None


_CALM = explain.DONE_REASONS | {"nothing-waits", "ready", "settling", "unsynced"}
"""Of several answers, one of another kind comes first."""


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key


def explain_topic(
    broker: Looking, topic: str, subscription: str | None = None, *, position: str | None = None,
    id: str | None = None, key: bytes | str | None = None, consumer: str | None = None,
) -> Finding:  # fmt: skip
    """Why something of a topic does not move; by id and by key, all held messages are looked at."""
    return Explaining(broker, topic).answer(subscription, position, id, key, consumer)
