"""Finds the message that is meant, on disk if need be, and asks `delivery` why it does not move."""

from collections.abc import Iterator
from typing import Any

from penstock.batch import Batch
from penstock.broker.looking import Looking
from penstock.broker.wall import alert
from penstock.delivery import admin, explain
from penstock.delivery.dead import MARK
from penstock.delivery.explain_case import Case, Finding
from penstock.delivery.explain_consumer import explain_consumer, nothing_waits
from penstock.delivery.explain_keys import first_for
from penstock.delivery.explain_kinds import ask_member, is_in_unit, topic_full
from penstock.delivery.matching import pattern_of, topics_of
from penstock.delivery.members import listed, members_of
from penstock.delivery.retention import due_at
from penstock.delivery.state import Cursor, Subscription, Topic
from penstock.delivery.traits import NEVER
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, UnknownSubscription
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.message import Kind

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
                # A multicast is answered by its members, when it has any; else it comes last.
                chosen = [s for s in listed(self.topic) if not (s.is_parent and members_of(s))]
                chosen.sort(key=lambda each: each.is_parent)
            full = topic_full(self.topic)
        places = self._places(position, id, key)
        if not chosen:
            return self._uncovered(places)
        found = [self._of(each, places, id, key, consumer) for each in chosen]
        if full is not None and places is None and consumer is None:
            return {**full, "subscriptions": found}
        return _worst(found, "subscriptions")

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
        if subscription.is_parent:
            return self._of_parent(subscription, places, id, key, consumer)
        if consumer is not None and places is None:
            return self._of_consumer(subscription, consumer)
        if places is None:
            return self._of_all(subscription)
        found = self._of_message(subscription, places, id, key)
        if consumer is not None:
            found["asked"] = self._of_consumer(subscription, consumer)
        return found

    def _of_parent(
        self, parent: Subscription, places: list[Place] | None, id: str | None,
        key: bytes | str | None, consumer: str | None,
    ) -> Finding:  # fmt: skip
        """A multicast: each member has an answer of its own."""
        with self.engine.lock:
            found = sorted(members_of(parent), key=lambda each: each.name)
            if consumer is not None:
                found = [m for m in found if any(c.name == consumer for c in m.consumers or ())]
                if not found:
                    return explain_consumer(parent, consumer, self.engine.clock.wall())
            else:
                found = [each for each in found if each.is_durable]
            answer = ask_member(parent)
        rows = [self._of(each, places, id, key, consumer) for each in found]
        return {**answer, "members": rows} if rows else answer

    def _of_consumer(self, subscription: Subscription, consumer: str) -> Finding:
        """Why a consumer gets nothing; where it holds keys, the first message it should get."""
        with self.engine.lock:
            wall = self.engine.clock.wall()
            found = explain_consumer(subscription, consumer, wall)
            if found["reason"] != "ready" or subscription.policy.kind is not Kind.KEY_SHARED:
                return found
            first = first_for(subscription, consumer, wall)
            if first is None:
                return found | {
                    "reason": "nothing-waits",
                    "text": f"no message waits whose key is with consumer {consumer!r}: what waits "
                    "is for others",
                }
            cursor, offset = first
            return found | self._explain(subscription, (cursor.partition.index, offset), None)

    def _of_message(
        self, subscription: Subscription, places: list[Place], id: str | None,
        key: bytes | str | None,
    ) -> Finding:  # fmt: skip
        dead_at = None
        place = self._choose(subscription, places)
        if key is not None and (place is None or self._is_done(subscription, place)):
            with self.engine.lock:
                text = f"no unfinished message has the key {key!r}: nothing of it can be stuck"
                return nothing_waits(subscription, text, self.engine.clock.wall())
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
                return nothing_waits(subscription, text, self.engine.clock.wall())
        return _worst([self._explain(subscription, place, None) for place in oldest], "partitions")

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
            time, wall = self.engine.retaining.time, self.engine.clock.wall()
        if until and min(until) < NEVER:
            found["until"] = min(until) / 1000
            if time.is_paused and min(until) <= wall:
                found["reason"], found["text"] = "time-paused", alert(time.jumped_ms)
        if places:
            found["position"] = f"{places[0][0]}:{places[0][1]}"
        return found

    def _explain(self, subscription: Subscription, place: Place, dead_at: str | None) -> Finding:
        with self.engine.lock:
            clock, cursor = self.engine.clock, self._cursor(subscription, place)
            state, name = self.broker.state, subscription.name.partition(names.MEMBER_MARK)[0]
            whole = pattern_of(state, self.topic.name, name) if state.patterns else None
            case = Case(
                cursor, place[1], clock.now(), clock.wall(), dead_at,
                blocked=self.broker.keeper.blocked_of(cursor),
                jumped_ms=self.engine.retaining.time.jumped_ms,
                pattern="" if whole is None else whole.pattern,
                is_in_unit=is_in_unit(state, cursor, place[1]),
            )  # fmt: skip
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


_CALM = explain.DONE_REASONS | {"no-member", "nothing-waits", "ready", "settling", "unsynced"}
"""Of several answers, one of another kind comes first."""


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _worst(found: list[Finding], name: str) -> Finding:
    """Of several answers one that asks for something, and all of them under `name`."""
    worst = next((f for f in found if f["reason"] not in _CALM), found[0])
    return worst if len(found) == 1 else {**worst, name: found}


def explain_topic(
    broker: Looking, topic: str, subscription: str | None = None, *, position: str | None = None,
    id: str | None = None, key: bytes | str | None = None, consumer: str | None = None,
) -> Finding:  # fmt: skip
    """Why something of a topic, or of the topics of a pattern, does not move.

    By id and by key, all held messages are looked at.
    """
    if not is_pattern(topic):
        return Explaining(broker, topic).answer(subscription, position, id, key, consumer)
    if position is not None:
        raise InvalidArgument(
            f"{topic!r} is a pattern, and position {position!r} is one in a single topic: name it"
        )
    with broker.engine.lock:
        chosen = [
            each.name
            for each in broker.state.patterns.values()
            if each.pattern == topic and subscription in {None, each.name}
        ]
        topics = [each.name for each in topics_of(broker.state, topic)]
    if not chosen:
        raise UnknownSubscription(
            f"no subscription {subscription or ''!r} is over the pattern {topic!r}; ask for a topic"
        )
    if not topics:
        return {
            "reason": "no-topic",
            "text": f"no topic matches the pattern {topic!r} yet: publish to one",
            "pattern": topic,
        }
    rows = [
        Explaining(broker, each).answer(name, None, id, key, consumer)
        for each in topics
        for name in chosen
    ]
    return _worst(rows, "topics")
