"""What MQTT itself cannot tell, in retained messages below `$penstock/`, mirrored by every client.

    $penstock/topic/TOPIC                      settings of a topic that has some
    $penstock/subscription/FILTER/NAME         a durable subscription and its policy
    $penstock/session/CLIENT-ID                which subscription a lasting session belongs to
    $penstock/consumer/CLIENT-ID               who consumes at this moment; its will removes it

Names are escaped, so that each is one level. A broker that refuses such topics leaves every client
with what it knows itself. Pure but for the `write` it is given.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from penstock.drivers.foreign.naming import escape, unescape
from penstock.drivers.mqtt.topics import OWN, covers, filter_of
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.names import is_dead_topic
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

log = logging.getLogger("penstock.drivers")

ALL: Final = f"{OWN}/#"
T = TypeVar("T", bound=msgspec.Struct)


class TopicNote(msgspec.Struct):
    """A topic with settings of its own."""

    policy: TopicPolicy
    created_at: float = 0.0


class SubscriptionNote(msgspec.Struct):
    """A durable subscription."""

    policy: SubscriptionPolicy


class SessionNote(msgspec.Struct):
    """A lasting session, or a consumer."""

    topic: str
    subscription: str
    consumer: str = ""


_KINDS: Final[dict[str, type[Any]]] = {
    "topic": TopicNote,
    "subscription": SubscriptionNote,
    "session": SessionNote,
    "consumer": SessionNote,
}


class Notes:
    """The mirror of one client."""

    def __init__(self, write: Callable[[str, bytes], Awaitable[None]]) -> None:
        self._write = write
        self._kept: dict[tuple[str, ...], Any] = {}
        self._told: set[tuple[str, ...]] | None = None

    def arrived(self, topic: str, body: bytes) -> None:
        """Somebody wrote or removed a note."""
        own, _, rest = topic.partition("/")
        kind, *names = rest.split("/")
        if own != OWN or kind not in _KINDS:
            return
        try:
            key = (kind, *map(unescape, names))
            self._mark(key)
            if body:
                self._kept[key] = msgspec.json.decode(body, type=_KINDS[kind])
            else:
                self._kept.pop(key, None)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("the note %s on the broker makes no sense: %s", topic, error)

    def begin(self) -> None:
        """The broker tells everything again from now on."""
        self._told = set()

    def end(self) -> None:
        """It told everything: what it did not name is gone."""
        if self._told is not None:
            self._kept = {key: note for key, note in self._kept.items() if key in self._told}
            self._told = None

    async def put(self, note: Any, kind: str, *names: str) -> None:
        """Writes a note, or removes it when it is None."""
        key = (kind, *names)
        self._mark(key)
        if note is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = note
        await self._write(path(kind, *names), b"" if note is None else msgspec.json.encode(note))

    def _mark(self, key: tuple[str, ...]) -> None:
        if self._told is not None:
            self._told.add(key)

    def topic(self, topic: str) -> TopicNote | None:
        """The settings of a topic."""
        found: TopicNote | None = self._kept.get(("topic", topic))
        return found

    def topics(self) -> set[str]:
        """Topics that have settings or a subscription."""
        return {
            key[1]
            for key in self._kept
            if key[0] in ("topic", "subscription") and not is_pattern(key[1])
        }

    def subscription(self, topic: str, name: str) -> SubscriptionNote | None:
        """A subscription of a topic or a pattern, by exactly this filter."""
        found: SubscriptionNote | None = self._kept.get(("subscription", topic, name))
        return found

    def subscriptions(self, topic: str) -> dict[str, SubscriptionPolicy]:
        """The subscriptions that get what is published to a topic, by name."""
        return {
            key[2]: note.policy
            for key, note in self._kept.items()
            if key[0] == "subscription" and (key[1] == topic or _is_covered(key[1], topic))
        }

    def consumers(self, topic: str, subscription: str) -> list[str]:
        """Who consumes a subscription at this moment."""
        return sorted(
            note.consumer
            for key, note in self._kept.items()
            if key[0] == "consumer"
            and note.subscription == subscription
            and (note.topic == topic or _is_covered(note.topic, topic))
        )

    def sessions(self, topic: str, subscription: str) -> list[str]:
        """The client ids of the lasting sessions of a subscription."""
        return sorted(
            key[1]
            for key, note in self._kept.items()
            if key[0] == "session" and (note.topic, note.subscription) == (topic, subscription)
        )

    def has_session(self, client_id: str) -> bool:
        """True when this session was made whole once."""
        return ("session", client_id) in self._kept


def path(kind: str, *names: str) -> str:
    """The MQTT topic of a note."""
    return "/".join((OWN, kind, *map(escape, names)))


def _is_covered(pattern: str, topic: str) -> bool:
    is_meant = is_pattern(pattern) and not is_dead_topic(topic)
    return is_meant and covers(filter_of(pattern), topic)
